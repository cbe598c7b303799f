"""Why a table cannot become changes: everything that is wrong with a call, in one error."""

from __future__ import annotations

from collections.abc import Sequence

from cdckit.errors import CdcError


class UnfitTable(CdcError, ValueError):
    """A table lacks columns that the call names, or has them in types that cannot mean what it says."""

    def __init__(
        self,
        function: str,
        wrong: Sequence[str],
        found: Sequence[str],
        example: str,
        unsaid: Sequence[str] = (),
    ) -> None:
        self.function, self.wrong, self.found = function, tuple(wrong), tuple(found)
        self.example, self.unsaid = example, tuple(unsaid)
        super().__init__(function, self.wrong, self.found, example, self.unsaid)

    def __str__(self) -> str:
        return (
            f"{self.function}() cannot read the table so: {'; '.join(self.wrong)}. "
            f"The table has {', '.join(self.found) or 'no columns'}. "
            f"A call that would {self._do()}: {self.example}"
        )

    def _do(self) -> str:
        if not self.unsaid:
            return "do"
        return f"run, in which {' and '.join(self.unsaid)} must still be said as you mean it"
