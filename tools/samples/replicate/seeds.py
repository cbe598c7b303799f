"""
Chance that hangs on what a thing is, not on when its turn comes.

A generator that is drawn from in a loop gives a flight another life when the loop starts on another day.
Here every draw is a hash of the thing's own seed and the name of the draw, so a week and a year of the stream
tell the same lives.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Seeds = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def text_seed(text: str) -> int:
    """Return the 64-bit seed of *text*."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def text_seeds(texts: Iterable[str]) -> Seeds:
    """Return the seed of each text."""
    return np.array([text_seed(text) for text in texts], dtype=np.uint64)


def mix(values: Seeds) -> Seeds:
    """Scatter 64-bit values (the finaliser of splitmix64): equal in, equal out, neighbours far apart."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seeds: Seeds, draw: str) -> Floats:
    """
    Return one number in [0, 1) for each seed; *draw* names what is being drawn.

    >>> uniform(text_seeds(["a", "b"]), "lag").round(6).tolist()
    [0.94751, 0.593332]
    """
    scattered = mix(seeds ^ np.uint64(text_seed(draw)))
    return (scattered >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def between(seeds: Seeds, draw: str, low: int, high: int) -> Integers:
    """Return one whole number in [low, high) for each seed."""
    return (low + (high - low) * uniform(seeds, draw)).astype(np.int64)
