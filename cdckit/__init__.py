"""
cdckit: any change feed into one trustworthy history.

The spine, in the order in which data passes it: `session` for notebooks and tests; the doors, each
of which turns records into changes (`cdckit.replicate`, `cdckit.databus`, `cdckit.datahub`,
`cdckit.debezium`, `cdckit.streams` and `cdckit.rdss`; of any table of rows `changes_from`, of full lists
`changes_from_snapshots`), and what cannot be used into `rejects`; `merge`, from changes to a history, or a
`Ledger`, which keeps both as changes come; and the questions that a history answers:

    what was in force      as_of, current, between, as_of_join with Lookup
    what was believed      as_known, bitemporal, keep_known
    what changed           changes_between
    who said so            why, blame
    several sources        union_changes, with_fields, with_priorities, Priority
    rows that get new keys complete_moves
    is it sound            check

The rest is found by its subject, and imported from there: more questions in `cdckit.query`, suites and
searches for what is not sound in `cdckit.quality`, tables for others in `cdckit.outputs`, pictures and
widgets in `cdckit.notebook`, what a caller did wrong in `cdckit.errors`.

`samples` and `expectations` are the paths of the files that come with it.
In a notebook `show` makes a readable table, and `options` holds the zone in which instants are shown.
"""

import ast
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction


def _homes() -> dict[str, str]:
    """The module of each name: what `__init__.pyi` imports, which type checkers read too."""
    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")
    imports = (statement for statement in stub.body if isinstance(statement, ast.ImportFrom))
    return {name.name: str(statement.module) for statement in imports for name in statement.names}


_HOMES = _homes()
# `import *` leaves the doors out: they are modules, and some need packages that only an extra brings.
__all__ = sorted(name for name, home in _HOMES.items() if home != __name__)


def __getattr__(name: str) -> object:
    """Load what is named, a module or what one holds, and nothing else: Spark alone takes half a second."""
    if name == "__version__":
        return import_module("cdckit.parts.installation").own_version()
    home = _HOMES.get(name, __name__)
    if home == __name__ and (name.startswith("_") or find_spec(f"{home}.{name}") is None):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    if isfunction(value) and not hasattr(value, "__wrapped__"):
        value = import_module("cdckit.parts.argument_forms").takes()(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext cdckit` does: DataFrames show themselves, and Spark's work is visible."""
    import_module("cdckit.notebook.jupyter").load(shell)
