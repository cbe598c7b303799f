"""RDSS, "Metadata Error Codes", "Digital Object Versioning", by tables: whether an object existed."""

from __future__ import annotations

import pytest

from cdckit.rdss.existence_rules import FollowingMessages, ObjectExistence

TYPES = {"C": "MetadataCreate", "U": "MetadataUpdate", "D": "MetadataDelete", "R": "MetadataRead"}
ANSWERS = {True: "yes", False: "no", None: "?"}

# In the order of publishing: `C x` says that the object x is created, `V5 x` that it is a version of another;
# `U y` asks whether x existed, since y is a version of it; `+ x` and `- x` are what was known before.
# Beside each stands whether x existed before it: yes, no, nothing is known (?), or if V5 is right.
EXISTENCE = {
    "an object that nobody created": "U x ? | D x ? | R x no",
    "from its create to its delete": "C x ? | U x yes | D x yes | U x no | R x no | C x no | R x yes",
    "an update creates nothing": "U x ? | U x ?",
    "a version of another exists if its update is right": "V5 x ? | R x V5 | D x V5 | R x no",
    "a create after a version": "V5 x ? | C x V5 | R x yes",
    "a version of an object that exists": "C x ? | V5 x yes | U x V5",
    "others ask": "U y ? | C x ? | U y yes | V6 y yes | R x yes",
    "what was known before": "+ x ? | U x yes | - x yes | U x no",
}
KEPT = {
    "a deleted object exists still": "C x ? | D x yes | U x yes | D x yes | R x yes",
    "a delete of what nobody created": "D x ? | U x ?",
    "a version of another": "V5 x ? | D x V5 | R x V5",
}


@pytest.mark.parametrize(
    ("case", "keeps_deleted"),
    [
        pytest.param(case, keeps_deleted, id=name)
        for cases, keeps_deleted in ((EXISTENCE, False), (KEPT, True))
        for name, case in cases.items()
    ],
)
def test_whether_an_object_existed(case: str, keeps_deleted: bool) -> None:
    fold = ObjectExistence(None, keeps_deleted)
    for number, line in enumerate(case.split(" | ")):
        kind, own, expected = line.split()
        is_version, known = kind.startswith("V"), {"+": True, "-": False}.get(kind)
        message_type = TYPES.get("U" if is_version else kind)
        message_id = kind if is_version else f"m{number}"
        existed, follows = fold.take("x", message_id, message_type, own, is_version, known)
        assert (follows or ANSWERS[existed]) == expected, line


def test_a_message_that_comes_again_has_the_answer_of_the_first_time() -> None:
    fold = ObjectExistence(None, keeps_deleted=False)
    messages = [("u", "U"), ("c", "C"), ("u", "U"), ("d", "D"), ("d", "D"), ("v", "U")]
    answers = [fold.take("x", name, TYPES[kind], "x", False, None)[0] for name, kind in messages]
    assert answers == [None, None, None, True, True, False]


# Messages that follow updates, in the order of publishing; `*` is one that is a version itself.
FOLLOWING = [
    ("it follows nobody", [("a", "", True)]),
    ("a chain that leads to nothing is wrong whole", [("a*", "", True), ("b*", "a", True), ("c", "b", True)]),
    ("an update that is not here is right", [("a*", "z", False), ("b", "a", False)]),
    (
        "one of several is enough",
        [("a*", "", True), ("b*", "a z", False), ("c", "a", True), ("d", "b", False)],
    ),
    ("what is no version brings nothing", [("a", "", True), ("b", "a", False)]),
]


@pytest.mark.parametrize("messages", [case for _, case in FOLLOWING], ids=[name for name, _ in FOLLOWING])
def test_messages_are_wrong_that_follow_wrong_updates_alone(messages: list[tuple[str, str, bool]]) -> None:
    fold = FollowingMessages(None)
    for name, follows, expected in messages:
        assert fold.take(name.rstrip("*"), follows.split(), name.endswith("*")) == (expected,), name
