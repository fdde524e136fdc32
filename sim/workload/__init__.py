"""Workload: who arrives, when, with which tokens."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.tokens import Segments


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request before the engine has seen it."""

    id: str
    index: int
    """Place in the workload; gives its output tokens."""
    time: int
    """Arrival: microseconds, or a step under ``clock: steps``. With ``after``: the delay from then."""
    segments: Segments
    max_tokens: int = 1
    accepted_drafts: tuple[int, ...] | None = None
    """Overrides the engine's cycle of accepted drafts."""
    external: int = 0
    """Leading tokens that a connector computed."""
    load_error: bool = False
    """True if what a connector or a tier should bring at its first admission does not arrive."""
    abort: int | None = None
    """Time at which the request is taken away again."""
    abort_late: bool = False
    """True if it is taken away once the step of that time is decided, before the outcome of an earlier one is heard."""
    encoder: tuple[tuple[int, int], ...] = ()
    """(start, length) of spans of the prompt that an encoder computes (images, audio)."""
    after: str | None = None
    """The request whose end it waits for (closed loops, the next turn of a conversation)."""
    snapshots: tuple[int, ...] = ()
    """Positions of its prompt where the client asks for a state."""
    proposed_drafts: tuple[int, ...] | None = None
    """Overrides the engine's cycle of drafts that proposals have."""

    @property
    def num_prompt_tokens(self) -> int:
        return sum(length for _, length in self.segments)
