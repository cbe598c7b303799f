"""A naive interpreter of patches, on copies of whole documents, and random patches for it."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

NAMES = ["a", "b", "c", "0", "1", "-", "x~1y"]


class Fails(Exception):
    pass


def answered(document: Any, ops: list[dict[str, Any]]) -> tuple[int, Any]:
    """The status, and the document then; None is no document."""
    if document is None and all(op["op"] != "add" for op in ops):
        return 2, None
    # A patch may take the entity away and make it anew: the root is a field, of a document of ours.
    world = {} if document is None else {"root": deepcopy(document)}
    try:
        for op in ops:
            do(world, op)
    except Fails:
        return 3, document
    return 1, world.get("root")


def steps(path: str) -> list[str]:
    inner = path.strip("/")
    return ["root", *(part.replace("~1", "/").replace("~0", "~") for part in inner.split("/") if part)]


def do(world: dict[str, Any], op: dict[str, Any]) -> None:
    name = op["op"]
    if name in ("move", "copy"):
        source, target = steps(op["fromPath"]), steps(op["toPath"])
        if name == "move" and target[: len(source)] == source and target != source:
            raise Fails
        there, value = look(world, source)
        if there and source != target:
            if name == "move":
                take(world, source)
            put(world, target, deepcopy(value))
        return
    path = steps(op["path"])
    there, value = look(world, path)
    if name in ("add", "replace"):
        put(world, path, deepcopy(op["value"]))
    elif name == "remove":
        if there:
            take(world, path)
    elif name == "inc":
        if not there:
            put(world, path, op["value"])
        elif type(value) is not int:
            raise Fails
        else:
            put(world, path, value + op["value"])
    elif name == "test" and not (there and text(value) == text(op["value"])):
        raise Fails


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def look(node: Any, path: list[str]) -> tuple[bool, Any]:
    for step in path:
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        else:
            return False, None
    return True, node


def take(world: Any, path: list[str]) -> None:
    _, node = look(world, path[:-1])
    if isinstance(node, dict):
        del node[path[-1]]
    else:
        node.pop(int(path[-1]))


def put(node: Any, path: list[str], value: Any) -> None:
    if path == ["root"] and not isinstance(value, dict):
        raise Fails
    for place, step in enumerate(path):
        last = place == len(path) - 1
        if isinstance(node, list):
            at = len(node) if step == "-" else int(step) if step.isdigit() else None
            if at is None or at > len(node):
                raise Fails
            if at == len(node):
                node.append(None if last else empty(path, place + 1))
            step = at  # type: ignore[assignment]
        elif not isinstance(node, dict):
            raise Fails
        elif step not in node and not last:
            node[step] = empty(path, place + 1)
        if last:
            node[step] = value  # type: ignore[index]
        else:
            node = node[step]  # type: ignore[index]


def empty(path: list[str], place: int) -> Any:
    # The entity itself is a document, whatever the first step is called.
    return [] if place > 1 and (path[place] == "-" or path[place].isdigit()) else {}


def drawn_patch(chance: random.Random) -> list[dict[str, Any]]:
    return [drawn(chance) for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 5]))]


def drawn(chance: random.Random) -> dict[str, Any]:
    name = chance.choice(["add", "add", "add", "replace", "remove", "move", "copy", "inc", "test"])
    if name in ("move", "copy"):
        return {"op": name, "fromPath": path(chance), "toPath": path(chance)}
    op: dict[str, Any] = {"op": name, "path": path(chance)}
    if name == "inc":
        op["value"] = chance.randint(-3, 3)
    elif name != "remove":
        op["value"] = value(chance)
    return op


def path(chance: random.Random) -> str:
    if chance.random() < 0.04:
        return "/"
    inner = "/".join(chance.choice(NAMES) for _ in range(chance.choice([1, 1, 2, 2, 3])))
    return chance.choice(["", "/"]) + inner + chance.choice(["", "/"])


def value(chance: random.Random, deep: int = 2) -> Any:
    kind = chance.choice(["int", "text", "null", "flag", "list", "object"])
    if kind in ("list", "object") and deep:
        many = range(chance.randint(0, 3))
        if kind == "list":
            return [value(chance, deep - 1) for _ in many]
        return {chance.choice("abc01"): value(chance, deep - 1) for _ in many}
    return {"int": chance.randint(0, 3), "text": "t", "null": None, "flag": True}.get(kind, 1)
