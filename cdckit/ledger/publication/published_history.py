"""A table of its own that shows a history in a known form: what is written of it, and when all of it."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta, timezone
from enum import Enum
from functools import partial
from inspect import unwrap
from numbers import Number
from pathlib import Path
from types import FunctionType
from urllib.parse import unquote
from uuid import UUID
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import visible_history
from cdckit.ledger.history_changes import history_changes
from cdckit.ledger.kind import Kind
from cdckit.ledger.publication.catalogue_table import CatalogueTable
from cdckit.ledger.publication.delta_table import PublishedTable, Shown, files_about
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arguments import quoted
from cdckit.parts.instants import microseconds
from cdckit.parts.workers import compute_once
from cdckit.store import DamagedTable, Snapshot, Store
from cdckit.store.columns import renamed_columns
from cdckit.store.commits import ERASED
from cdckit.store.delta_log import first_answer
from cdckit.store.files import to_signed

_LOG = logging.getLogger(__name__)

Form = Callable[[DataFrame], DataFrame]
"""From a history to the table that is wanted of it, such as `scd_type_2`; each entity by itself."""


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

    def attempt() -> int | None:
        """Publish, unless another writer was faster."""
        number, now = _form_number(form), store.snapshot()
        history = _History(now, kind_of(now), form)
        columns = history.apply_form(now.read(history.kind.history, files=[])).schema
        table = _open_table(now, history.kind, target, options)
        if not anew:
            table.require_untouched()
        assert now.version is not None
        assert now.timestamp is not None
        erasure, shown, then = now.made(int(now.notes.get(ERASED, -1))), table.shown, None
        erased = 0 if erasure is None else microseconds(erasure)
        if not anew and shown is not None and shown.form == number and table.has_columns(columns):
            then = _shown_commit(store, history, shown)
            if then is not None and shown.commit >= now.version:
                return shown.commit if table.forget_before(erased) else None
        table.require_writable()
        put = history.put_all if then is None else partial(history.put_changes, then)
        state = now.named[history.kind.history].digest
        if not put(table, Shown(now.version, microseconds(now.timestamp), state, number)):
            return None
        if then is None and (renamed := list(renamed_columns(table.stored(columns)))):
            names = ", ".join(f"{true!r} is {stored}" for true, stored in renamed)
            sentence = "%s has columns under other names, since Delta does not take theirs: %s"
            _LOG.warning(sentence, target, names)
        return now.version if table.forget_before(erased) else None

    return first_answer(str(target), attempt)


def _shown_commit(store: Store, history: _History, shown: Shown) -> Snapshot | None:
    """
    The commit that a table shows; None where the store has it no more.

    Then `vacuum`, another program's VACUUM or an erasure has deleted its files; or the store was restored
    from a copy that is older.
    """
    if history.state(history.now) == shown.state:
        # What was committed since then has not changed the history.
        return history.now
    try:
        then = store.snapshot(shown.commit)
        return then if history.state(then) == shown.state and history.has_files_of(then) else None
    except (InvalidArgument, DamagedTable):
        return None


def require_published(
    store: Store, kind: Kind, target: str | Path, form: Form, options: dict[str, str] | None
) -> None:
    """Raise unless a table was published by this ledger in that form, and nobody has changed its rows."""
    table = _open_table(store.snapshot(), kind, target, options)
    table.require_untouched()
    if table.shown is None or table.shown.form != _form_number(form):
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

    def state(self, tables: Snapshot) -> int | None:
        """The digest of the files that the history has at a commit; None if it has none."""
        named = tables.named.get(self.kind.history)
        return None if named is None else named.digest

    def has_files_of(self, then: Snapshot) -> bool:
        """Tell whether those files are there that the history had at a commit, and has no longer."""
        name = self.kind.history
        removed = {file.path for file in then.files(name)} - {file.path for file in self.now.files(name)}
        listed = then.location.listed(then.named[name].folder, recursive=True) if removed else {}
        return {unquote(path) for path in removed} <= listed.keys()

    def put_all(self, table: PublishedTable | CatalogueTable, shown: Shown) -> bool:
        """Write the whole table; False if another writer was faster."""
        rows = self.apply_form(self.now.read(self.kind.history))
        size = sum(file.size for file in self.now.files(self.kind.history))
        return table.put_all(rows, size, shown)

    def put_changes(self, then: Snapshot, table: PublishedTable | CatalogueTable, shown: Shown) -> bool:
        """Write the rows of entities whose versions have changed; False if another writer was faster."""
        name = self.kind.history
        changed = history_changes(then, self.now, self.kind).select(GUID).distinct()
        computed = compute_once(changed)
        touched = changed.limit(0) if computed is None else computed
        versions = self.now.read(name, files=files_about(touched, self.now.files(name)))
        some = versions.join(touched, GUID, "left_semi").select(*map(quoted, versions.columns))
        return table.put_changes(self.apply_form(some), touched, shown)


_PLAIN = (str, bytes, Number, date, time, timedelta, timezone, ZoneInfo, UUID, Enum, DataType)
"""Of what has one text for one value, in each process."""


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
    arguments = _argument_text((by_default, args, sorted(options.items())))
    text = f"{function.__module__}.{function.__qualname__}{arguments}"
    return to_signed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))


def _argument_text(value: object) -> str:
    """Write an argument the same in every process: a set has another order in each."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_argument_text, value)))}}}"
    if isinstance(value, dict):
        return f"dict{_argument_text([*value.items()])}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_argument_text, value))})"
    # The text of a table does not say its rows, and that of most other objects where they are in memory.
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    needed = "one that functools.partial tells plain values alone: texts, numbers, times and lists of them"
    raise InvalidArgument("publish", "form", needed, value)
