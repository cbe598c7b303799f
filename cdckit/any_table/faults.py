"""Why a table cannot become changes: everything that is wrong with a call, in one error."""

from __future__ import annotations

from collections.abc import Sequence

from cdckit.errors import CdcError
from cdckit.parts.meant import that_would_do


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
            f"{that_would_do(self.example, self.unsaid)}"
        )
