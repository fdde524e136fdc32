"""A derived geometry as a table in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.geometry.capacity import tokens_of
from stateat.sim.geometry.derive import Geometry
from stateat.sim.printable import one_line, plural
from stateat.sim.report.terminal.lines import print_trimmed


def to_json(geometry: Geometry, shortest: int | None, hash_unit: int, warnings: Sequence[str]) -> dict[str, Any]:
    """Sizes in tokens and bytes, of one layer on one rank unless a name says otherwise."""
    model, serving, longest = geometry.model, geometry.serving, geometry.max_model_len
    cached = geometry.mode != "none"
    return {
        "model": model.name,
        "family": model.family,
        "preset": serving.preset,
        "tensor_parallel_size": serving.tensor_parallel_size,
        "num_speculative_tokens": serving.num_speculative_tokens,
        "mamba_cache_mode": geometry.mode,
        "kv_cache_dtype": geometry.kv_dtype,
        "mamba_cache_dtype": geometry.conv_dtype,
        "mamba_ssm_cache_dtype": geometry.state_dtype,
        "block_size": geometry.block_size,
        "mamba_block_size": geometry.mamba_block_size,
        "granularity": geometry.granularity,
        "token_bytes": geometry.token_bytes,
        "conv_bytes": geometry.conv_bytes,
        "recurrent_bytes": geometry.recurrent_bytes,
        "state_bytes": geometry.state_bytes,
        "page_bytes": geometry.page_bytes,
        "padding": geometry.padding,
        "padding_percent": round(geometry.padding_percent, 2),
        "attention_groups": geometry.attention_groups,
        "recurrent_groups": geometry.recurrent_groups,
        "layers_per_group": geometry.layers_per_group,
        "block_bytes": geometry.block_bytes,
        "num_blocks": geometry.num_blocks,
        "kv_cache_size_tokens": None if geometry.num_blocks is None else tokens_of(geometry, geometry.num_blocks),
        "hash_unit": hash_unit if cached else None,
        "minimum_cacheable_prefix": shortest if cached else None,
        "max_model_len": longest,
        "request": {
            "tokens": longest,
            "state_blocks": geometry.state_blocks(longest),
            "state_bytes": geometry.state_blocks(longest) * geometry.block_bytes,
            "attention_blocks": geometry.attention_blocks(longest),
            "attention_bytes": geometry.attention_blocks(longest) * geometry.block_bytes,
        },
        "warnings": list(warnings),
    }


def print_geometry(
    geometry: Geometry, shortest: int | None, hash_unit: int, warnings: Sequence[str], console: Console
) -> None:
    """The sizes, where each comes from, and what to know of them."""
    console.print(Text(one_line(_title(geometry)), style="bold"), soft_wrap=True)
    rows = list(_rows(geometry, shortest, hash_unit))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True, width=max(len(label) for label, _, _ in rows))
    table.add_column("", justify="right", no_wrap=True, width=max(len(value) for _, value, _ in rows))
    table.add_column("", overflow="fold")
    for label, value, source in rows:
        style = "bold" if label == "block size" else ""
        table.add_row(label, Text(value, style=style), Text(source, style="dim"))
    print_trimmed(table, console)
    for text in warnings:
        console.print(Text(f"warning: {one_line(text)}", style="yellow"), soft_wrap=True)


def _title(geometry: Geometry) -> str:
    serving = geometry.serving
    drafts = plural(serving.num_speculative_tokens, "draft token")
    return (
        f"{geometry.model.name} ({geometry.model.family}) on {serving.preset}, TP {serving.tensor_parallel_size}, "
        f"{drafts}, mode {geometry.mode}"
    )


def _rows(geometry: Geometry, shortest: int | None, hash_unit: int) -> Iterator[tuple[str, str, str]]:
    g = geometry
    inputs = "latent vector" if g.model.attention.latent else "keys and values"
    yield "conv bytes", f"{g.conv_bytes:,}", g.conv_dtype
    if g.recurrent_bytes:
        yield "recurrent bytes", f"{g.recurrent_bytes:,}", g.state_dtype
    yield "state bytes", f"{g.state_bytes:,}", "both, of a layer on a rank"
    yield "token bytes", f"{g.token_bytes:,}", f"{g.kv_dtype}, {inputs} of a layer on a rank"
    yield "block size", f"{g.block_size:,}", f"tokens, the first multiple of {g.granularity} that fits"
    yield "page bytes", f"{g.page_bytes:,}", f"{g.padding:,} ({g.padding_percent:.2f} %) pad the state"
    groups = f"{g.attention_groups} attention + {g.recurrent_groups} recurrent"
    yield "block bytes", f"{g.block_bytes:,}", f"{groups} groups of {plural(g.layers_per_group, 'layer')}"
    if g.num_blocks is not None:
        yield (
            "num_blocks",
            f"{g.num_blocks:,}",
            f"blocks; its log: {tokens_of(g, g.num_blocks):,} tokens",
        )
    if g.mode == "none":
        yield "cached", "never", "prefix caching is off"
    else:
        yield "hash unit", f"{hash_unit:,}", "tokens"
        if shortest is not None:
            yield "shortest prompt", f"{shortest:,}", "tokens, of which an exact repeat can hit"
    blocks, longest = g.state_blocks(g.max_model_len), g.max_model_len
    upto = f", at {longest:,} tokens" if g.mode == "all" else ""
    yield "states pinned", f"{blocks * g.block_bytes:,}", f"bytes a request: {plural(blocks, 'block')}{upto}"
    blocks = g.attention_blocks(longest)
    yield "attention", f"{blocks * g.block_bytes:,}", f"bytes at {longest:,} tokens: {plural(blocks, 'block')}"
