"""A request inside the engine, and what its drafter will propose and get right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stateat.sim.engine.items import items_of
from stateat.sim.options import Options, Speculative
from stateat.sim.tokens import PLACEHOLDER, VOCABULARY, Tokens
from stateat.sim.worker.state import WorkerState
from stateat.sim.worker.worker import Row
from stateat.sim.workload import Arrival
from stateat.sim.workload.streams import stream


class Proposals:
    """Proposals of one request's drafter: drafts that each has, a cycle, and how many of them are right, a cycle or
    draws from a seeded generator."""

    __slots__ = ("_draw", "_emitted", "_sizes", "vary")

    def __init__(
        self,
        speculative: Speculative,
        cycle: Sequence[int] | None,
        seed: int,
        request: str,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """``cycle``, ``sizes``: right drafts and drafts of the request's own proposals; none: the engine's."""
        rate = speculative.acceptance_rate if cycle is None else None
        drafts = speculative.num_speculative_tokens
        self._sizes = tuple(min(size, drafts) for size in sizes or speculative.proposed_drafts or (drafts,))
        self.vary = min(self._sizes) < drafts or speculative.num_speculative_tokens_per_batch_size is not None
        """True if a proposal may have fewer than K drafts."""
        self._draw = (
            _cycle(cycle or speculative.cycle, drafts)
            if rate is None
            else _drawn(rate, drafts, stream(seed, f"drafts of {request}"))
        )
        self._emitted: NDArray[np.int64] = np.zeros(1, np.int64)

    def emitted(self, proposals: int) -> NDArray[np.int64]:
        """Return in entry m the tokens that verifying m proposals of K drafts emits; at least ``proposals`` + 1
        entries."""
        have = self._emitted.size - 1
        if have < proposals:
            more = self._draw(have, max(proposals - have, have, 16))
            self._emitted = np.concatenate([self._emitted, self._emitted[-1] + np.cumsum(more + 1)])
        return self._emitted

    def size(self, proposal: int) -> int:
        """Return how many drafts the m-th proposal has, where a drafter is asked for K."""
        return self._sizes[proposal % len(self._sizes)]

    def of(self, proposal: int) -> int:
        """Return how many drafts of the m-th proposal are right."""
        emitted = self.emitted(proposal + 1)
        return min(emitted.item(proposal + 1) - emitted.item(proposal) - 1, self.size(proposal))


Draw = Callable[[int, int], NDArray[np.int64]]
"""(first, count): right drafts of the proposals from ``first`` on, asked for in order."""


def _cycle(counts: Sequence[int], num_drafts: int) -> Draw:
    cycle = np.minimum(np.array(counts, np.int64), num_drafts)
    return lambda first, count: cycle[(first + np.arange(count)) % cycle.size]


def _drawn(rate: float, num_drafts: int, rng: np.random.Generator) -> Draw:
    """Each draft is right with this probability; those after a wrong one do not count."""

    def draw(first: int, count: int) -> NDArray[np.int64]:
        right = np.cumprod(rng.random((count, num_drafts)) < rate, axis=1)
        counts: NDArray[np.int64] = right.sum(axis=1, dtype=np.int64)
        return counts

    return draw


class Request:
    """A request: what was asked, and how far it is."""

    __slots__ = (
        "_hash_list",
        "acceptance",
        "aside",
        "at",
        "computed",
        "discards",
        "drafts",
        "drops_stale",
        "eligible",
        "external",
        "furthest",
        "gone",
        "id",
        "in_flight",
        "index",
        "items",
        "junction",
        "load_error",
        "max_outputs",
        "max_tokens",
        "num_prompt",
        "order",
        "outputs",
        "placeholders",
        "prefilling",
        "proposals",
        "proposed",
        "quiet_row",
        "quiet_since",
        "sampled",
        "snapshots",
        "stale",
        "started",
        "tokens",
        "wakes",
        "worker",
    )

    def __init__(self, arrival: Arrival, options: Options, seed: int) -> None:
        self.id = arrival.id
        self.index = arrival.index
        self.num_prompt = arrival.num_prompt_tokens
        self.max_tokens = arrival.max_tokens
        self.max_outputs = max(min(arrival.max_tokens, options.max_model_len - self.num_prompt), 1)
        num_drafts = options.speculative.num_speculative_tokens
        # Steps in flight run on behind its last token.
        outputs = self.max_outputs + (num_drafts + 1) * options.batch_queue
        self.tokens = Tokens.generate(arrival.segments, arrival.index, outputs, arrival.encoder)
        self.acceptance = Proposals(
            options.speculative, arrival.accepted_drafts, seed, arrival.id, arrival.proposed_drafts
        )
        self.external = arrival.external
        self.items = items_of(arrival.encoder, self.tokens)
        """Items of the prompt that an encoder computes."""
        self.snapshots = arrival.snapshots
        self.load_error = arrival.load_error
        self._hash_list: list[bytes] | None = None
        self.outputs = 0
        """Output tokens that the scheduler has."""
        self.computed = 0
        """Tokens computed, as the scheduler counts: those of steps in flight too, all their drafts included."""
        self.in_flight = 0
        """Tokens of its rows in steps in flight."""
        self.placeholders = 0
        """Output tokens, and drafts, of steps in flight that the scheduler counts in their stead."""
        self.stale = 0
        """Tokens of steps in flight from before it was preempted."""
        self.drops_stale = False
        """Nobody hears of what those sample."""
        self.aside = False
        """A step has passed it over, for what it has in flight."""
        self.discards = 0
        """Outputs to come that are discarded (vLLM 0.26)."""
        self.eligible = 0
        """First step in which it may decode again."""
        self.gone = False
        """Ended or taken away."""
        self.at = 0
        """Tokens computed, as the worker counts: what was rejected does not count."""
        self.sampled = 0
        """Output tokens that the worker has."""
        self.furthest = 0
        """Most tokens that it had ever computed, preemptions or not."""
        self.drafts = 0
        """Drafts of the outstanding proposal."""
        self.proposals = 0
        """Proposals that the drafter made for it."""
        self.proposed = 0
        """Drafts of the proposal that the last row left that ran."""
        self.junction = 0
        self.prefilling = True
        self.started = False
        """True once the request was admitted."""
        self.order = -1
        """Place among the running, which grows with each admission; -1: it does not run."""
        self.quiet_since = -1
        """The first step that is fast-forwarded, or -1."""
        self.quiet_row: Row[Request] | None = None
        """The row that was in flight before those; None: none is, a step runs before the next one is decided."""
        self.wakes = -1
        """The first step after those that are."""
        self.worker = WorkerState(len(options.groups))
        """Memory that the worker has of the request."""

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + self.outputs

    @property
    def prefill_end(self) -> int:
        """End of the prefill, or of its replay after a preemption."""
        return max(self.num_prompt, self.num_tokens - 1)

    def hashes(self, unit: int, ahead: int = 0, every_item: bool = True) -> list[bytes]:
        """Return the chained hashes of the prefixes, one a hash unit; those past ``num_tokens`` are not to be used yet.

        ``every_item``: the block that outputs fill names all encoded items in it; else the last alone.
        """
        if self._hash_list is None:
            self._hash_list = self.tokens.block_hashes(unit, ahead)
            late = max(self.num_prompt - ahead, 0) // unit
            # Blocks from there on are hashed once there are outputs, not when the request arrives.
            if not every_item and sum(item.end > late * unit for item in self.items) > 1:
                # Nobody whose prompt has these tokens finds it, or what is chained to it.
                self._hash_list[late:] = [blake2b(key, digest_size=16).digest() for key in self._hash_list[late:]]
        return self._hash_list

    def draft_ids(self, position: int, right: int, count: int) -> list[int]:
        """Return the ids of ``count`` drafts for ``position`` and on: ``right`` that are right, then wrong ones."""
        ids: list[int] = self.tokens.ids[position : position + count].tolist()
        # A release that loses count of outputs runs on behind all that there are.
        ids += [0] * (count - len(ids))
        for j in range(right, count):
            ids[j] = (ids[j] + 1) % VOCABULARY
        return ids

    def reset(self, told: bool = True) -> None:
        """Forget what is computed: after a preemption, of which the worker is ``told``, or is not."""
        self.computed = 0
        self.prefilling = True
        self.drafts = 0
        self.order = -1
        self.worker = self.worker.emptied(told)

    def resume(self, start: int) -> None:
        """Hand the worker what the scheduler has of it, with ``start`` tokens computed."""
        self.at = start
        self.sampled = self.outputs

    # Views of the worker's memory, for the cache.

    @property
    def pages(self) -> list[list[int]]:
        """Block tables as the worker has them, by group: append-only."""
        return self.worker.pages

    def appended(self, group: int, blocks: list[int], table: list[int]) -> None:
        """Hand the worker more of a recurrent group's table."""
        self.worker.appended(group, blocks, table)

    def state_slot(self, group: int) -> int:
        """Return the slot in which the worker has the last accepted token's state; -1: none."""
        return self.worker.slot(group)


def placeholders(count: int) -> list[int]:
    """Return draft ids that stand for nothing."""
    return [PLACEHOLDER] * count
