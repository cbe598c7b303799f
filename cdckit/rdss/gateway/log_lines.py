"""Log lines in the form that the messaging system reads."""

from __future__ import annotations

import logging
import socket
from datetime import UTC, datetime

from cdckit.errors import InvalidArgument

_SEVERITIES = (
    (logging.CRITICAL, 2, "CRITICAL"),
    (logging.ERROR, 3, "ERROR"),
    (logging.WARNING, 4, "WARNING"),
    (logging.INFO, 6, "INFO"),
    (logging.NOTSET, 7, "DEBUG"),
)
"""From a level of Python on: the number of the severity as syslog has it, and its name."""


class LogLines(logging.Formatter):
    r"""
    A formatter of `logging`: `<PRI>VERSION TIMESTAMP HOSTNAME APP-NAME PROCID "[SEVERITY] text"`.

    PRI is facility · 8 + severity.  What would end the line or the quotes is escaped, so that no message
    can forge a line; a traceback is left out.

    Args:
        app_name: The name of the application.
        facility: 16 to 23, the facilities for local use.
        hostname: The machine; its own name without it.

    Raises:
        InvalidArgument: Another facility, or a name with a blank or nothing in it.

    >>> record = logging.LogRecord("gateway", logging.ERROR, "", 0, 'GENERR005 "input"\n', (), None)
    >>> record.created, record.process = 1706778000.25, 4711
    >>> print(LogLines("repository", hostname="gateway.example").format(record))
    <131>1 2024-02-01T09:00:00.250Z gateway.example repository 4711 "[ERROR] GENERR005 \"input\"\n"
    """

    def __init__(self, app_name: str, *, facility: int = 16, hostname: str | None = None) -> None:
        super().__init__()
        self._app_name, self._facility, self._hostname = app_name, facility, hostname or socket.gethostname()
        if not 16 <= facility <= 23:
            raise InvalidArgument("LogLines", "facility", "16 to 23, those for local use", facility)
        for argument, name in (("app_name", app_name), ("hostname", self._hostname)):
            if not name.isascii() or not name.isprintable() or not name or " " in name:
                raise InvalidArgument("LogLines", argument, "a name of visible ASCII characters", name)

    def format(self, record: logging.LogRecord) -> str:
        _, number, severity = next(each for each in _SEVERITIES if record.levelno >= each[0])
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = f"<{self._facility * 8 + number}>1 {at.replace('+00:00', 'Z')} {self._hostname}"
        return (
            f'{head} {self._app_name} {record.process or "-"} "[{severity}] {_escaped(record.getMessage())}"'
        )


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped)
