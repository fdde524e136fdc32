"""Arrivals of requests: models of the file, and the schedule that each gives.

Times are microseconds, or steps under ``clock: steps``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from stateat.sim.schema import MAX_REQUESTS, Count, Strict, Time
from stateat.sim.workload.streams import exponential, gamma, stream

Rate = Annotated[float, Field(ge=1e-6, le=1e9)]


class Poisson(Strict):
    """Independent arrivals at a mean rate."""

    kind: Literal["poisson"]
    """Independent arrivals."""
    rate: Rate
    """Mean arrivals per second; per step under `clock: steps`."""


class Gamma(Strict):
    """Arrivals with gamma-distributed gaps, as in vLLM's serving benchmark."""

    kind: Literal["gamma"]
    """Gamma-distributed gaps, as in vLLM's serving benchmark."""
    rate: Rate
    """Mean arrivals per second; per step under `clock: steps`."""
    burstiness: Annotated[float, Field(ge=0.01, le=1000)] = 1.0
    """Shape of the gaps' distribution: 1 is poisson, less is burstier, more is steadier."""


class ClosedLoop(Strict):
    """Clients that each wait for an answer before they ask again: at most `clients` requests in flight."""

    kind: Literal["closed-loop"]
    """Clients that wait for an answer before they ask again."""
    clients: Count
    """Requests in flight at most; each client starts at time 0."""
    think_us: Time = 0
    """Microseconds (steps under `clock: steps`) from an answer's end to the client's next request."""


class Steps(Strict):
    """Arrivals at given times."""

    kind: Literal["steps"]
    """Arrivals at given times."""
    at: Annotated[list[Time], Field(min_length=1, max_length=MAX_REQUESTS)] | None = None
    """The time of each arrival: step numbers, or microseconds under `clock: us`."""
    every: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Instead of `at`: arrival i (from 0) comes at i times this."""

    @model_validator(mode="after")
    def _one(self) -> Steps:
        if (self.at is None) == (self.every is None):
            raise ValueError("allowed either at or every")
        return self


Arrivals = Poisson | Gamma | ClosedLoop | Steps


@dataclass(frozen=True, slots=True)
class Start:
    """Time at which a request (or a conversation) begins."""

    time: int
    """Absolute; with ``after``, the delay from then."""
    after: int | None = None
    """The arrival, counted from 0, whose end it waits for."""


def schedule(arrivals: Arrivals, count: int, seed: int, clock: str) -> list[Start]:
    """The first ``count`` arrivals; without ``after``, ordered by time unless ``at`` is not."""
    match arrivals:
        case ClosedLoop(clients=clients, think_us=think):
            return [Start(0) if i < clients else Start(think, i - clients) for i in range(count)]
        case Steps(at=list(at)):
            return [Start(time) for time in at[:count]]
        case Steps(every=every):
            return [Start(i * (every or 0)) for i in range(count)]
        case Poisson() | Gamma():
            unit = 1.0 if clock == "steps" else 1e6
            gaps = _gaps(arrivals, stream(seed, "arrivals"))
            now, starts = 0.0, []
            for _ in range(count):
                now += next(gaps) / arrivals.rate
                starts.append(Start(round(now * unit)))
            return starts


def _gaps(arrivals: Poisson | Gamma, rng: np.random.Generator) -> Iterator[float]:
    """Gaps with mean 1. Burstiness 1 draws as poisson does, so that both give the same arrivals."""
    shape = arrivals.burstiness if isinstance(arrivals, Gamma) else 1.0
    while True:
        yield exponential(rng) if shape == 1.0 else gamma(rng, shape) / shape
