"""
What leaves the house: a history in the forms that other people's tools expect.

    overwriting  scd_type_1           one row per entity, as it is now
    versions     scd_type_2, scd_type_4   a row per version, in one table or in two
    previous     scd_type_3           as it is now, and what single fields were before
    hybrid       scd_type_6           a row per version, which also knows the values of now
    snapshots    periodic_snapshots   a row per entity and day, or another period
    views        create_view          the history in SQL, with its questions as table functions
    here         to_pandas            rows in this program, never more than a limit
"""
