"""Other names, by which alone an exchange knows erased objects, messages and sequences again."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.tombstones import keyed_hash
from cdckit.store import Transaction
from cdckit.store.store import Tables, read_note, write_note

OBJECT, MESSAGE, SEQUENCE = "object", "message", "sequence"

ERASED_NAMES = "erased_names"
ERASED_NAMES_SCHEMA = T.StructType(
    [T.StructField(name, T.StringType()) for name in ("other_name", "of", "later")]
)
"""One row is an object, a message or a sequence that was erased, by its other name; of an object beside it
what becomes of messages about it that come later."""

_OTHER, _SOUGHT = "_other_name", "_sought_name"


@dataclass(frozen=True)
class ErasedNames:
    """
    What was erased.  Whoever has the store, and guesses a name, can tell that it is among them.

    Args:
        secret: Of the hashes of which the other names are made, in hexadecimal digits.
        rows: The names (`ERASED_NAMES_SCHEMA`).
    """

    secret: str
    rows: DataFrame

    @staticmethod
    def of(tables: Tables) -> ErasedNames | None:
        """Those of a store; None if nothing was ever erased there."""
        secret = read_note(tables, _NOTE, None)
        return None if secret is None else ErasedNames(secret, tables.read(ERASED_NAMES))

    @staticmethod
    def other_names(tables: Tables, name: str) -> list[str]:
        """The other name of one that is at hand; none where nothing was ever erased."""
        secret = read_note(tables, _NOTE, None)
        return [] if secret is None else [other_name_of(name, secret)]

    @staticmethod
    def with_more(tables: Transaction, names: DataFrame) -> ErasedNames:
        """Let more of them be known: one row each, `name`, `of` and `later`."""
        known = ErasedNames.of(tables)
        secret = secrets.token_hex(32) if known is None else known.secret
        rows = names.select(other_name(F.col("name"), secret).alias("other_name"), "of", "later").distinct()
        if known is not None:
            rows = rows.join(known.rows, ["other_name", "of"], "left_anti")
        write_note(tables, _NOTE, secret)
        tables.append(ERASED_NAMES, rows.coalesce(1), compact_at=_MANY_FILES)
        return ErasedNames(secret, tables.read(ERASED_NAMES))

    def other_name(self, name: Column) -> Column:
        """The other name of anything."""
        return other_name(name, self.secret)

    def with_other_name(self, rows: DataFrame, name: Column, of: str, column: str) -> DataFrame:
        """The rows, and in *column* the other name of what was erased: null where it was not; and `later`."""
        own = self.rows.where(F.col("of") == of).select(F.col("other_name").alias(_OTHER), "later")
        found = rows.withColumn(_SOUGHT, self.other_name(name)).join(
            own.withColumnRenamed("later", f"{column}_later"), F.col(_SOUGHT) == F.col(_OTHER), "left"
        )
        return found.withColumnRenamed(_OTHER, column).drop(_SOUGHT)

    def rename(self, rows: DataFrame, column: str, of: str) -> DataFrame:
        """The rows, in *column* the other names of what was erased."""
        found = self.with_other_name(rows, F.col(column), of, "_renamed")
        return found.withColumn(column, F.coalesce("_renamed", column)).select(*rows.columns)


_NOTE = "cdckit.erased_names"
_MANY_FILES = 16


def other_name(name: Column, secret: str) -> Column:
    """
    A name that is a UUID of version 4, made of HMAC-SHA-256 of another name; see `other_name_of`.

    >>> found = session().range(1).select(other_name(F.lit("ada"), "00ff")).first()[0]
    >>> found == other_name_of("ada", "00ff")
    True
    """
    digest = keyed_hash(name, bytes.fromhex(secret))
    one, two, three, four, five = (F.substring(digest, start, size) for start, size in _PIECES)
    return F.concat_ws("-", one, two, F.concat(F.lit("4"), three), F.concat(F.lit("8"), four), five)


_PIECES = ((1, 8), (9, 4), (13, 3), (16, 3), (19, 12))


def other_name_of(name: str, secret: str) -> str:
    """
    The same of one name.

    >>> other_name_of("ada", "00ff")
    '74289439-8c8d-468a-8d25-530ba838e609'
    """
    digest = hmac.new(bytes.fromhex(secret), name.encode(), sha256).hexdigest()
    one, two, three, four, five = (digest[start - 1 : start - 1 + size] for start, size in _PIECES)
    return f"{one}-{two}-4{three}-8{four}-{five}"
