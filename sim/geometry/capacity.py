"""Blocks of a server's pool: from the tokens that its log prints, or from the bytes that it was given.

A request of ``max_model_len`` tokens takes so many whole blocks of each group, all from one pool. The log multiplies
how many such requests fit at once by ``max_model_len`` (``get_kv_cache_capacity`` in ``kv_cache_utils.py``), and the
pool has as many blocks as fit into its bytes. All releases with a row in :mod:`stateat.sim.geometry.releases` do so.
"""

from __future__ import annotations

from stateat.sim.errors import InputError
from stateat.sim.geometry.layout import Geometry
from stateat.sim.options import least_blocks
from stateat.sim.schema import MAX_NUM_BLOCKS


def request_blocks(geometry: Geometry) -> int:
    """Blocks of a request of ``max_model_len`` tokens, over all groups."""
    longest = geometry.max_model_len
    return geometry.attention_blocks(longest) + geometry.state_blocks(longest)


def tokens_of(geometry: Geometry, blocks: int) -> int:
    """Tokens that the log prints of a pool of so many blocks: ``GPU KV cache size: N tokens``."""
    return int(blocks / request_blocks(geometry) * geometry.max_model_len)


def blocks_of(geometry: Geometry) -> int | None:
    """The pool's blocks, the null block among them; None where the flags do not say.

    Raises InputError for a pool smaller or larger than any scenario's, and for tokens that no pool has under these
    flags: then they are not the server's.
    """
    tokens, size = geometry.serving.kv_cache_size_tokens, geometry.serving.kv_cache_memory_bytes
    if tokens is not None and size is not None:
        raise InputError("--kv-cache-size-tokens and --kv-cache-memory-bytes: name one of them")
    groups, drafts = geometry.attention_groups + geometry.recurrent_groups, geometry.serving.num_speculative_tokens
    least = least_blocks(groups, drafts)
    if size is not None:
        if size < least * geometry.block_bytes:
            raise InputError(
                f"--kv-cache-memory-bytes: found {size}, allowed at least {least * geometry.block_bytes}, the bytes of "
                f"{least} blocks: the null block, one for each group ({groups}) and one for each draft ({drafts})"
            )
        return _within("--kv-cache-memory-bytes", size, size // geometry.block_bytes)
    return None if tokens is None else _within("--kv-cache-size-tokens", tokens, _of_tokens(geometry, tokens, least))


def _within(flag: str, found: int, blocks: int) -> int:
    if blocks > MAX_NUM_BLOCKS:
        raise InputError(f"{flag}: found {found}, a pool of {blocks} blocks, allowed at most {MAX_NUM_BLOCKS}")
    return blocks


def _of_tokens(geometry: Geometry, tokens: int, least: int) -> int:
    each, longest = request_blocks(geometry), geometry.max_model_len
    # The log's number is cut to a whole one, so the blocks are the quotient or one more.
    first = max(least, tokens * each // longest)
    near = [(blocks, tokens_of(geometry, blocks)) for blocks in (first, first + 1)]
    for blocks, said in near:
        if said == tokens:
            return blocks
    known = " or ".join(f"{said} ({blocks} blocks)" for blocks, said in near)
    smaller = ", the smallest pools" if tokens < near[0][1] and first == least else ""
    raise InputError(
        f"--kv-cache-size-tokens: found {tokens}, allowed {known}{smaller}: a request of {longest} tokens takes {each} "
        "blocks; give all flags as the server has them, and what it has without one: --preset for its release, "
        "--no-enable-prefix-caching (the default up to 0.27), --max-model-len as its log has it beside the concurrency"
    )
