"""Random numbers with a name.

Each use draws from a stream of its own, keyed by the scenario's seed and the stream's name, so that a change of
one (other prompt lengths, say) leaves the others as they were. Only :meth:`numpy.random.Generator.random`
is used and the distributions are computed from it here: NumPy promises the bits of the generator but not
those of its distributions, and a digest must survive an upgrade.
"""

from __future__ import annotations

from hashlib import blake2b
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

_NORMAL = NormalDist()


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator of a name under a seed (0 <= seed < 2**64)."""
    hashed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.Generator(np.random.Philox(key=np.array([seed, hashed], np.uint64)))


def uniforms(rng: np.random.Generator, count: int) -> list[float]:
    """Numbers in [0, 1)."""
    return rng.random(count).tolist()  # type: ignore[no-any-return]


def exponential(rng: np.random.Generator) -> float:
    """Mean 1."""
    return -log(1.0 - rng.random())


def normal(u: float) -> float:
    """The standard normal quantile of u in [0, 1)."""
    return _NORMAL.inv_cdf(u or 2.0**-54)


def lognormal(u: float, mean: float, sigma: float) -> float:
    """The quantile of the log-normal distribution with this mean; ``sigma`` is that of the logarithm."""
    return mean * exp(sigma * normal(u) - sigma * sigma / 2)


def gamma(rng: np.random.Generator, shape: float) -> float:
    """Scale 1, so the mean is ``shape`` (Marsaglia and Tsang, 2000)."""
    if shape < 1:
        return gamma(rng, shape + 1) * exp(log(1.0 - rng.random()) / shape)
    d = shape - 1 / 3
    c = 1 / sqrt(9 * d)
    while True:
        x = normal(rng.random())
        v = (1 + c * x) ** 3
        if v > 0 and log(1.0 - rng.random()) < 0.5 * x * x + d - d * v + d * log(v):
            return d * v
