"""JSON of the hub's messages as Python values."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from cdckit.parts.json_text import refuse_constant


def exact_values(text: str) -> Any:
    """
    JSON text as Python values: fractions are decimals, whole numbers ints, and no digit is lost.

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
_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=refuse_constant)
_PLAIN = json.JSONDecoder(parse_int=_whole_number, parse_constant=refuse_constant)
_LENIENT = json.JSONDecoder(parse_float=_any_number, parse_int=_any_number, parse_constant=refuse_constant)
