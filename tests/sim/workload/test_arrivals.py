"""Schedules: means, shapes, and the kinds that are not random."""

from statistics import mean, pstdev
from typing import Any

import pytest

from stateat.sim.workload.arrivals import ClosedLoop, Gamma, Poisson, Start, Steps, schedule


def gaps(arrivals: Any, count: int = 20_000, clock: str = "us") -> list[int]:
    times = [start.time for start in schedule(arrivals, count, 3, clock)]
    return [b - a for a, b in zip([0, *times], times, strict=False)]


def test_poisson_has_its_rate_and_as_much_spread() -> None:
    seen = gaps(Poisson(kind="poisson", rate=4.0))
    assert mean(seen) == pytest.approx(250_000, rel=0.03)
    assert pstdev(seen) == pytest.approx(250_000, rel=0.04)


@pytest.mark.parametrize("burstiness", [0.25, 0.5, 4.0])
def test_gamma_has_its_rate_and_the_spread_of_its_shape(burstiness: float) -> None:
    seen = gaps(Gamma(kind="gamma", rate=4.0, burstiness=burstiness))
    assert mean(seen) == pytest.approx(250_000, rel=0.05)
    assert pstdev(seen) == pytest.approx(250_000 / burstiness**0.5, rel=0.06)


def test_burstiness_1_is_poisson() -> None:
    poisson = schedule(Poisson(kind="poisson", rate=2.5), 50, 9, "us")
    assert schedule(Gamma(kind="gamma", rate=2.5), 50, 9, "us") == poisson
    assert schedule(Gamma(kind="gamma", rate=2.5, burstiness=1.01), 50, 9, "us") != poisson


def test_under_steps_the_rate_is_per_step() -> None:
    assert mean(gaps(Poisson(kind="poisson", rate=0.25), clock="steps")) == pytest.approx(4, rel=0.03)


def test_more_arrivals_do_not_move_the_first_ones() -> None:
    few, many = (schedule(Gamma(kind="gamma", rate=1.0, burstiness=2.0), n, 0, "us") for n in (5, 50))
    assert many[:5] == few


def test_clients_wait_for_their_own_answers() -> None:
    loop = ClosedLoop(kind="closed-loop", clients=2, think_us=30)
    assert schedule(loop, 5, 0, "us") == [Start(0), Start(0), Start(30, 0), Start(30, 1), Start(30, 2)]


def test_given_times() -> None:
    assert schedule(Steps(kind="steps", at=[0, 0, 3]), 3, 0, "steps") == [Start(0), Start(0), Start(3)]
    assert schedule(Steps(kind="steps", every=4), 3, 0, "steps") == [Start(0), Start(4), Start(8)]
