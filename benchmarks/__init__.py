"""Ratios within one run, since times of shared machines mean little; the demo is held against a minute."""
