"""Random servers over every option that a release can express, to hold a preset against its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from stateat.sim.cache.drafter_drop import DRAFTER_DROP
from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group
from stateat.sim.options import METHODS, Options, Speculative
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

UNSAID = frozenset(
    {"preset", "rules", "offload", "decode_context_parallel_size", "max_concurrent_batches", "num_state_blocks"}
    | {"group_retention_intervals", "group_times_to_live"}
)
"""Options that no live release is asked with (:mod:`stateat.sim.adapters.vllm`): what a server draws of them is
nothing."""
INERT = frozenset({"initial_block_size", "costs", "clock", "acceptance_rate"})
"""Options that decide nothing under a preset's own rules, or only when steps begin and which drafts are right."""


@dataclass(frozen=True)
class Server:
    """A configuration, and what is done to it."""

    options: Options
    arrivals: tuple[Arrival, ...]
    budgets: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()
    reset_running: bool = False

    def facts(self, make: Make | None = None) -> dict[str, Any]:
        """What comes of it, on the reference engine or on the one that ``make`` makes."""
        decisions = Decisions()
        outcome = drive(
            self.options,
            self.arrivals,
            self.budgets,
            observers=[decisions],
            fast_forward=make is None,
            make=make,
            resets=self.resets,
            reset_running=self.reset_running,
        )
        told = ("scheduled", "hits", "preempted", "refused", "claims", "copies", "finished")
        return {
            "livelock": outcome.livelock,
            **{name: getattr(decisions, name) for name in told},
            "evicted": {step: gone for step in range(outcome.steps + 1) if (gone := decisions.evictions(step))},
            **{name: getattr(outcome, name) for name in ("digest", "poisoned", "wrong_reads", "deferred")},
            "free_blocks": outcome.free_blocks,
        }


@st.composite
def servers(draw: st.DrawFn, preset: str) -> Server:
    """A server of a preset's release: what the release lacks is not drawn."""
    known = PRESETS[preset]
    if draw(st.booleans()):
        speculative = _speculative(draw, known)
    else:
        speculative = Speculative()
    drafts = speculative.num_speculative_tokens
    unit = draw(st.sampled_from([2, 4, 8]))
    groups = _groups(draw, known, unit, speculative)
    sizes = [g.block_size for g in groups]
    states = [g.block_size for g in groups if g.recurrent]
    widest = max(sizes)
    arrivals = tuple(_arrivals(draw, widest, drafts))
    longest = max(a.num_prompt_tokens + a.max_tokens for a in arrivals)
    # What one request needs at most: its tokens, in a recurrent group 2 + K states, a checkpoint and a copy.
    least = sum(-(-(longest + drafts + 1) // g.block_size) + (g.recurrent and drafts + 4) for g in groups) + 2
    least += sum(drafts for g in groups if g.recurrent and not g.aligned)
    scarce = max(least // 2, len(groups) + drafts + 1)
    options = Options(
        tuple(groups),
        preset=preset,
        num_blocks=draw(st.sampled_from([scarce, least, least + 5, 2 * least, 8 * least])),
        max_num_batched_tokens=draw(st.integers(max(states, default=widest) // 2 + drafts + 2, 6 * widest + 16)),
        max_num_seqs=draw(st.sampled_from([1, 2, 3, 6, 16])),
        max_model_len=draw(st.sampled_from([longest + 1, longest + drafts + 1, 4096])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 0, widest, widest // 2 + 1, 3 * widest])),
        enable_prefix_caching=draw(st.integers(0, 9)) > 0,
        partial_hits=draw(st.booleans()),
        # A group that is alone is hashed in its own blocks.
        prefix_match_unit=draw(st.sampled_from([None, None, unit, max(unit // 2, 1)])) if len(groups) > 1 else None,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.05, 0.2])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        mamba_chunk_size=draw(st.sampled_from([0, 0, unit, 3])),
        disable_chunked_mm_input=draw(st.booleans()),
        speculative=speculative,
        clock="steps",
    )
    if states:
        grid = draw(st.sampled_from([None, None, None, max(states), min(sizes)]))
        options = replace(options, cache_config_block_size=grid)
    if known["retention"] != "dense" and (states or any(g.sliding_window for g in groups)) and draw(st.booleans()):
        span = options.scheduler_block_size
        options = replace(options, prefix_cache_retention_interval=draw(st.sampled_from([0, span, 2 * span, 3 * span])))
    caching = options.enable_prefix_caching
    if known["checkpoint"] != "none" and caching and any(g.aligned for g in groups) and draw(st.booleans()):
        options = replace(
            options,
            num_prefill_checkpoint_blocks=1,
            prefill_checkpoint_alignment=draw(st.sampled_from([1, 1, unit, 3])),
        )
    if known["junction"] == "exact":
        options = replace(options, shared_prefix_checkpoint=draw(st.booleans()))
    encoded = draw(st.integers(0, 3)) == 0
    if encoded:
        # Together, with outputs that a replay has, and room for little more than one item: whoever is put back and
        # encodes again is then in somebody's way.
        arrivals = tuple(replace(a, time=a.time // 8, max_tokens=max(a.max_tokens, 7)) for a in arrivals)
        arrivals = tuple(with_items(draw, arrivals))
        largest = max((length for a in arrivals for _, length in a.encoder), default=20)
        room = st.one_of(st.integers(largest, largest + 3), st.integers(largest, 2 * largest), st.integers(20, 90))
        wide = draw(st.sampled_from([options.max_num_batched_tokens, 4 * longest]))
        options = replace(
            options,
            max_num_batched_tokens=max(options.max_num_batched_tokens, wide),
            encoder_cache_size=draw(room),
            max_num_encoder_input_tokens=draw(room),
        )
    if DRAFTER_DROP[known["drafter_drop"]].ahead(options):
        # A server with a connector has no hashes that look ahead.
        arrivals = tuple(replace(a, external=0) for a in arrivals)
    budgets = tuple(draw(st.lists(st.integers(0, options.max_num_batched_tokens), max_size=4)))
    if encoded:
        resets = tuple(sorted(draw(st.sets(st.integers(1, 15), max_size=4))))
    else:
        resets = tuple(sorted(draw(st.sets(st.integers(1, 30), max_size=2)))) if draw(st.integers(0, 3)) == 0 else ()
    return Server(options, arrivals, budgets, resets, bool(resets) and (draw(st.integers(0, 3)) > 0))


def _speculative(draw: st.DrawFn, known: dict[str, str]) -> Speculative:
    drafts = draw(st.integers(1, 4))
    method = draw(st.sampled_from(METHODS))
    ahead = method != "ngram"
    return Speculative(
        method,
        drafts,
        tuple(draw(st.lists(st.integers(0, drafts), min_size=1, max_size=3))),
        # A drafter that looks ahead has no model of its own beside it.
        draft_slots=0 if ahead else draw(st.sampled_from([0, 0, 1, 2])),
        multi_module=method == "mtp" and known["drafter_modules"] == "one-a-draft" and draw(st.booleans()),
        block_drop=not ahead or known["drafter_drop"] == "drop" or draw(st.booleans()),
        hash_lookahead=not ahead or known["drafter_drop"] != "look-ahead-hash" or draw(st.booleans()),
    )


def _groups(draw: st.DrawFn, known: dict[str, str], unit: int, speculative: Speculative) -> list[Group]:
    """One to four groups, of which one at least is recurrent or a window mostly."""
    flagged = st.booleans() if speculative.eagle else st.just(False)
    wide = unit * draw(st.sampled_from([1, 1, 2, 4, 8]))
    groups: list[Group] = []
    for i in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2]))):
        size = draw(st.sampled_from([unit, unit, unit, wide, 2 * unit] if i else [unit, unit, unit, wide]))
        groups.append(Group(f"attention {i}", "full-attention", size, draw(flagged)))
    for i in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        size, window = draw(st.sampled_from([unit, unit, wide])), draw(st.integers(2, 3 * wide))
        groups.append(Group(f"window {i}", "full-attention", size, draw(flagged), sliding_window=window))
    # One for all groups: a server has one `--mamba-cache-mode`.
    mode = draw(st.sampled_from(["align", "align", "all"])) if known["state_writes"] == "align-and-all" else "align"
    for i in range(draw(st.sampled_from([0, 1, 1, 1, 2] if groups else [1, 1, 2]))):
        groups.append(Group(f"states {i}", "recurrent", wide, draw(flagged), mode))
    return groups


def _arrivals(draw: st.DrawFn, widest: int, drafts: int) -> list[Arrival]:
    length = st.one_of(st.integers(1, 5 * widest + 3), st.integers(1, 5).map(lambda n: n * widest))
    arrivals: list[Arrival] = []
    external = draw(st.integers(0, 5)) == 0
    for i in range(draw(st.integers(2, 7))):
        segments = [(draw(st.integers(1, 2)), draw(length))]
        if draw(st.booleans()):
            segments.append((draw(st.integers(3, 5)), draw(st.integers(1, 2 * widest))))
        prompt = sum(size for _, size in segments)
        arrivals.append(
            Arrival(
                f"r{i}",
                i,
                draw(st.integers(0, 25)),
                tuple(segments),
                draw(st.sampled_from([1, 2, 7, 2 * widest])),
                tuple(draw(st.lists(st.integers(0, drafts), min_size=1, max_size=3))) if drafts else None,
                external=draw(st.integers(0, prompt)) if external and draw(st.booleans()) else 0,
                abort=draw(st.integers(26, 60)) if draw(st.integers(0, 7)) == 0 else None,
                after=f"r{draw(st.integers(0, i - 1))}" if i and draw(st.integers(0, 4)) == 0 else None,
            )
        )
    return [replace(a, abort=None) if a.after else a for a in arrivals]


GAPS = st.sampled_from([0, 0, 1, 2, 7, 30])
LENGTHS = st.one_of(st.integers(1, 8), st.integers(1, 40))


def with_items(draw: st.DrawFn, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Spans that an encoder computes; the same text has the same ones, and all of each, or a request has its own."""
    texts: dict[int, list[tuple[int, int]]] = {}
    made = []
    for arrival in arrivals:
        segments: list[tuple[int, int]] = []
        spans: list[tuple[int, int]] = []
        before = 0
        for seed, length in arrival.segments:
            if seed not in texts:
                texts[seed], at = [], 0
                for gap, size in draw(st.lists(st.tuples(GAPS, LENGTHS), max_size=5)):
                    texts[seed].append((at + gap, size))
                    at += gap + size
            cut = [start for start, size in texts[seed] if start < length < start + size]
            kept = min([length, *cut])
            spans += [(before + start, size) for start, size in texts[seed] if start + size <= kept]
            if kept:
                segments.append((seed, kept))
            before += kept
        segments = segments or [arrival.segments[0]]
        if draw(st.booleans()):
            length, at = sum(size for _, size in segments), 0
            spans = []
            for gap, size in draw(st.lists(st.tuples(GAPS, LENGTHS), max_size=5)):
                if at + gap + size <= length:
                    spans.append((at + gap, size))
                    at += gap + size
        made.append(replace(arrival, segments=tuple(segments), encoder=tuple(spans)))
    return made
