"""
What more than one file of tests uses: naive readings of the rules, random input, programs that are killed.

Tests import it as `from support.fold import fold`.  What one file alone uses is in that file, and what one
folder uses as fixtures is in its `conftest.py`.
"""
