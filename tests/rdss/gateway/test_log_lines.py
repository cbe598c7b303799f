"""Log lines: one line each, whatever is in them, in the order that the form has."""

from __future__ import annotations

import io
import logging

import pytest

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway import LogFormatter


def lines(level: int, text: str, *told: object) -> str:
    stream, logger = io.StringIO(), logging.Logger("of a test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter("repository", facility=17, hostname="gateway.example"))
    logger.addHandler(handler)
    logger.log(level, text, *told)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("level", "pri", "severity"),
    [
        (logging.CRITICAL, 138, "CRITICAL"),
        (logging.ERROR, 139, "ERROR"),
        (logging.WARNING, 140, "WARNING"),
        (logging.INFO, 142, "INFO"),
        (logging.DEBUG, 143, "DEBUG"),
    ],
)
def test_the_priority_is_facility_times_eight_plus_severity(level: int, pri: int, severity: str) -> None:
    pri_and_version, time, host, app, process, text = lines(level, "It is so.").split(" ", 5)
    assert (pri_and_version, host, app) == (f"<{pri}>1", "gateway.example", "repository")
    assert time.endswith("Z")
    assert process.isdigit()
    assert text == f'"[{severity}] It is so."\n'


def test_a_text_cannot_begin_a_line_of_its_own_or_end_its_quotes() -> None:
    written = lines(logging.ERROR, "of %s", 'somebody"\n<131>1 forged\r\x1b[2J\\')
    assert written.count("\n") == 1
    assert written.endswith('"[ERROR] of somebody\\"\\n<131>1 forged\\r\\u001b[2J\\\\"\n')


def test_a_facility_that_is_not_for_local_use_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="facility to be 16 to 23"):
        LogFormatter("repository", facility=3)
    with pytest.raises(InvalidArgument, match="app_name"):
        LogFormatter("two words")
