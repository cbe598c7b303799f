"""What was probably meant: names that are nearly right."""

from __future__ import annotations

import pytest

from cdckit import options
from cdckit.errors import InvalidArgument
from cdckit.notebook.options import as_zone
from cdckit.parts.near_names import (
    nearest_name,
    suggest_name,
    suggest_names,
)

KNOWN = ["number", "name", "Price"]


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert [nearest_name(name, KNOWN) for name in ("nmae", "PRICE", "colour", 7)] == [
        "name",
        "Price",
        None,
        None,
    ]
    assert suggest_name("nmae", KNOWN) == " (is it name?)"
    assert suggest_name("colour", KNOWN) == ""


def test_unknown_names_are_asked_about_together_and_known_ones_are_not() -> None:
    assert (
        suggest_names(["nmae", "number", "prize", "colour"], KNOWN)
        == "Is it name for nmae and Price for prize?"
    )
    assert suggest_names(["name", "colour"], KNOWN) is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [("New York", "America/New_York"), ("europe/berlin", "Europe/Berlin"), ("Berlim", "Europe/Berlin")],
)
def test_a_zone_is_known_by_its_city(said: str, meant: str) -> None:
    with pytest.raises(InvalidArgument, match=f"Is it '{meant}'"):
        as_zone(said)
    with pytest.raises(InvalidArgument, match=r"it is 'nowhere at all'\.$"):
        options.zone = "nowhere at all"
