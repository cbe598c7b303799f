"""A history for others: a table of its own, in a known form, that follows the history of a ledger."""
