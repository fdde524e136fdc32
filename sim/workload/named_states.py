"""States that a scenario names: those that it places into the prefix cache, or evicts from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateat.sim.schema import Complaint, Length, Name, Strict, Time, choice


class NamedState(Strict):
    """A state (or a block of attention) of one group, by the prefix that it stands for."""

    at: Time
    """Time of the change: microseconds, or a step under `clock: steps`; it happens before the first step at or after
    it, behind resets."""
    group: Name
    """The name of the group."""
    request: Name
    """The id of a request that has come by then, and may have ended: its tokens are the prefix."""
    offset: Length
    """Tokens of the prefix: the state behind them, or the block that ends there; a multiple of the hash unit."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of the prefix cache from outside, as an engine takes it."""

    time: int
    """Microseconds, or a step under ``clock: steps``."""
    places: bool
    """True: the state is placed; False: it is evicted."""
    group: int
    request: str
    offset: int
    where: str = ""
    """File, line and key, for messages."""


def check(
    states: Sequence[NamedState], groups: dict[str, bool], requests: Sequence[str] | None, unit: int
) -> Iterator[Complaint]:
    """Problems of the states, given the groups with what takes part in prefix caching, the ids of the requests (None:
    not written in the file) and the hash unit (tokens)."""
    for i, state in enumerate(states):
        if state.group not in groups:
            yield (i, "group"), choice(state.group, groups)
        elif not groups[state.group]:
            yield (i, "group"), f"found {state.group!r}, allowed a group that takes part in prefix caching"
        if requests is not None and state.request not in requests:
            yield (i, "request"), choice(state.request, requests)
        if state.offset % unit:
            yield (i, "offset"), f"found {state.offset}, allowed a multiple of the hash unit {unit}"
