"""Named streams: independent, and the same everywhere."""

import pytest

from stateat.sim.workload.streams import exponential, gamma, lognormal, normal, stream, uniforms


def test_a_stream_is_its_seed_and_name() -> None:
    assert uniforms(stream(1, "a"), 3) == uniforms(stream(1, "a"), 3)
    assert len({tuple(uniforms(stream(s, n), 3)) for s in (0, 1, 2**63 - 1) for n in ("a", "b")}) == 6


def test_pinned_numbers() -> None:
    """Digests in scenario files rest on these: they hold for every NumPy and platform."""
    assert uniforms(stream(7, "arrivals"), 3) == PINNED


def test_extremes_are_finite() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    assert exponential(Zero()) == 0.0  # type: ignore[arg-type]
    assert normal(0.0) < -8 and normal(0.5) == 0.0
    assert lognormal(0.0, 1000.0, 10.0) > 0.0


def test_gamma_has_its_mean() -> None:
    for shape in (0.3, 1.0, 7.0):
        rng = stream(2, "g")
        assert sum(gamma(rng, shape) for _ in range(20_000)) / 20_000 == pytest.approx(shape, rel=0.05)


PINNED = [0.7153989113358794, 0.33228376720721964, 0.5857464638396183]
