"""Consumers: what a listener is, and what it answers."""

from __future__ import annotations

from enum import IntEnum

from cdckit.databus.event_sources import Source
from cdckit.databus.event_views import Event, Events


class Result(IntEnum):
    """
    What a callback answers; of several answers the greatest counts.

    >>> max(Result.SUCCESS, Result.ERROR).is_success, Result.CHECKPOINT.is_success
    (False, True)
    """

    SUCCESS = 0
    CHECKPOINT = 100
    SKIP_CHECKPOINT = 150
    ERROR = 200
    ERROR_FATAL = 300

    @property
    def is_success(self) -> bool:
        return self < Result.ERROR


class Consumer:
    """
    A listener: override what you need.

    A callback answers with a `Result`.  One about a window, a source or the consumption may answer nothing,
    which is success, as their draft returns nothing; `on_data_event` must answer: with a `Result`, with True
    for success, or with False, which ends the consumption.  Nothing at all from `on_data_event`, an exception
    and an exceeded time are errors.

    Source:
        Databus, "DatabusEventListener".

    >>> class Silent(Consumer):
    ...     def on_data_event(self, event):
    ...         return True
    >>> Silent().on_start_consumption()
    <Result.SUCCESS: 0>
    """

    def on_start_consumption(self) -> Result | None:
        """The consumption starts."""
        return Result.SUCCESS

    def on_stop_consumption(self) -> Result | None:
        """The consumption has ended, for whatever reason."""
        return Result.SUCCESS

    def on_start_data_event_sequence(self, start_scn: int) -> Result | None:
        """A window starts; this is the lowest SCN in it."""
        return Result.SUCCESS

    def on_end_data_event_sequence(self, end_scn: int) -> Result | None:
        """A window ends; this is the last SCN that it covers."""
        return Result.SUCCESS

    def on_rollback(self, start_scn: int) -> Result | None:
        """What came since the last start is void, and may come again, from this SCN or an earlier one."""
        return Result.SUCCESS

    def on_start_source(self, source: Source) -> Result | None:
        """The events of this source follow."""
        return Result.SUCCESS

    def on_end_source(self, source: Source) -> Result | None:
        """The events of this source are done, of this window."""
        return Result.SUCCESS

    def on_data_event(self, event: Event) -> Result | bool | None:
        """One event."""
        return Result.SUCCESS

    def on_data_events(self, events: Events) -> Result | bool | None:
        """
        Events of one source that came together, for a listener that takes Arrow columns (`events.batch`).

        By default each goes to `on_data_event`, which is not called if this is overridden.
        """
        raise NotImplementedError("It is called where it is overridden.")

    def on_checkpoint(self, scn: int) -> Result | None:
        """A checkpoint is about to be stored; `SKIP_CHECKPOINT`, or an error, prevents it."""
        return Result.SUCCESS

    def on_error(self, error: Exception) -> Result | None:
        """Nothing more will come: all that could be tried failed."""
        return Result.SUCCESS
