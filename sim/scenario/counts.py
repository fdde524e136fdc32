"""Counts of a run: the one list of them, from which whatever shows, sums or expects a count takes its names.

A new count is a field of :class:`Counts`, and the place that counts it (:mod:`stateat.sim.run.tally` from what an
engine decides, the oracle's records from what is right or wrong). Outcomes, sums over cases, ``--json``, a sweep's
columns, the keys that an expectation may name and a table's rows follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Count:
    """A count's description, and where it is seen."""

    says: str
    """The definition; b is a group's block size, in tokens."""
    total: Callable[[Iterable[Any]], Any] = sum
    """Makes the count of several cases from those of each."""
    in_json: bool = True
    """``--json`` has it."""
    expected: bool = True
    """An expectation of a scenario file may name it."""
    swept: bool = True
    """The table of a sweep has a column for it."""
    heading: str = ""
    """The label of its row in a terminal's table; '' where it has none there, or one of its own making."""
    rare: bool = False
    """True if the row is shown only where some variant has the count."""


def _count(says: str, default: int = 0, **where: Any) -> Any:
    """Return the field of a count; ``where``: fields of :class:`Count`."""
    return field(default=default, metadata={"count": Count(says, **where)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers that a run came to, in the order of ``--json``."""

    poisoned: int = _count(
        "distinct (hash, slot) pairs that the slot's content contradicted at the end of some step, each once; moved "
        "claims and tainted slots included"
    )
    poisoned_roots: int = _count("those whose held state has no wrong ancestor")
    wrong_restores: int = _count(
        "admissions with hit or external tokens whose first read is not state@start; resumed ones included",
        heading="wrong restores",
    )
    wrong_reads: int = _count(
        "every other read of a wrong state, one for each step (however many groups read wrong), so that one bad state "
        "counts at every decode step"
    )
    tainted_requests: int = _count("requests with either")
    not_judged: int = _count(
        "claims, and requests' reads of a group's state, of slots whose write was never heard, or of steps whose end "
        "was not: only a log has them",
        heading="not judged",
        rare=True,
    )
    null_boundaries: int = _count(
        "multiples of b up to the prompt whose state nobody had ever claimed at the end of the step of the request's "
        "first output; per request and recurrent group",
        heading="null boundaries",
    )
    materialized_boundaries: int = _count(
        "those that a live claim names and a slot really holds then", heading="materialized boundaries"
    )
    deferred: int = _count("times that the split gave a request no token, one a request and step", heading="deferred")
    same_step_refused: int = _count(
        "admissions refused because the hit was registered in the same step", heading="same-step refused"
    )
    hit_tokens: int = _count("tokens skipped by hits of first admissions; external tokens are not hits")
    resume_hit_tokens: int = _count("the same after a preemption")
    loaded_tokens: int = _count(
        "tokens that an offload tier or a connector brought at first admissions", heading="loaded tokens", rare=True
    )
    prefill_tokens: int = _count("tokens that prefill chunks computed, each as often as it was")
    prompt_tokens: int = _count("prompt tokens of the requests that arrived")
    output_tokens: int = _count("tokens that were sampled", expected=False)
    requests: int = _count("requests that arrived", expected=False)
    finished: int = _count("requests that ended by themselves")
    steps: int = _count("engine steps; under `clock: steps` the number of the last one plus 1", heading="steps")
    chunks: int = _count("(step, request) pairs that were given tokens, decode steps included", heading="chunks")
    preempted: int = _count("preemptions", heading="preempted")
    evicted: int = _count("recurrent slots that lost their last claim to reallocation", heading="evicted")
    claims: int = _count("claims of recurrent groups")
    restores: int = _count("admissions with a hit, first or not")
    starts: int = _count(
        "admissions that started from a cached state: that of a hit, a tier or a connector",
        in_json=False,
        expected=False,
    )
    resets: int = _count("times that the prefix cache was emptied; refused ones do not count")
    rejected: int = _count(
        "requests that were refused for good, since they can never fit (rule `admission`)",
        heading="rejected",
        rare=True,
    )
    livelock: bool = _count("whether the run stopped because nothing moved", default=False, total=any)
    violated: int = _count("cases (or this run) with an I1 finding, or an I2 finding for a start inside a block")
    judged: int = _count(
        "claims, and first reads after a hit, of which it was found whether they are right",
        in_json=False,
        expected=False,
        swept=False,
    )
    time_us: int = _count("the end of the run, in microseconds or steps", in_json=False, expected=False)


COUNTS: Mapping[str, Count] = {each.name: each.metadata["count"] for each in fields(Counts)}
"""Counts by name."""


def number_matches(wanted: int | Mapping[str, int | None], number: int) -> bool:
    """True if a number is the one expected, or within {min, max}."""
    if not isinstance(wanted, Mapping):
        return number == wanted
    low, high = wanted.get("min"), wanted.get("max")
    return (low is None or low <= number) and (high is None or number <= high)


def pins_to_zero(wanted: int | Mapping[str, int | None] | None) -> bool:
    """True if a number must be 0."""
    return (wanted.get("max") == 0) if isinstance(wanted, Mapping) else wanted == 0
