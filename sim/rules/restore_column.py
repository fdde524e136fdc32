"""The restore column: the column of its block table from which the worker takes a restored request's state."""

from __future__ import annotations

from collections.abc import Callable

from stateat.sim.options import Options
from stateat.sim.rules.answers import number
from stateat.sim.rules.record import Argument, Rule, Signature, Standing, Value

RestoreColumn = Callable[[int, int, int], int]
"""(computed tokens, tokens of the group's block, tokens of the block size in the configuration) -> column."""


def state_block_column(computed: int, state_block: int, config_block: int) -> int:
    """The column that holds state@computed, in the recurrent group's blocks (vLLM's runner v1; v2 from 0.32 on)."""
    return (computed - 1) // state_block


def scheduler_block_column(computed: int, state_block: int, config_block: int) -> int:
    """The column counted in ``cache_config.block_size``, the smallest block of any group.

    vLLM issue 53142; runner v2 to 0.31.
    """
    return (computed - 1) // config_block


def stale_config_column(computed: int, state_block: int, config_block: int) -> int:
    """The column counted in ``cache_config.block_size`` as a constructor read it before the engine had resolved it
    (wtdcode/vllm-backport issue 77)."""
    return (computed - 1) // config_block


def fresh_slot_column(computed: int, state_block: int, config_block: int) -> int:
    """No column: the kernel is told that there is a state, and reads the slot that it was given.

    tpu-inference issue 3412.
    """
    return -1


READS: dict[RestoreColumn, Callable[[Options, int], int]] = {
    scheduler_block_column: lambda options, grid: options.cache_config_block_size or grid,
    stale_config_column: lambda options, grid: options.initial_block_size,
}
"""Tokens that rules which do not count in state blocks find in the configuration, given the split's grid."""


def config_block(rule: RestoreColumn, options: Options, grid: int) -> int:
    """Return the tokens of the block that a rule finds as ``cache_config.block_size``, by default the split's grid."""
    return READS.get(rule, READS[scheduler_block_column])(options, grid)


def divisor(rule: RestoreColumn, options: Options, grid: int) -> int | None:
    """Return the tokens of the block in which a rule counts columns; None: each group's own, or (a plug-in) unknown."""
    return config_block(rule, options, grid) if rule in READS else None


RESTORE_COLUMN: Rule[RestoreColumn] = Rule(
    "From which column of its block table does a restored request read its state, in `align` mode?",
    {
        "state-block": Value(
            state_block_column,
            "From column (computed - 1) // recurrent block, which holds it.",
            "runner v1 (mamba_utils, `preprocess_mamba`); v2 from 0.32 on",
        ),
        "scheduler-block": Value(
            scheduler_block_column,
            "From column (computed - 1) // `cache_config_block_size` (by default what the split aligns to).",
            "runner v2 to 0.31 (mamba_hybrid, `add_request`); vLLM issue 53142",
        ),
        "stale-config": Value(
            stale_config_column,
            "From column (computed - 1) // `initial_block_size`, which a constructor read before it was resolved.",
            "wtdcode/vllm-backport issue 77",
            Standing.FAULT,
        ),
        "fresh-slot": Value(
            fresh_slot_column,
            "From none: the request reads the slot that it was given.",
            "tpu-inference issue 3412",
            Standing.FAULT,
        ),
    },
    signature=Signature(
        (
            Argument("computed", "int", "tokens that the request has computed or hit"),
            Argument("state_block", "int", "tokens of a block of the group"),
            Argument("config_block", "int", "`cache_config_block_size`, or the grid where that is not given: tokens"),
        ),
        "a column",
        number,
        "an index into the request's block table of the group; outside the table it reads no state of the request's",
    ),
)
