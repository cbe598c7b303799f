"""JSON of the hub's messages as Python values."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from typing import Any

from cdckit.parts.json_text import each_name_once, refuse_constant


def require_names_once(text: str) -> None:
    """Raise `RepeatedName` where a name comes twice in an object of JSON text, at any depth."""
    json.loads(text, parse_int=float, object_pairs_hook=each_name_once)


class RepeatedNames(dict[str, Any]):
    """
    An object in which names come twice: the last value of each, and as JSON text what was written.

    >>> found = exact_values('{"a": 1, "b": 2, "a": 3}')
    >>> found.repeated, found.unrepeated(), json.dumps(found)
    (['a'], {'b': 2}, '{"a": 1, "b": 2, "a": 3}')
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    @property
    def repeated(self) -> list[str]:
        """The names that come twice."""
        return [name for name, times in Counter(name for name, _ in self._pairs).items() if times > 1]

    def unrepeated(self) -> dict[str, Any]:
        """The members whose names come once."""
        repeated = self.repeated
        return {name: value for name, value in self._pairs if name not in repeated}

    def copy(self) -> RepeatedNames:
        """The same, as `dict.copy` would not have it."""
        return RepeatedNames(self._pairs)

    def items(self) -> Any:
        """All members, by which `json` writes them."""
        return self._pairs


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    return values if len(values) == len(pairs) else RepeatedNames(pairs)


def exact_values(text: str) -> Any:
    """
    JSON text as Python values: fractions are decimals, whole numbers ints, and no digit is lost.

    Nor is a member of an object: one in which names come twice is `RepeatedNames`.

    Raises:
        ValueError: It is no JSON; Python's own reader takes NaN, which is none.

    >>> exact_values('[1.10, 12]')
    [Decimal('1.10'), 12]
    """
    try:
        try:
            return _EXACT.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, ArithmeticError):
            # One number of thousands of digits, or of an exponent of dozens, is no fault of its neighbours.
            return _LENIENT.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def plain_object(text: str | None) -> dict[str, Any]:
    """A JSON object with Python's own numbers; empty for null."""
    members: dict[str, Any] = _PLAIN.decode(text) if text else {}
    return members


def _any_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        # Its exponent is beyond what even a decimal holds.
        digits, _, exponent = text.lower().partition("e")
        is_zero = exponent.startswith("-") or not re.search("[1-9]", digits)
        return Decimal(0) if is_zero else Decimal("Infinity")


def _whole_number(text: str) -> int | float:
    # Python refuses to make a number of thousands of digits.
    return int(text) if len(text) < 1000 else float(text)


# Made once: `json.loads` with these options would make one for every text.
_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=refuse_constant, object_pairs_hook=_read_object)
_PLAIN = json.JSONDecoder(parse_int=_whole_number, parse_constant=refuse_constant)
_LENIENT = json.JSONDecoder(
    parse_float=_any_number,
    parse_int=_any_number,
    parse_constant=refuse_constant,
    object_pairs_hook=_read_object,
)
