"""
Whether tables are sound: suites of sentences that a table keeps (`check`, `check_all`), a `gate` before a
stream's batches, the rows of changes and histories that are not sound, and whether every record has a fate.
"""
