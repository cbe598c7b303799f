"""How the data messages of a schema are laid out, and which field of a row is which column of its table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cdckit.parts.avro.types import Node


def layout(root: Node) -> list[str]:
    """
    One line for each field in the order of its bytes: schemas with the same lines decode alike.

    Names of types, texts for readers, defaults and the spelling of the JSON are not in them.

    >>> from cdckit.parts.avro import parse_schema
    >>> fields = '[{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}]'
    >>> layout(parse_schema('{"type": "record", "name": "R", "fields": ' + fields + "}").root)
    ['id: int', 'note: null or string']
    """
    return list(_lines("", root))


def _lines(path: str, node: Node) -> Iterator[str]:
    if node.kind == "record":
        for name, child in node.fields:
            yield from _lines(f"{path}.{name}".lstrip("."), child)
        return
    yield f"{path}: {_named(node)}"
    if node.kind in ("array", "map") and node.items is not None:
        yield from _lines(f"{path}[]", node.items)
    for branch in node.branches:
        if branch.kind in ("record", "array", "map"):
            yield from _lines(path, branch)


def _named(node: Node) -> str:
    if node.kind == "union":
        return " or ".join(_named(branch) for branch in node.branches)
    named = node.kind
    if node.kind == "fixed":
        named = f"fixed({node.size})"
    if node.kind == "enum":
        named = f"enum({', '.join(node.symbols)})"
    if node.logical == "decimal":
        return f"decimal({node.precision},{node.scale}) in {named}"
    return f"{node.logical} in {named}" if node.logical else named


def match_columns(columns: Sequence[tuple[str, int]], fields: Sequence[str]) -> dict[str, int]:
    """
    Where each column of a table stands in a row.

    The names of *fields* are those that an Avro schema allows, so they may differ from the names of the
    source: what is not allowed in them was replaced, and one of two names that differ in case alone was
    changed.  The ordinal is the position of a column in the row, so where every field can bear the name
    of the column at its position, that is what counts; else names do, exact ones first.

    Args:
        columns: Name and ordinal, by ordinal.
        fields: The names of a row's fields, in order; columns that only the task knows may be among them.

    Returns:
        The index of its field for each column that has one.

    >>> match_columns([("A B", 1), ("A_B", 2), ("GRÖSSE", 3)], ["A_B", "A_B_2", "GR_SSE"])
    {'A B': 0, 'A_B': 1, 'GRÖSSE': 2}
    >>> match_columns([("id", 1), ("price", 2), ("colour", 4)], ["colour", "id", "price", "loaded_by"])
    {'id': 1, 'price': 2, 'colour': 0}
    """
    places = {name: place for place, name in enumerate(fields)}
    if all(name in places for name, _ in columns):
        return {name: places[name] for name, _ in columns}
    in_order = {name: ordinal - 1 for name, ordinal in columns}
    if all(place < len(fields) and _can_bear(fields[place], name) for name, place in in_order.items()):
        return in_order
    found = {name: places[name] for name, _ in columns if name in places}
    for is_of in (_is_but_for_case, _can_bear):
        for name, _ in columns:
            free = (place for place in range(len(fields)) if place not in found.values())
            place = next((place for place in free if is_of(fields[place], name)), None)
            if name not in found and place is not None:
                found[name] = place
    return {name: found[name] for name, _ in columns if name in found}


def _is_but_for_case(field: str, column: str) -> bool:
    return field.lower() == column.lower()


def _can_bear(field: str, column: str) -> bool:
    """
    Whether *field* may be the name under which Avro got *column*.

    It is the same but for its case, or has a number behind it that keeps two names apart; or *column* has
    characters that Avro does not allow, and all of its others stand in *field* in their order.
    """
    if re.fullmatch(rf"{re.escape(column)}(_?[0-9]+_*)?", field, re.IGNORECASE):
        return True
    letters = iter(field.lower())
    return not _ALLOWED.fullmatch(column) and all(
        letter in letters for letter in re.sub("[^a-z0-9]", "", column.lower())
    )


_ALLOWED = re.compile("[A-Za-z_][A-Za-z0-9_]*")
