"""Rules of the worker and its pipeline: what it keeps of a request, and what becomes of steps in flight."""

from __future__ import annotations

from stateat.sim.rules.record import Rule, Standing, Value, When
from stateat.sim.worker.faults import MEMORIES, Memory
from stateat.sim.worker.pipeline import Abort, Free


def _fault(name: str, does: str, source: str, standing: Standing = Standing.FAULT) -> tuple[str, Value[Memory]]:
    return name, Value(MEMORIES[name], does, source, standing)


WORKER: Rule[Memory] = Rule(
    "What does a worker keep of a request between its steps, above all its accepted count, and what does a copy take "
    "of a state?",
    dict(
        (
            _fault(
                "v2",
                "A request that is skipped for a step keeps its accepted count, and a copy takes all of a state.",
                "worker v2",
                Standing.RELEASE,
            ),
            _fault(
                "v1",
                "As `v2`, but the accepted count of a request that is skipped for a step becomes 1, in `all` mode too.",
                "worker v1",
                Standing.RELEASE,
            ),
            _fault(
                "unshifted",
                "As `v2`, but a copy of the state after an accepted draft takes the convolution's inputs of the column "
                "before any.",
                "the control",
            ),
            _fault(
                "contiguous-view",
                "As `v2`, but in a step of prefills alone, with drafts, row r reads and writes entry r of the rows' "
                "running columns and the K behind each, row by row.",
                "vLLM issue 55357",
            ),
            _fault(
                "stale-on-reset",
                "As `v2`, but the worker is not told of requests that a reset put back: one goes on with the column "
                "that it had before.",
                "before PR 35157",
            ),
            _fault(
                "row-indexed",
                "As `v2`, but counts lie in the rows of the batch and do not move when it is condensed.",
                "vLLM issues 51571, 53919",
            ),
            _fault("one-too-many", "As `v2`, but a count is one too high after a verification.", "vLLM issue 50021"),
            _fault(
                "never-rolled-back",
                "As `v2`, but the count is always K + 1: rejected drafts stay in the state.",
                "mlx-lm issue 1109",
            ),
            _fault(
                "shared-count",
                "As `v2`, but one count serves all groups in `align` mode: the first group's copy makes it 1 for the "
                "next.",
                "vLLM issues 50432, 50729",
            ),
            _fault(
                "plain-restarts",
                "As `v2`, but a row without drafts reads the running column.",
                "vLLM issues 39273, 56531",
            ),
            _fault(
                "padded-as-prefill",
                "As `v2`, but a row padded with placeholders runs as a prefill and keeps the state behind them.",
                "before vLLM PR 55178",
            ),
            _fault(
                "no-backward-copy",
                "As `v2`, but a passed boundary is not saved into a column before the running one.",
                "proposed in vLLM issue 53505",
            ),
            _fault(
                "copies-ahead",
                "As `v2`, but copies of shared pages do not wait for the steps in flight.",
                "SGLang issue 24221",
            ),
            _fault(
                "untracked-in-mixed",
                "As `v2`, but in `all` mode a prefill beside decodes leaves no state at its boundaries.",
                "SGLang issue 39342",
            ),
            _fault(
                "first-column",
                "As `v2`, but in `align` mode a row works in the first column of its table, even if that is the null "
                "block.",
                "vLLM issue 33937",
            ),
            _fault(
                "unzeroed",
                "As `v2`, but a request that starts from nothing reads what its slot holds, in `all` mode too.",
                "vLLM issue 56524",
            ),
            _fault(
                "shifted-in-place",
                "As `v2`, but a shift of the convolution's inputs within one slot moves the last input first, so that "
                "each reads what the one behind it has left.",
                "vLLM issues 50729, 50432",
            ),
            _fault(
                "short-chunk-into-source",
                "As `v2`, but the first chunk of a restored request, if it has fewer than 3 tokens, leaves the "
                "convolution's inputs in the slot that it was restored from.",
                "vLLM issue 56196",
            ),
            _fault(
                "stale-look-ahead",
                "As `v2`, but a prefill that ends with a block writes the last of its drafter's states into the first "
                "column that it has not been given, whatever an earlier request left there.",
                "vLLM issue 57605",
            ),
        )
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
        "with a request that is taken away (`abort`)",
        lambda options, requests: any(r.abort is not None for r in requests),
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
        "with steps in flight (`max_concurrent_batches` above 1)",
        lambda options, requests: options.max_concurrent_batches > 1,
    ),
)
