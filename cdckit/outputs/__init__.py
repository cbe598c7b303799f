"""
What leaves the house: a history in the forms that other people's tools expect.

    scd        scd_type_1              one row per entity, as it is now
               scd_type_2, scd_type_4  a row per version, in one table or in two
               scd_type_3              as it is now, and what single fields were before
               scd_type_6              a row per version, which also knows the values of now
    snapshots  periodic_snapshots      a row per entity and day, or another period
    sql        create_view             the history in SQL, with its questions as table functions
               to_pandas               rows in this program, never more than a limit
"""

from cdckit.outputs.history_arguments import UnfitHistory
from cdckit.outputs.scd import ScdType4, scd_type_1, scd_type_2, scd_type_3, scd_type_4, scd_type_6
from cdckit.outputs.snapshots import periodic_snapshots
from cdckit.outputs.sql import TooManyRows, create_view, to_pandas

__all__ = [
    "ScdType4",
    "TooManyRows",
    "UnfitHistory",
    "create_view",
    "periodic_snapshots",
    "scd_type_1",
    "scd_type_2",
    "scd_type_3",
    "scd_type_4",
    "scd_type_6",
    "to_pandas",
]
