"""What was probably meant: names that are nearly right, and the call that would do with them."""

from __future__ import annotations

import pytest

from cdckit import options
from cdckit.errors import InvalidArgument
from cdckit.notebook.options import as_zone
from cdckit.parts.arguments import as_meant, nearest, perhaps, perhaps_each, that_would_do

KNOWN = ["number", "name", "Price"]


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert [nearest(name, KNOWN) for name in ("nmae", "PRICE", "colour", 7)] == ["name", "Price", None, None]
    assert perhaps("nmae", KNOWN) == " (is it name?)"
    assert perhaps("colour", KNOWN) == ""


def test_unknown_names_are_asked_about_together_and_known_ones_are_not() -> None:
    assert (
        perhaps_each(["nmae", "number", "prize", "colour"], KNOWN)
        == "Is it name for nmae and Price for prize?"
    )
    assert perhaps_each(["name", "colour"], KNOWN) is None


def test_a_name_that_is_like_none_is_left_out_of_the_call_and_told() -> None:
    assert as_meant(["nmae", "name", "number"], KNOWN) == (["name", "number"], True)
    assert as_meant(["colour", "number"], KNOWN) == (["number"], False)
    assert that_would_do("f(x)") == "A call that would do: f(x)"
    assert that_would_do("f(x)", ["keys", "fields", "keys"]) == (
        "A call that would run, in which keys and fields must still be said as you mean it: f(x)"
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [("New York", "America/New_York"), ("europe/berlin", "Europe/Berlin"), ("Berlim", "Europe/Berlin")],
)
def test_a_zone_is_known_by_its_city(said: str, meant: str) -> None:
    with pytest.raises(InvalidArgument, match=f"Is it '{meant}'"):
        as_zone(said, function="show")
    with pytest.raises(InvalidArgument, match=r"it is 'nowhere at all'\.$"):
        options.zone = "nowhere at all"
