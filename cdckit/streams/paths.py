"""Paths: where in a document an operation works."""

from __future__ import annotations

import re
from functools import lru_cache

from cdckit.streams.json_values import DEEPEST

Path = tuple[str, ...]

_LONGEST_CACHED = 200
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_WRONG_ESCAPE = re.compile(r"~(?![01])")

APPEND = "-"
"""The step that stands behind the last element of an array."""


class BadPath(ValueError):
    """A text is no path; the sentence says why."""


def path_of(text: str) -> Path:
    """
    The steps of a path; none for the document itself.

    A slash at the start and one at the end may be left out; `~1` is a slash within a step, `~0` a tilde.

    Raises:
        BadPath: A step is empty, a tilde stands alone, or there are more than 100 steps.

    Source:
        facts: paths of the prototype.

    >>> path_of("/phone/home/"), path_of("phone/home"), path_of("/"), path_of("a~1b")
    (('phone', 'home'), ('phone', 'home'), (), ('a/b',))
    """
    return _known(text) if len(text) <= _LONGEST_CACHED else _steps(text)


def _steps(text: str) -> Path:
    if text in ("", "/"):
        return ()
    inner = text[1:] if text.startswith("/") else text
    inner = inner[:-1] if inner.endswith("/") else inner
    many = inner.count("/") + 1
    if many > DEEPEST:
        raise BadPath(f"the path has {many:,} steps; the most are {DEEPEST}")
    if "" in inner.split("/"):
        raise BadPath(f"the path {shown(text)} has an empty step")
    if _WRONG_ESCAPE.search(inner):
        raise BadPath(f"the path {shown(text)} has a tilde that is not ~0 or ~1")
    return steps_of(inner)


_known = lru_cache(maxsize=4096)(_steps)


def step_text(step: str) -> str:
    """
    A step as a path has it.

    >>> step_text("a/b~")
    'a~1b~0'
    """
    return step.replace("~", "~0").replace("/", "~1")


def steps_of(name: str) -> Path:
    """
    The steps of a learned field's name, as `step_text` wrote them: an empty one is a name as any other.

    >>> steps_of("phone/home"), steps_of("a~1b/")
    (('phone', 'home'), ('a/b', ''))
    """
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in name.split("/"))


def index_of(step: str) -> int | None:
    """The place in an array that a step names; None for one that is no number, `-` among them."""
    return int(step) if _INDEX.fullmatch(step) else None


def begins_array(step: str) -> bool:
    """Whether a missing value that is asked for this step is to be an array."""
    return step == APPEND or _INDEX.fullmatch(step) is not None


def shown(value: object) -> str:
    """
    A JSON value within a sentence: cut where it is long, an object or array by that word alone.

    >>> shown("a"), shown(None), shown({"a": 1})
    ("'a'", 'null', 'an object')
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of many digits"
    said = repr(value[:80]) if isinstance(value, str) else str(value)
    return said if len(said) <= 80 else f"{said[:77]}..."
