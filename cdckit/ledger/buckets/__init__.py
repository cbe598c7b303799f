"""The upkeep of one bucket of a ledger, by a worker or by this program: plain Python over Arrow."""
