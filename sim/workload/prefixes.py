"""Prefixes that prompts have in common: models of the file, and the prompts that each gives.

A segment's seed says which text it is. Those of generated workloads and of traces come from ranges of their
own, so that texts of different origin never agree by accident (seeds are below 2**31):

====================  ==================  ==========================================
from                  to (exclusive)      text
====================  ==================  ==========================================
0                     2**30               a trace's ``hash_ids``
2**30                 3 * 2**29           the part of a prompt that is its own
3 * 2**29             7 * 2**28           nodes of a tree of shared prefixes
7 * 2**28             15 * 2**27          repeated prompts
15 * 2**27            2**31               system prompts of conversations
====================  ==================  ==========================================

Negative seeds are outputs of the request with index ``-seed - 1``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from stateat.sim.schema import Count, Length, Strict, Time
from stateat.sim.tokens import Segments, output_seed

TRACE_SEEDS = 2**30
"""Below: hash ids of traces."""
OWN_SEED = 2**30
TREE_SEED = 3 * 2**29
REPEAT_SEED = 7 * 2**28
SYSTEM_SEED = 15 * 2**27

MAX_LEAVES = 2**24


class NoPrefixes(Strict):
    """Every prompt is its own."""

    kind: Literal["none"]
    """Every prompt is its own."""


class Level(Strict):
    """One level of a tree of shared prefixes."""

    length: Length
    """Tokens that a node of this level adds to the prefix."""
    fanout: Annotated[int, Field(ge=1, le=2**20)]
    """Nodes under each node of the level above (in all, for the first level)."""


class Tree(Strict):
    """Prompts begin with a path through a tree: system prompt, tools, documents. The rest is their own."""

    kind: Literal["tree"]
    """Prompts begin with a path through a tree; the rest (at least a token) is their own."""
    levels: Annotated[list[Level], Field(min_length=1, max_length=16)]
    """Levels from the root down."""
    zipf: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Popularity of a node's children: child k (from 1) is drawn in proportion to 1 / k**zipf; 0 is uniform."""

    @model_validator(mode="after")
    def _countable(self) -> Tree:
        leaves = prod(level.fanout for level in self.levels)
        if leaves > MAX_LEAVES:
            raise ValueError(f"found {leaves} leaves, allowed at most {MAX_LEAVES}")
        return self

    @property
    def length(self) -> int:
        """Tokens of the shared prefix."""
        return sum(level.length for level in self.levels)


class MultiTurn(Strict):
    """Conversations: a turn's prompt is all that was said before, and new text."""

    kind: Literal["multi-turn"]
    """A turn's prompt is all that was said before, and new text; turn t of conversation c is request `c{c}t{t}`."""
    turns: Annotated[int, Field(ge=1, le=1000)]
    """Turns of each conversation."""
    system: Length | None = None
    """Tokens of a system prompt that all conversations begin with; none by default."""
    think_us: Time = 0
    """Microseconds (steps under `clock: steps`) from the end of a turn to the next one's arrival."""


class Repeat(Strict):
    """The same prompts again and again, in turn."""

    kind: Literal["repeat"]
    """The same prompts again and again, in turn."""
    distinct: Count
    """Different prompts."""


Prefixes = NoPrefixes | Tree | MultiTurn | Repeat


def own(index: int) -> int:
    """The seed of text that only the request with this index says."""
    return OWN_SEED + index


def tree_prompts(tree: Tree, lengths: Sequence[int], rng: np.random.Generator) -> list[Segments]:
    """A prompt for each length: a path through the tree, then text of its own (at least one token)."""
    chances = [_cumulative(level.fanout, tree.zipf) for level in tree.levels]
    draws = rng.random((len(lengths), len(tree.levels))).tolist()
    prompts = []
    for index, (length, path) in enumerate(zip(lengths, draws, strict=True)):
        shared = _path(tree, chances, path)
        prompts.append((*shared, (own(index), max(1, length - tree.length))))
    return prompts


def _cumulative(fanout: int, zipf: float) -> list[float]:
    sums = list(accumulate(1 / k**zipf for k in range(1, fanout + 1)))
    return [s / sums[-1] for s in sums]


def _path(tree: Tree, chances: Sequence[Sequence[float]], draws: Sequence[float]) -> Segments:
    """The segments of the nodes that the draws choose; nodes are numbered level by level."""
    first, node, segments = 0, 0, []
    width = 1
    for level, cumulative, u in zip(tree.levels, chances, draws, strict=True):
        node = node * level.fanout + min(bisect_right(cumulative, u), level.fanout - 1)
        width *= level.fanout
        segments.append((TREE_SEED + first + node, level.length))
        first += width
    return tuple(segments)


def repeated_prompts(repeat: Repeat, lengths: Sequence[int]) -> list[Segments]:
    """Prompt i is text i mod distinct, as long as the first that had this text."""
    n = repeat.distinct
    return [((REPEAT_SEED + i % n, lengths[i % n]),) for i in range(len(lengths))]


def conversation(multi: MultiTurn, first: int, said: Sequence[int], answers: Sequence[int]) -> list[Segments]:
    """The prompts of a conversation whose turns have the indices ``first``, ``first + 1``, ...

    ``said`` is the length of each turn's new text, ``answers`` that of its output.
    """
    history: Segments = ((SYSTEM_SEED, multi.system),) if multi.system else ()
    prompts = []
    for turn, (new, answer) in enumerate(zip(said, answers, strict=True)):
        history = (*history, (own(first + turn), new))
        prompts.append(history)
        history = (*history, (output_seed(first + turn), answer))
    return prompts
