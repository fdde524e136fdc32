"""Steps in flight: their fate when a request is taken away, and when blocks that they may use are free again."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value, When


@dataclass(frozen=True, slots=True)
class Abort:
    """Fate of a request's steps in flight when it is taken away."""

    runs_on: bool
    """True if the steps run to their end, and what they sample is discarded; else they do not run."""
    unpublishes: bool = False
    """The claims that they were to make true are withdrawn with them."""


@dataclass(frozen=True, slots=True)
class Free:
    """Time at which blocks that steps in flight may use go back to the pool."""

    waits: bool = True
    """Blocks of a request that ends or is preempted are free once its steps have run (vLLM's deferred frees)."""
    guards: bool = True
    """Nobody is preempted whose blocks would have to wait: that frees nothing now (vLLM 0.30)."""
    confirmed: bool = True
    """A state is freed by what has been computed; else by what steps in flight will have computed too."""


@dataclass(frozen=True, slots=True)
class StaleOutput:
    """Outputs of steps in flight of a request that is preempted meanwhile."""

    counted: bool = False
    """Counted as any other, whether the request runs again or not; after a reset as many outputs are discarded as
    tokens were expected (vLLM 0.26)."""
    waits: bool = True
    """The request starts anew once they have come."""
    keeps_turn: bool = False
    """Until then it keeps its place before who is preempted later (vLLM from 0.27 to 0.30)."""


STALE_OUTPUT: Rule[StaleOutput] = Rule(
    "What becomes of outputs in flight of a request that is preempted?",
    {
        "delivered-late": Value(
            StaleOutput(),
            "The request gets them, and starts anew once it has; after a reset they are dropped.",
            "vLLM from 0.31 on",
        ),
        "delivered-late-in-turn": Value(
            StaleOutput(keeps_turn=True),
            "As `delivered-late`; a request that a step has passed over meanwhile comes before those that are "
            "preempted later.",
            "vLLM from 0.27 to 0.30",
        ),
        "counted": Value(
            StaleOutput(counted=True, waits=False),
            "They count as any other, also if the request runs again; behind a reset as many outputs are dropped as "
            "tokens were expected, drafts included.",
            "vLLM 0.26",
        ),
    },
    When(
        "with steps in flight (`async_scheduling`, or `max_concurrent_batches` above 1)",
        lambda options, requests: options.batch_queue > 1,
    ),
)

ABORT: Rule[Abort] = Rule(
    "What becomes of the steps in flight of a request that is taken away?",
    {
        "runs-on": Value(Abort(runs_on=True), "They run, and nobody hears what they sampled.", "vLLM to 0.33"),
        "dropped": Value(
            Abort(runs_on=False),
            "They do not run (those from before a preemption do); what they were to make true stays published.",
            "vLLM issue 56525",
            Standing.FAULT,
        ),
        "dropped-and-unpublished": Value(
            Abort(runs_on=False, unpublishes=True),
            "They do not run (those from before a preemption do), and what they were to make true is withdrawn.",
            "vLLM issue 56525",
            Standing.PROPOSAL,
        ),
    },
    When(
        "with a request that is taken away (`abort`), where steps wait in a pipeline (not with `async_scheduling`)",
        lambda options, requests: not options.async_scheduling and any(r.abort is not None for r in requests),
    ),
)

FREE: Rule[Free] = Rule(
    "When do blocks that steps in flight may use go back to the pool?",
    {
        "when-run": Value(
            Free(),
            "Those of a request that ends or is preempted when its steps have run, and nobody is preempted whose "
            "blocks would have to wait; states that it has passed when what has been computed lies behind them.",
            "vLLM 0.30 to 0.33 (it waits only where a connector may load into them)",
        ),
        "when-run-unguarded": Value(
            Free(guards=False),
            "As `when-run`; but a victim whose blocks have to wait is preempted all the same, and frees nothing.",
            "vLLM to 0.29",
        ),
        "at-once": Value(Free(waits=False), "At once.", "before vLLM PR 45357", Standing.FAULT),
        "ahead": Value(
            Free(confirmed=False),
            "As `when-run`, but states that it has passed already when what steps in flight will have computed lies "
            "behind them.",
            "before vLLM PR 36879",
            Standing.FAULT,
        ),
    },
    When(
        "with steps in flight (`async_scheduling`, or `max_concurrent_batches` above 1)",
        lambda options, requests: options.batch_queue > 1,
    ),
)
