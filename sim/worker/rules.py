"""The rule of the worker: what it keeps of a request between its steps; each value is a class of worker."""

from __future__ import annotations

from stateat.sim.rules.record import Rule, Standing, Value
from stateat.sim.worker import faults
from stateat.sim.worker.worker import Worker

WORKER: Rule[type[Worker]] = Rule(
    "What does a worker keep of a request between its steps, above all its accepted count, and what does a copy take "
    "of a state?",
    {
        "v2": Value(
            Worker,
            "A request that is skipped for a step keeps its accepted count, and a copy takes all of a state.",
            "vLLM's model runner v2 (mamba_hybrid, `postprocess_state`): counts are set for scheduled rows alone",
            Standing.RELEASE,
        ),
        "v1": Value(
            faults.RunnerV1,
            "As `v2`, but the accepted count of a request that is skipped for a step becomes 1, in `all` mode too.",
            "vLLM's model runner v1 (gpu_input_batch, `add_request`): a request that a batch leaves out is added anew",
            Standing.RELEASE,
        ),
        "unshifted": Value(
            faults.Unshifted,
            "As `v2`, but a copy of the state after an accepted draft takes the convolution's inputs of the column "
            "before any.",
            "the control",
            Standing.FAULT,
        ),
        "contiguous-view": Value(
            faults.ContiguousView,
            "As `v2`, but in a step of prefills alone, with drafts, row r reads and writes entry r of the rows' "
            "running columns and the K behind each, row by row.",
            "vLLM issue 55357",
            Standing.FAULT,
        ),
        "stale-on-reset": Value(
            faults.StaleOnReset,
            "As `v2`, but the worker is not told of requests that a reset put back: one goes on with the column "
            "that it had before.",
            "before PR 35157",
            Standing.FAULT,
        ),
        "row-indexed": Value(
            faults.RowIndexed,
            "As `v2`, but counts lie in the rows of the batch and do not move when it is condensed.",
            "vLLM issues 51571, 53919",
            Standing.FAULT,
        ),
        "one-too-many": Value(
            faults.OneTooMany,
            "As `v2`, but a count is one too high after a verification.",
            "vLLM issue 50021",
            Standing.FAULT,
        ),
        "never-rolled-back": Value(
            faults.NeverRolledBack,
            "As `v2`, but the count is always K + 1: rejected drafts stay in the state.",
            "mlx-lm issue 1109",
            Standing.FAULT,
        ),
        "shared-count": Value(
            faults.SharedCount,
            "As `v2`, but one count serves all groups in `align` mode: the first group's copy makes it 1 for the next.",
            "vLLM issues 50432, 50729",
            Standing.FAULT,
        ),
        "padded-as-prefill": Value(
            faults.PaddedAsPrefill,
            "As `v2`, but a row padded with placeholders runs as a prefill and keeps the state behind them.",
            "before vLLM PR 55178",
            Standing.FAULT,
        ),
        "no-backward-copy": Value(
            faults.NoBackwardCopy,
            "As `v2`, but a passed boundary is not saved into a column before the running one.",
            "proposed in vLLM issue 53505",
            Standing.FAULT,
        ),
        "copies-ahead": Value(
            faults.CopiesAhead,
            "As `v2`, but copies of shared pages do not wait for the steps in flight.",
            "SGLang issue 24221",
            Standing.FAULT,
        ),
        "untracked-in-mixed": Value(
            faults.UntrackedInMixed,
            "As `v2`, but in `all` mode a prefill beside decodes leaves no state at its boundaries.",
            "SGLang issue 39342",
            Standing.FAULT,
        ),
        "first-column": Value(
            faults.FirstColumn,
            "As `v2`, but in `align` mode a row works in the first column of its table, even if that is the null "
            "block.",
            "vLLM issue 33937",
            Standing.FAULT,
        ),
        "unzeroed": Value(
            faults.Unzeroed,
            "As `v2`, but a request that starts from nothing reads what its slot holds, in `all` mode too.",
            "vLLM issue 56524",
            Standing.FAULT,
        ),
        "shifted-in-place": Value(
            faults.ShiftedInPlace,
            "As `v2`, but a shift of the convolution's inputs within one slot moves the last input first, so that "
            "each reads what the one behind it has left.",
            "vLLM issues 50729, 50432",
            Standing.FAULT,
        ),
        "short-chunk-into-source": Value(
            faults.ShortChunkIntoSource,
            "As `v2`, but the first chunk of a restored request, if it has fewer than 3 tokens, leaves the "
            "convolution's inputs in the slot that it was restored from.",
            "vLLM issue 56196",
            Standing.FAULT,
        ),
        "stale-look-ahead": Value(
            faults.StaleLookAhead,
            "As `v2`, but a prefill that ends with a block writes the last of its drafter's states into the first "
            "column that it has not been given, whatever an earlier request left there.",
            "vLLM issue 57605",
            Standing.FAULT,
        ),
    },
)
