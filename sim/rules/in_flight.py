"""Steps in flight: their fate when a request is taken away, and when blocks that they may use are free again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abort:
    """Fate of a request's steps in flight when it is taken away."""

    runs_on: bool
    """They run to their end, and what they sample is discarded; else they do not run."""
    unpublishes: bool = False
    """The claims that they were to make true are withdrawn with them."""


ABORTS: dict[str, object] = {
    "runs-on": Abort(runs_on=True),
    "dropped": Abort(runs_on=False),
    "dropped-and-unpublished": Abort(runs_on=False, unpublishes=True),
}


@dataclass(frozen=True, slots=True)
class Free:
    """Time at which blocks that steps in flight may use go back to the pool."""

    waits: bool = True
    """Blocks of a request that ends or is preempted are free once its steps have run (vLLM's deferred frees)."""
    guards: bool = True
    """Nobody is preempted whose blocks would have to wait: that frees nothing now (vLLM 0.30)."""
    confirmed: bool = True
    """A state is freed by what has been computed; else by what steps in flight will have computed too."""


FREES: dict[str, object] = {
    "when-run": Free(),
    "when-run-unguarded": Free(guards=False),
    "at-once": Free(waits=False),
    "ahead": Free(confirmed=False),
}
