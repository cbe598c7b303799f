"""A program that the interpreter has run: what the hub is compared with."""

from __future__ import annotations

from datetime import timedelta

from support.hub_interpreter import InterpretedHub
from support.hub_programs import BEGIN, FILTERS, READERS, Program

# A day between runs: whoever waits is due by then, and nobody has waited too long in the end.
DAY = timedelta(days=1)


def interpreted(program: Program) -> InterpretedHub:
    world = InterpretedHub(program.schema, readers=READERS, filters=FILTERS)
    world.receive(program.messages)
    world.process(BEGIN + DAY)
    return world
