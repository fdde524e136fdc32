"""Remarks on a geometry for an operator: what can never be hit, what is wasted, what a flag does not do."""

from __future__ import annotations

from collections.abc import Iterator

from stateat.sim.geometry.layout import Geometry

PADDING_PERCENT = 5.0
"""Above it, padding is worth a word."""


def remarks(geometry: Geometry, shortest: int | None, hash_unit: int) -> list[str]:
    """Warnings, the gravest first; ``shortest``: tokens of the shortest prompt of which a repeat can be hit, if
    that is known; ``hash_unit`` in tokens.
    """
    never, flags, costs = _never(geometry, shortest), _flags(geometry), _costs(geometry, shortest, hash_unit)
    return [*never, *_assumed(geometry), *flags, *costs]


def _assumed(geometry: Geometry) -> Iterator[str]:
    if keys := geometry.model.assumed:
        yield f"assumed, not in the config: {', '.join(keys)}"


def _never(geometry: Geometry, shortest: int | None) -> Iterator[str]:
    serving, block = geometry.serving, geometry.block_size
    budget, longest = serving.max_num_batched_tokens, geometry.max_model_len
    if geometry.mode == "none":
        yield "no request is ever hit: mode none is without prefix caching"
        return
    if shortest is not None and shortest > longest:
        yield f"no request is ever hit: the shortest prompt that can be is {shortest} tokens, max_model_len {longest}"
    if block > budget and geometry.mode == "align":
        if geometry.sizing.rejects_wide:
            yield f"{serving.preset} refuses to start: the block ({block}) is above max_num_batched_tokens ({budget})"
        else:
            yield (
                f"the block ({block}) is above max_num_batched_tokens ({budget}): no step fills one, so a prefill goes "
                "on inside a block and stops at its end (rule wide_block)"
            )


def _flags(geometry: Geometry) -> Iterator[str]:
    serving, row, family = geometry.serving, geometry.sizing, geometry.model.family
    if geometry.mode != "none" and not row.caches and serving.enable_prefix_caching is None:
        yield f"{serving.preset} leaves prefix caching off for hybrid models unless --enable-prefix-caching is given"
    if serving.mamba_cache_mode == "all" and geometry.mode == "align":
        yield f"{family} has no all mode: {serving.preset} falls back to align"
    if serving.mamba_cache_mode is None and geometry.mode == "all":
        yield f"{serving.preset} takes all mode for {family} unless --mamba-cache-mode align is given"
    if serving.mamba_block_size is not None and geometry.mode != "all":
        if geometry.mode == "none":
            yield "--mamba-block-size needs prefix caching: vLLM refuses it without"
        else:
            yield f"--mamba-block-size {serving.mamba_block_size} does nothing in align mode: both blocks are one size"
    if serving.num_speculative_tokens and family not in row.widened:
        yield (
            f"{serving.preset} does not widen the convolution's window of {family} by the drafts: "
            "its state is as large as without a drafter"
        )
    asked, wanted = serving.mamba_ssm_cache_dtype, geometry.model.state_dtype
    if asked not in ("auto", wanted) and wanted != "auto" and asked == geometry.state_dtype:
        yield f"the model's config wants its state in {wanted}, and --mamba-ssm-cache-dtype says {asked}"
    if asked not in ("auto", geometry.state_dtype):
        kept = geometry.state_dtype
        yield f"--mamba-ssm-cache-dtype {asked} does nothing: {serving.preset} keeps a KDA state in {kept}"


def _costs(geometry: Geometry, shortest: int | None, hash_unit: int) -> Iterator[str]:
    ranks, heads = geometry.serving.tensor_parallel_size, geometry.model.attention.kv_heads
    if ranks > heads and not geometry.model.attention.latent:
        yield (
            f"{heads} KV heads on {ranks} ranks: each is held {ranks // heads} times, so tokens stop shrinking while "
            "the state goes on, and the block with it"
        )
    if geometry.model.attention.latent and ranks > 1:
        yield f"the latent vector of a token is held on each of {ranks} ranks, the state is split over them"
    if geometry.mode != "none" and geometry.drops and shortest is not None and shortest >= 2 * geometry.block_size:
        # where hits may end inside a block, a second sender stops at what the first one shares, and a third one hits
        by = "its first repeat" if hash_unit < geometry.block_size else "a repeat, however often it comes"
        yield (
            f"the drafter looks ahead, so a hit gives up its last block: a prompt below {shortest} tokens (two blocks) "
            f"is never hit by {by}"
        )
    if geometry.padding_percent > PADDING_PERCENT:
        yield f"{geometry.padding_percent:.1f} % of a state's page is padding ({geometry.padding:,} bytes)"
