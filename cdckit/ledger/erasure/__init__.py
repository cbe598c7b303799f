"""Forgetting: entities, or fields of them, go from every file of a ledger."""
