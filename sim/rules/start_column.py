"""The seed: which column of its row the worker takes a restored request's state from."""

from __future__ import annotations

from collections.abc import Callable

from stateat.sim.options import Options

Seed = Callable[[int, int, int], int]
"""(computed, state block, block size found in the configuration) -> column."""


def seed_state_block(computed: int, state_block: int, config_block: int) -> int:
    """The column that holds state@computed, in the recurrent group's blocks (vLLM's runner v1; v2 from 0.32 on)."""
    return (computed - 1) // state_block


def seed_scheduler_block(computed: int, state_block: int, config_block: int) -> int:
    """Counted in ``cache_config.block_size``, the smallest block of any group (vLLM issue 53142; runner v2 to 0.29)."""
    return (computed - 1) // config_block


def seed_stale_config(computed: int, state_block: int, config_block: int) -> int:
    """Counted in ``cache_config.block_size`` as a constructor read it before the engine had resolved it
    (wtdcode/vllm-backport 77)."""
    return (computed - 1) // config_block


def seed_fresh_slot(computed: int, state_block: int, config_block: int) -> int:
    """None: the kernel is told that there is a state, and reads the slot that it was given (tpu-inference 3412)."""
    return -1


READS: dict[Seed, Callable[[Options, int], int]] = {
    seed_scheduler_block: lambda options, grid: options.cache_config_block_size or grid,
    seed_stale_config: lambda options, grid: options.initial_block_size,
}
"""What those that do not count in state blocks find in the configuration, given the split's grid."""


def config_block(seed: Seed, options: Options, grid: int) -> int:
    """The block size that a seed finds in the configuration: ``cache_config.block_size``, by default the split's."""
    return READS.get(seed, READS[seed_scheduler_block])(options, grid)


def divisor(seed: Seed, options: Options, grid: int) -> int | None:
    """The block size in which a seed counts columns; None: each group's own, or (a user's rule) unknown."""
    return config_block(seed, options, grid) if seed in READS else None


SEEDS: dict[str, object] = {
    "state-block": seed_state_block,
    "scheduler-block": seed_scheduler_block,
    "stale-config": seed_stale_config,
    "fresh-slot": seed_fresh_slot,
}
