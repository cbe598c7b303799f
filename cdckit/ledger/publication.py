"""A history for others: what changed in it, and a table of its own that follows it, in a known form."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from inspect import unwrap
from operator import and_
from pathlib import Path
from types import FunctionType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import visible_history
from cdckit.ledger.kind import Kind
from cdckit.ledger.published import CatalogueTable, PublishedTable, files_about
from cdckit.merging.arrow_changes import GUID
from cdckit.model.history import VALID_FROM, VALID_TO
from cdckit.parts.arguments import quoted
from cdckit.parts.values import comparable
from cdckit.store import Snapshot, Store
from cdckit.store.columns import as_columns, renamed_columns
from cdckit.store.commits import ERASED
from cdckit.store.files import to_signed
from cdckit.store.log import first_answer

_LOG = logging.getLogger(__name__)

Form = Callable[[DataFrame], DataFrame]
"""From a history to the table that is wanted of it, such as `scd_type_2`; each entity by itself."""

CHANGE = "change"


def publish(
    store: Store,
    kind_of: Callable[[Snapshot], Kind],
    target: str | Path,
    form: Form,
    *,
    anew: bool,
    options: dict[str, str] | None,
) -> int:
    """Do what `Ledger.publish` does; *kind_of* tells what the ledger of the store is about."""
    attempt = partial(_try_to_publish, store, kind_of, target, form, anew, options)
    return first_answer(str(target), attempt)


def _try_to_publish(
    store: Store,
    kind_of: Callable[[Snapshot], Kind],
    target: str | Path,
    form: Form,
    anew: bool,
    options: dict[str, str] | None,
) -> int | None:
    """Publish, unless another writer was faster: then None."""
    number, now = _form_number(form), store.snapshot()
    history = _History(now, kind_of(now), form)
    columns = history.apply_form(now.read(history.kind.history, files=[])).schema
    table = _open_table(now, history.kind, target, options)
    if not anew:
        table.require_untouched()
    assert now.version is not None
    erased = int(now.notes.get(ERASED, 0))
    as_before = not anew and table.form == number and table.has_columns(columns)
    if as_before and table.commit is not None and table.commit >= now.version:
        table.forget_before(erased)
        return table.commit
    table.require_writable()
    try:
        # Where no commit since then has written to the history, it is as it was then.
        is_same = table.commit is not None and now.named[history.kind.history].commit <= table.commit
        then = (now if is_same else store.snapshot(table.commit)) if as_before else None
    except InvalidArgument:
        then = None  # `vacuum`, or an erasure, has deleted its files.
    put = history.put_all if then is None else partial(history.put_changes, then)
    if not put(table, now.version, number):
        return None
    if then is None and (renamed := list(renamed_columns(table.stored(columns)))):
        names = ", ".join(f"{true!r} is {stored}" for true, stored in renamed)
        _LOG.warning("%s has columns under other names, since Delta does not take theirs: %s", target, names)
    table.forget_before(erased)
    return now.version


def require_published(
    store: Store, kind: Kind, target: str | Path, form: Form, options: dict[str, str] | None
) -> None:
    """Raise unless a table was published by this ledger in that form, and nobody has changed its rows."""
    table = _open_table(store.snapshot(), kind, target, options)
    table.require_untouched()
    if table.commit is None or table.form != _form_number(form):
        needed = "tables that this ledger has published, each with the form that it has"
        raise InvalidArgument(None, "published", needed, str(target))


def _open_table(
    now: Snapshot, kind: Kind, target: str | Path, options: dict[str, str] | None
) -> PublishedTable | CatalogueTable:
    source = f"{now.store}/{kind.name}"
    # The table of a catalogue is a text in which nothing is a path's.
    if isinstance(target, str) and not re.search(r"[/\\:]", target):
        return CatalogueTable(now.spark, target, source)
    return PublishedTable(now.spark, target, source, options)


@dataclass(frozen=True)
class _History:
    """The history of a ledger at a commit, and the form in which it is shown."""

    now: Snapshot
    kind: Kind
    form: Form

    def apply_form(self, versions: DataFrame) -> DataFrame:
        """Versions in that form."""
        form_rows = self.form(visible_history(versions, self.now.schema(self.kind.changes)))
        if not isinstance(form_rows, DataFrame) or GUID not in form_rows.columns:
            needed = f"a function that makes a table with the column {GUID} of a history"
            raise InvalidArgument("publish", "form", needed, self.form)
        return form_rows

    def put_all(self, table: PublishedTable | CatalogueTable, commit: int, number: int) -> bool:
        """Write the whole table; False if another writer was faster."""
        rows = self.apply_form(self.now.read(self.kind.history))
        size = sum(file.size for file in self.now.files(self.kind.history))
        return table.put_all(rows, size, commit, number)

    def put_changes(
        self, then: Snapshot, table: PublishedTable | CatalogueTable, commit: int, number: int
    ) -> bool:
        """Write the rows of entities whose versions have changed; False if another writer was faster."""
        name = self.kind.history
        touched = history_changes(then, self.now, self.kind).select(GUID).distinct().persist()
        try:
            versions = self.now.read(name, files=files_about(touched, self.now.files(name)))
            some = versions.join(touched, GUID, "left_semi").select(*map(quoted, versions.columns))
            return table.put_changes(self.apply_form(some), touched, commit, number)
        finally:
            touched.unpersist()


def _form_number(form: Form) -> int:
    """64 bits that tell a form from another one: by the function's name, its defaults and what is told it."""
    function, args, options = form, (), {}
    if isinstance(form, partial):
        function, args, options = form.func, form.args, form.keywords
    if isinstance(function, FunctionType) and function.__module__.startswith("cdckit."):
        # Ours check their calls, which is no variable around them.
        function = unwrap(function)
    # Lambdas of one place have one name, as functions have that go by different variables around them.
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>" or function.__closure__:
        needed = (
            "a function with a name of its own that makes a table of a history, such as scd_type_2; what "
            "else it goes by is told it by functools.partial, not by an object or variables around it"
        )
        raise InvalidArgument("publish", "form", needed, form)
    by_default = function.__defaults__, sorted((function.__kwdefaults__ or {}).items())
    text = f"{function.__module__}.{function.__qualname__}{(by_default, args, sorted(options.items()))}"
    return to_signed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))


# What changed ---------------------------------------------------------------------------------------------


def history_changes(then: Snapshot, now: Snapshot, kind: Kind) -> DataFrame:
    """The versions that are not the same at two commits, as `Ledger.history_changes` returns them."""
    files = {file.path: file for file in then.files(kind.history)} if then.has(kind.history) else {}
    later = {file.path: file for file in now.files(kind.history)}
    come = [file for path, file in later.items() if path not in files]
    removed = [file for path, file in files.items() if path not in later]
    after = visible_history(now.read(kind.history, files=come), now.schema(kind.changes))
    if not removed:
        return after.select(F.lit("appeared").alias(CHANGE), "*")
    rows = then.read(kind.history, files=removed)
    before = _cast_columns(visible_history(rows, then.schema(kind.changes)), after.schema)
    return _find_differences(before, after)


def _cast_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """Rows of an earlier commit in the columns of a later one: fields may have come, or be of wider types."""
    names = set(rows.columns)
    values = (
        F.col(quoted(column.name))
        if column.name in names
        else F.lit(None).cast(column.dataType).alias(column.name)
        for column in columns
    )
    return as_columns(rows, columns).select(*values)


def _find_differences(before: DataFrame, after: DataFrame) -> DataFrame:
    was, is_ = (F.struct(*map(quoted, rows.columns)) for rows in (before, after))
    joined = before.select(GUID, VALID_FROM, was.alias("was")).join(
        after.select(GUID, VALID_FROM, is_.alias("is")), [GUID, VALID_FROM], "full_outer"
    )
    same = {
        field.name: comparable(F.col("was").getField(field.name), field.dataType).eqNullSafe(
            comparable(F.col("is").getField(field.name), field.dataType)
        )
        for field in after.schema
    }
    same_end = same.pop(VALID_TO)
    same_rest = reduce(and_, same.values())
    was_open = F.col("was").getField(VALID_TO).isNull()
    change = (
        F.when(F.col("was").isNull(), "appeared")
        .when(F.col("is").isNull(), "went")
        .when(same_rest & same_end, None)
        .when(same_rest & was_open, "ended")
        .otherwise("changed")
    )
    version = F.coalesce("is", "was").alias("version")
    return (
        joined.select(change.alias(CHANGE), version)
        .where(F.col(CHANGE).isNotNull())
        .select(CHANGE, "version.*")
    )
