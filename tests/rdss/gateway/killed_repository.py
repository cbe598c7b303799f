"""Takes messages into a repository and settles them, on and on, and says what is committed; it is killed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support import without_spark

    without_spark.install()

from cdckit.rdss.findings import Finding
from cdckit.rdss.gateway.repository import RefusedMessage, SqliteRepository, SqlStatement, StoredMessage
from cdckit.rdss.outcomes import Outcome

BATCH = 5
"""Messages that are taken in one transaction."""


def incoming(number: int) -> StoredMessage:
    return StoredMessage(
        f"in-{number}", "Command", "MetadataCreate", f"s-{number}", 1, 1, None, b"%d" % number
    )


def nothing_wrong(parts: Sequence[StoredMessage], contradiction: Finding | None) -> list[RefusedMessage]:
    assert contradiction is None
    return []


def main(path: str, first: int) -> None:
    """Batch by batch: taken, then each settled with a row of its own and a message to send, then sent."""
    with SqliteRepository(path) as repository:
        repository.rows("CREATE TABLE IF NOT EXISTS done (number INTEGER)")
        for number in range(first, first + 100_000, BATCH):
            repository.take([incoming(each) for each in range(number, number + BATCH)], nothing_wrong)
            print(f"taken {number}", flush=True)
            while waiting := repository.next_waiting():
                [message] = waiting
                done = message.value.decode()
                answer = StoredMessage(
                    f"out-{done}", "Document", "MetadataRead", f"t-{done}", 1, 1, None, b"{}"
                )
                row = SqlStatement("INSERT INTO done VALUES (?)", (int(done),))
                repository.settle([message], Outcome.PROCESSED, send=[(answer, "output")], write=[row])
                print(f"settled {done}", flush=True)
                repository.mark_sent(answer.message_id)
                print(f"sent {done}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
