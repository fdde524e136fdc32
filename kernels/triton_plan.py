"""The tables of one Triton launch: which tokens, which states are wanted, and who fills which. NumPy alone.

Wants are numbered work by work, offset by offset. A *stop* is a number of tokens after which at least one request of
a block has a want; a block walks from stop to stop, so that its inner loop asks nothing. A *step* is one chunk of the
chunk form, counted from the work's own start; a want inside a chunk is a shorter step from the chunk's start, after
which the state does not move on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.work import Work

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """The tokens of all works, one after the other, and what is wanted of them."""

    tokens: I32
    """[sum of T, at least 1]: ids mod 2**32, by their bits."""
    first: I64
    """[works]: where a work's tokens begin."""
    count: I32
    """[works]"""
    want_request: I32
    """[wants]"""
    want_offset: I32
    """[wants]"""


@dataclass(frozen=True, slots=True)
class Stops:
    """The stops of blocks of requests (token by token)."""

    stop: I32
    """[stops]: tokens absorbed at a stop, increasing within a block."""
    block: I32
    """[blocks + 1]: the stops of block b are ``block[b]`` to ``block[b + 1]``."""
    slot: I32
    """[stops, requests of a block]: the want that is filled, or -1."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of each request (in chunks)."""

    step: I32
    """[steps, 4]: first token, tokens, want or -1, 1 if the state moves on."""
    request: I32
    """[works + 1]: the steps of work r are ``request[r]`` to ``request[r + 1]``."""


def ragged(works: Sequence[Work]) -> Ragged:
    """The tables that every kernel reads."""
    count = np.array([work.tokens.size for work in works], np.int64)
    tokens = np.concatenate([*(work.tokens for work in works), np.zeros(1, np.int64)])
    return Ragged(
        tokens=(tokens & 0xFFFFFFFF).astype(np.uint32).view(np.int32),
        first=np.cumsum(count) - count,
        count=count.astype(np.int32),
        want_request=np.array([r for r, work in enumerate(works) for _ in work.offsets], np.int32),
        want_offset=np.array([offset for work in works for offset in work.offsets], np.int32),
    )


def stops(plan: Ragged, width: int) -> Stops:
    """Blocks of ``width`` requests that follow one another; the last may have fewer."""
    blocks = -(-plan.count.size // width)
    # One number per (block, offset): np.unique sorts by block and then by offset.
    place = (plan.want_request // width).astype(np.int64) << 32 | plan.want_offset
    found, index = np.unique(place, return_inverse=True)
    slot = np.full((found.size, width), -1, np.int32)
    slot[index, plan.want_request % width] = np.arange(plan.want_request.size)
    return Stops(
        stop=(found & 0xFFFFFFFF).astype(np.int32),
        block=np.searchsorted(found >> 32, np.arange(blocks + 1)).astype(np.int32),
        slot=slot,
    )


def steps(works: Sequence[Work], chunk: int) -> Steps:
    """Chunks of ``chunk`` tokens, up to each work's last want."""
    rows: list[tuple[int, int, int, int]] = []
    bounds = [0]
    want = 0
    for work in works:
        start = 0
        for offset in work.offsets:
            while offset >= start + chunk:
                rows.append((start, chunk, -1, 1))
                start += chunk
            if offset == start and start:
                rows[-1] = (*rows[-1][:2], want, 1)
            else:
                rows.append((start, offset - start, want, 0))
            want += 1
        bounds.append(len(rows))
    return Steps(np.array(rows, np.int32).reshape(-1, 4), np.array(bounds, np.int32))
