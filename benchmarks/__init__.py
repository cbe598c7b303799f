"""Benchmarks: ratios within one run, since absolute times of shared machines mean nothing."""
