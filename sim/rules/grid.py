"""The grid: the block size to which the split aligns the ends of prefill chunks."""

from __future__ import annotations

from collections.abc import Callable

from stateat.sim.options import Options
from stateat.sim.rules.answers import number
from stateat.sim.rules.record import Argument, Rule, Signature, Standing, Value

Grid = Callable[[Options], int]
"""Options -> tokens of a block."""


def cache_config(options: Options) -> int:
    """``cache_config.block_size``: one number for all groups, whatever theirs is (all vLLM releases to 0.33)."""
    if options.cache_config_block_size is not None:
        return options.cache_config_block_size
    return recurrent_group(options)


def recurrent_group(options: Options) -> int:
    """The recurrent group's own block (vLLM PR 54076): the one of a group whose states lie only where chunks end."""
    return options.state_block or options.scheduler_block_size


def min_over_groups(options: Options) -> int:
    """The smallest block of any group: what the engine core makes of ``cache_config.block_size``."""
    return min(g.block_size for g in options.groups)


def lcm_over_groups(options: Options) -> int:
    """The least common multiple of all blocks: states lie only where every group ends a block (SGLang issue 34780)."""
    return options.scheduler_block_size


GRID: Rule[Grid] = Rule(
    "To which block size does the split align chunk ends?",
    {
        "cache-config": Value(
            cache_config, "To `cache_config_block_size`, by default the recurrent block.", "vLLM to 0.33"
        ),
        "recurrent-group": Value(recurrent_group, "To the recurrent group's own block.", "PR 54076", Standing.PROPOSAL),
        "min-over-groups": Value(
            min_over_groups,
            "To the smallest block of any group, which is what the engine core makes of `cache_config.block_size`.",
            "vLLM's engine core",
            Standing.FAULT,
        ),
        "lcm-over-groups": Value(
            lcm_over_groups,
            "To the least common multiple of the blocks that take part in prefix caching, as where a tree's page is "
            "wider than the state's grid.",
            "SGLang issue 34780",
            Standing.FAULT,
        ),
    },
    signature=Signature(
        (Argument("options", "stateat.sim.options.Options", "the engine's options"),),
        "a block size",
        number,
        "tokens of the blocks to which the split aligns, 1 or more",
    ),
)
