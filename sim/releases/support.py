"""What a release has: options that its rules do not know are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateat.sim.cache.drafter_drop import GUARDS
from stateat.sim.options import Options
from stateat.sim.rules.wide_block import WIDE_BLOCKS

Lack = tuple[tuple[str | int, ...], str]
"""The key in ``engine``, and what was found and is allowed."""


def lacks(options: Options, table: Mapping[str, str]) -> Iterator[Lack]:
    """The options that this table of rule values gives no meaning to."""
    s = options.speculative

    def lack(key: tuple[str | int, ...], found: object, allowed: str, rule: str) -> Lack:
        return key, f"found {found}, allowed {allowed}: {options.preset} has no such thing (rule {rule}={table[rule]})"

    if options.num_prefill_checkpoint_blocks and table["checkpoint"] == "none":
        yield lack(("num_prefill_checkpoint_blocks",), options.num_prefill_checkpoint_blocks, "0", "checkpoint")
    if options.prefix_cache_retention_interval is not None and table["retention"] == "dense":
        yield lack(("prefix_cache_retention_interval",), options.prefix_cache_retention_interval, "none", "retention")
    if options.shared_prefix_checkpoint and table["junction"] == "block-floored":
        yield lack(("shared_prefix_checkpoint",), "true", "false", "junction")
    guard = GUARDS[table["drafter_guard"]]
    if not s.block_drop and guard.drops and not guard.optional:
        yield lack(("speculative", "block_drop"), "false", "true", "drafter_guard")
    if s.multi_module and table["modules"] == "one":
        yield lack(("speculative", "multi_module"), "true", "false", "modules")
    elif s.multi_module and s.method != "mtp":
        yield (
            ("speculative", "multi_module"),
            f"found true, allowed false with method {s.method}: mtp alone has modules",
        )
    yield from _too_wide(options, table)
    for i, group in enumerate(options.groups):
        if group.recurrent and not group.aligned and table["kernel"] == "align":
            yield lack(("groups", i, "mamba_cache_mode"), group.mamba_cache_mode, "align", "kernel")
    aligned = [(i, group) for i, group in enumerate(options.groups) if group.aligned]
    for i, group in aligned if table["state_blocks"] == "one" else ():
        first = aligned[0][1]
        if group.block_size != first.block_size:
            yield (
                ("groups", i, "block_size"),
                f"found {group.block_size} in group {group.name!r} beside {first.block_size} in {first.name!r}, "
                "allowed one block size for all recurrent groups in align mode (rule state_blocks=one; "
                "state_blocks=any runs it)",
            )


def _too_wide(options: Options, table: Mapping[str, str]) -> Iterator[Lack]:
    """Limits of a chunk below a recurrent block, where that is refused (vLLM to 0.26)."""
    blocks = [options.groups[i].block_size for i in options.recurrent if options.groups[i].aligned]
    wide = WIDE_BLOCKS[table["wide_block"]]
    if not (blocks and wide.rejects):
        return
    block, why = max(blocks), "the recurrent block (rule wide_block=reject)"
    if options.max_num_batched_tokens < block:
        found = f"found {options.max_num_batched_tokens}, allowed at least {block}: {why}"
        yield ("max_num_batched_tokens",), found
    threshold = options.long_prefill_token_threshold
    if 0 < threshold < block:
        yield ("long_prefill_token_threshold",), f"found {threshold}, allowed 0 or at least {block}: {why}"
