"""Drawing: world ``index`` of a seed, the same everywhere.

Blocks, pools and prompts are small, and prompts begin alike, so that most worlds hit, and many preempt and evict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from random_worlds.world import World
from stateat.sim.events import Group
from stateat.sim.options import LOOK_AHEAD_METHODS, METHODS, Options, Speculative, spread
from stateat.sim.workload import Arrival

T = TypeVar("T")


def world(seed: int, index: int) -> World:
    """The world of this number; :func:`random_worlds.keys.under` puts it under a preset."""
    return _Drawing(np.random.default_rng([seed, index])).world()


@dataclass(frozen=True)
class _Drawing:
    rng: np.random.Generator

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def whole(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, max(least, most) + 1))

    def one(self, values: Sequence[T]) -> T:
        return values[self.whole(0, len(values) - 1)]

    def world(self) -> World:
        speculative = self.speculative() if self.chance(0.6) else Speculative()
        unit = self.one([1, 2, 2, 3, 4, 4, 8, 16])
        ranks = self.one([2, 2, 4]) if self.chance(0.09) else 1
        drawn = self.groups(unit, speculative, windows=ranks == 1 or self.chance(0.1))
        groups = tuple(replace(g, block_size=g.block_size * ranks) if spread(g) else g for g in drawn)
        widest = max(group.block_size for group in groups)
        arrivals = self.arrivals(widest, speculative)
        speculative = self.with_connector(speculative, arrivals)
        options = replace(self.options(groups, unit, speculative, arrivals), decode_context_parallel_size=ranks)
        if self.chance(0.2):
            options, arrivals = self.encoded(options, arrivals)
        options = self.in_flight(options)
        budgets: tuple[int, ...] = ()
        if self.chance(0.2):
            budgets = tuple(self.whole(0, options.max_num_batched_tokens) for _ in range(self.whole(1, 4)))
        resets: tuple[int, ...] = ()
        if self.chance(0.25):
            resets = tuple(sorted({self.whole(1, self.one([12, 40])) for _ in range(self.whole(1, 3))}))
        return World(options, arrivals, budgets, resets, bool(resets) and self.chance(0.6))

    # Configuration.

    def speculative(self) -> Speculative:
        method, drafts = self.one([*METHODS, *LOOK_AHEAD_METHODS]), self.one([1, 1, 2, 2, 3, 3, 4, 6, 8])
        ahead = method in LOOK_AHEAD_METHODS
        # A suffix drafter is always asked for K.
        ranges = self.ranges(drafts) if method != "suffix" and self.chance(0.13) else None
        return Speculative(
            method,
            drafts,
            self.accepted(drafts),
            num_speculative_tokens_per_batch_size=ranges,
            proposed_drafts=self.accepted(drafts) if self.chance(0.1 if ahead else 0.5) else None,
            draft_slots=self.one([0, 0, 1, 2]) if method == "ngram" or self.chance(0.2) else 0,
            multi_module=method == "mtp" and self.chance(0.6),
            block_drop=not ahead or self.chance(0.7),
            hash_lookahead=not ahead or self.chance(0.7),
        )

    def ranges(self, drafts: int) -> tuple[tuple[int, int, int], ...]:
        """Drafts by the requests of a step."""
        first = self.whole(1, 3)
        return ((1, first, drafts), (first + 1, 256, self.whole(0, drafts)))

    def accepted(self, drafts: int) -> tuple[int, ...]:
        return tuple(self.whole(0, drafts) for _ in range(self.whole(1, 3)))

    def with_connector(self, speculative: Speculative, arrivals: Sequence[Arrival]) -> Speculative:
        """A server with a connector has no hashes that look ahead."""
        return replace(speculative, hash_lookahead=False) if any(a.external for a in arrivals) else speculative

    def groups(self, unit: int, speculative: Speculative, windows: bool) -> tuple[Group, ...]:
        wide = unit * self.one([1, 1, 2, 2, 3, 4, 8 if unit < 8 else 2])
        flags = self.one(["none", "first", "attention", "any", "any"]) if speculative.eagle else "none"
        made: list[Group] = []
        for i in range(self.one([0, 1, 1, 1, 1, 2])):
            size = self.one([unit, unit, wide, 2 * unit] if i else [unit, unit, unit, wide])
            made.append(Group(f"attention {i}", "full-attention", size))
        # No release has windows on several ranks.
        for i in range(self.one([0, 0, 0, 0, 1, 1, 2]) if windows else 0):
            size = self.one([unit, unit, wide])
            made.append(Group(f"window {i}", "full-attention", size, sliding_window=self.whole(2, 3 * wide)))
        count = self.one([0, 1, 1, 1, 1, 1, 2, 2] if made else [1, 1, 1, 2])
        modes = self.one([["align"], ["align"], ["align"], ["all"]])
        if self.chance(0.08):
            modes, count = self.one([["align", "all"], ["all", "align"]]), max(count, 2)
        for i in range(count):
            own = modes[i % len(modes)]
            # Aligned groups have one block size.
            size = self.one([unit, 2 * wide]) if own == "all" and self.chance(0.3) else wide
            made.append(Group(f"states {i}", "recurrent", size, mamba_cache_mode=own))
        if len(made) > 1 and self.chance(0.1):
            made.reverse()
        return tuple(replace(group, eagle=self.flagged(flags, i, group)) for i, group in enumerate(made))

    def flagged(self, flags: str, place: int, group: Group) -> bool:
        drawn = self.chance(0.5)
        plain = {"none": False, "first": place == 0, "attention": not group.recurrent}
        return plain.get(flags, drawn)

    def options(
        self, groups: tuple[Group, ...], unit: int, speculative: Speculative, arrivals: Sequence[Arrival]
    ) -> Options:
        sizes = [group.block_size for group in groups]
        states = [group.block_size for group in groups if group.recurrent]
        widest, drafts = max(sizes), speculative.num_speculative_tokens
        longest = max(arrival.num_prompt_tokens + arrival.max_tokens for arrival in arrivals)
        seqs = self.one([1, 2, 3, 3, 6, 16])
        taken = max(speculative.draft_slots * seqs, speculative.lookahead_tokens) if drafts else 0
        some = self.one([max(states, default=widest) // 2, max(states, default=widest), 1])
        tokens = taken + self.whole(some + drafts + 1, 6 * widest + 16)
        options = Options(
            groups,
            num_blocks=self.pool(groups, drafts, longest),
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_model_len=self.one([longest + 1, longest + drafts + 1, max(longest - 2, 2), 4096]),
            long_prefill_token_threshold=self.one([0, 0, 0, 0, widest, widest // 2 + 1, 3 * widest, 2]),
            enable_prefix_caching=not self.chance(0.09),
            partial_hits=not self.chance(0.25),
            # A group that is alone is hashed in its own blocks.
            prefix_match_unit=self.one([None, None, unit, max(unit // 2, 1)]) if len(groups) > 1 else None,
            cache_config_block_size=self.one([None, None, None, max(states), min(sizes), 3 * unit]) if states else None,
            watermark=self.one([0.0, 0.0, 0.0, 0.05, 0.2]),
            scheduler_reserve_full_isl=self.chance(0.6),
            mamba_chunk_size=self.one([0, 0, unit, 3]),
            speculative=speculative,
            clock="steps",
        )
        longest_prompt = max(arrival.num_prompt_tokens for arrival in arrivals)
        options = replace(options, max_model_len=max(options.max_model_len, longest_prompt + 1))
        return self.state_options(options, unit)

    def state_options(self, options: Options, unit: int) -> Options:
        """Options of what is kept of states and windows."""
        span = options.scheduler_block_size
        interval = self.one([0, span, 2 * span, 3 * span])
        if any(g.recurrent or g.sliding_window for g in options.groups) and self.chance(0.35):
            options = replace(options, prefix_cache_retention_interval=interval)
        aligned = options.enable_prefix_caching and any(g.aligned for g in options.groups)
        alignment = self.one([1, 1, unit, 3])
        if aligned and self.chance(0.35):
            options = replace(options, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=alignment)
        return replace(options, shared_prefix_checkpoint=self.chance(0.35))

    def pool(self, groups: Sequence[Group], drafts: int, longest: int) -> int:
        """Blocks: from little less than one request needs at most up to plenty."""
        least = sum(-(-(longest + drafts + 1) // g.block_size) + (g.recurrent and drafts + 4) for g in groups) + 2
        least += sum(drafts for g in groups if g.recurrent and not g.aligned)
        least = max(least, len(groups) + drafts + 1)
        scarce = max(3 * least // 4, len(groups) + drafts + 1)
        return self.one([scarce, least, least + 2, least + 5, 3 * least // 2, 2 * least, 8 * least, 10_000])

    def in_flight(self, options: Options) -> Options:
        """Steps in flight: asynchronous, or the stages of a pipeline."""
        asynchronous, stages = self.chance(0.4), self.one([2, 2, 3, 4])
        if asynchronous:
            stages = stages if self.chance(0.2) else 1
        elif options.speculative.num_speculative_tokens or self.chance(0.8):
            # No release hands drafts over in time to a pipeline that is not asynchronous.
            stages = 1
        return replace(
            options,
            async_scheduling=asynchronous,
            max_concurrent_batches=stages,
            kv_consumer=self.chance(0.1),
            speculative=self.beside(options.speculative) if asynchronous else options.speculative,
        )

    def beside(self, speculative: Speculative) -> Speculative:
        """A drafter that runs beside asynchronous steps."""
        looked_up = speculative.method in ("ngram", "suffix") and not speculative.draft_slots
        return replace(speculative, method="ngram_gpu") if looked_up and self.chance(0.9) else speculative

    # Requests.

    def arrivals(self, widest: int, speculative: Speculative) -> tuple[Arrival, ...]:
        drafts = speculative.num_speculative_tokens
        connector, gap = self.chance(0.12), self.one([0, 1, 3, 6])
        made: list[Arrival] = []
        time = 0
        for i in range(self.whole(2, 7)):
            segments = [(self.one([1, 1, 2]), self.length(widest))]
            if self.chance(0.5):
                segments.append((self.whole(3, 5), self.whole(1, 2 * widest)))
            after = None
            if i and self.chance(0.25):
                before = made[self.whole(0, i - 1)]
                after = before.id
                if self.chance(0.5) and before.num_prompt_tokens < 6 * widest + 16:
                    # The next turn of a conversation: what was said, and all or some of the answer.
                    answer = self.one([before.max_tokens, self.whole(1, before.max_tokens)])
                    segments = [*before.segments, (-1 - before.index, answer), *segments[1:]]
            prompt = sum(length for _, length in segments)
            taken_away = self.whole(1, 25)
            arrival = Arrival(
                f"r{i}",
                i,
                self.whole(0, 3) if after else time,
                tuple(segments),
                self.one([1, 2, 5, 12, min(2 * widest, 24)]),
                self.accepted(drafts) if drafts and self.chance(0.5) else None,
                external=self.whole(0, prompt - 1) if connector and self.chance(0.5) else 0,
                abort=time + taken_away if not after and self.chance(0.07) else None,
                after=after,
            )
            if drafts and self.chance(0.1):
                arrival = replace(arrival, proposed_drafts=self.accepted(drafts))
            if arrival.abort is not None and self.chance(0.4):
                arrival = replace(arrival, abort_late=True)
            made.append(arrival)
            time += self.whole(0, gap)
        return tuple(made)

    def length(self, widest: int) -> int:
        blocks = self.whole(1, 5)
        return self.one([blocks * widest, self.whole(1, 5 * widest + 3), max(blocks * widest + self.one([1, -1]), 1)])

    # Items that an encoder computes.

    def encoded(self, options: Options, arrivals: tuple[Arrival, ...]) -> tuple[Options, tuple[Arrival, ...]]:
        """Items in the prompts, and room for little more than one of them."""
        # Together, with outputs that a replay has: whoever is put back and encodes again is then in somebody's way.
        if self.chance(0.5):
            arrivals = tuple(replace(a, time=a.time // 8, max_tokens=max(a.max_tokens, 7)) for a in arrivals)
            longest = max(a.num_prompt_tokens + a.max_tokens for a in arrivals)
            options = replace(options, max_model_len=max(options.max_model_len, longest + 1))
        arrivals = self.with_items(arrivals)
        largest = max((length for a in arrivals for _, length in a.encoder), default=20)
        tokens = max(
            options.max_num_batched_tokens, self.one([options.max_num_batched_tokens, 4 * options.max_model_len])
        )
        return replace(
            options,
            max_num_batched_tokens=min(tokens, 2000),
            encoder_cache_size=self.room(largest),
            max_num_encoder_input_tokens=self.room(largest),
            disable_chunked_mm_input=self.chance(0.6),
        ), arrivals

    def room(self, largest: int) -> int:
        return self.one([self.whole(largest, largest + 3), self.whole(largest, 2 * largest), self.whole(20, 90)])

    def with_items(self, arrivals: Sequence[Arrival]) -> tuple[Arrival, ...]:
        """The same text has the same items, and all of each, or a request has its own."""
        texts: dict[int, list[tuple[int, int]]] = {}
        made = []
        for arrival in arrivals:
            segments: list[tuple[int, int]] = []
            spans: list[tuple[int, int]] = []
            before = 0
            for seed, length in arrival.segments:
                items = texts.setdefault(seed, self.items(10_000) if seed >= 0 else [])
                cut = [start for start, size in items if start < length < start + size]
                kept = min([length, *cut])
                spans += [(before + start, size) for start, size in items if start + size <= kept]
                if kept:
                    segments.append((seed, kept))
                before += kept
            segments = segments or [arrival.segments[0]]
            prompt = sum(size for _, size in segments)
            if not spans or self.chance(0.3):
                spans = self.items(prompt)
            spans = [span for span in spans if sum(span) <= prompt]
            external = min(arrival.external, prompt - 1)
            made.append(replace(arrival, segments=tuple(segments), encoder=tuple(spans), external=external))
        return tuple(made)

    def items(self, room: int) -> list[tuple[int, int]]:
        at, made = 0, []
        for _ in range(self.whole(1, 5)):
            at += self.one([0, 0, 1, 2, 7, 30])
            size = self.whole(1, self.one([8, 40]))
            if at + size <= room:
                made.append((at, size))
            at += size
        return made
