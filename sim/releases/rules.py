"""The rules: how a release does what its options say. A preset is a table of their values.

A value is named, or given as ``module:Class`` (a plug-in: the class is called without arguments, and its instance
takes the place of a named value).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from stateat.sim.cache.connector import CONNECTORS, Connector
from stateat.sim.cache.drafter_drop import GUARDS, Guard
from stateat.sim.cache.joint import LOOKUPS
from stateat.sim.cache.lookup import Hit, Lookup
from stateat.sim.cache.skipped_states import RETIREMENTS, Retire
from stateat.sim.cache.tier import WINDOWS, TierReturn
from stateat.sim.cache.window import MASKS, WindowPublishing
from stateat.sim.errors import InputError
from stateat.sim.options import INFILL_METHODS, Options
from stateat.sim.printable import short
from stateat.sim.releases.plugins import Read, count, counts, load, number
from stateat.sim.rules.admission import ADMISSIONS, BLOCKED, Admission, Blocked
from stateat.sim.rules.boundaries import BOUNDARIES, JUNCTIONS, Boundaries, Junction
from stateat.sim.rules.checkpoint import CHECKPOINTS, Checkpoint
from stateat.sim.rules.encoder import CAPS, WHOLE_ITEMS, Cap, WholeItems
from stateat.sim.rules.in_flight import ABORTS, FREES, Abort, Free
from stateat.sim.rules.partial_hits import FINE_HITS, FineHits
from stateat.sim.rules.proposals import PROPOSALS
from stateat.sim.rules.retention import RETENTIONS, Retention
from stateat.sim.rules.split import SPLITS, Cut, Split
from stateat.sim.rules.start_column import SEEDS, Seed, seed_state_block
from stateat.sim.rules.state_writes import KERNELS, Kernel
from stateat.sim.rules.tail_copy import PARTIAL_HITS, PartialHit
from stateat.sim.rules.wide_block import WIDE_BLOCKS, WideBlock
from stateat.sim.worker.faults import WORKERS
from stateat.sim.worker.worker import Worker

__all__ = ["Seed", "seed_state_block"]
"""Known under this name too."""

Grid = Callable[[Options], int]


def grid_cache_config(options: Options) -> int:
    """``cache_config.block_size``: one number for all groups, whatever theirs is (all vLLM releases to 0.33)."""
    if options.cache_config_block_size is not None:
        return options.cache_config_block_size
    return grid_recurrent_group(options)


def grid_recurrent_group(options: Options) -> int:
    """The recurrent group's own block (vLLM PR 54076): of those, one whose states lie only where chunks end."""
    return options.state_block or options.scheduler_block_size


def grid_min_over_groups(options: Options) -> int:
    """The smallest block of any group: what the engine core makes of ``cache_config.block_size``."""
    return min(g.block_size for g in options.groups)


def grid_lcm_over_groups(options: Options) -> int:
    """The least common multiple of all blocks: states lie only where every group ends a block (sglang 34780)."""
    return options.scheduler_block_size


def draft_slots_per_seq(options: Options) -> int:
    """Slots that a drafter adds to the batch are charged for every sequence that could run (up to 0.27)."""
    return options.speculative.draft_slots * options.max_num_seqs


def draft_slots_per_scheduled(options: Options) -> int:
    """They are charged for each request that is scheduled (0.28): nothing beforehand."""
    return 0


@dataclass(frozen=True, slots=True)
class Flag:
    """A rule with two answers."""

    on: bool


@dataclass(frozen=True, slots=True)
class Running:
    """How many requests run at once."""

    fits_draft_pass: bool = False
    """Whether no more do than a drafter that fills in has rows for, in a pass with as many tokens as a batch (0.33)."""

    def most(self, options: Options) -> int:
        """That number."""
        s = options.speculative
        if not (self.fits_draft_pass and s.eagle and s.method in INFILL_METHODS):
            return options.max_num_seqs
        return max(min(options.max_num_seqs, options.max_num_batched_tokens // s.lookahead_tokens), 1)


@dataclass(frozen=True, slots=True)
class Publish:
    """When a claim is visible."""

    refuses_same_step: bool = True
    """Whether a hit on a state of the same step is refused."""
    at_commit: bool = False
    """Whether verified tokens are published when their step commits, not when the next one is scheduled (0.33)."""
    once: bool = False
    """Whether a block that is keyed at its boundary already is left alone (0.33)."""
    under_node: bool = False
    """Whether a state that a chunk leaves on the split's grid, but inside a block, is advertised under the boundary
    before it: the deepest node of the tree that its key can name (sglang 34780)."""
    hides: bool = False
    """Whether nobody finds it until the step that makes it true has committed."""


@dataclass(frozen=True, slots=True)
class Padding:
    """What a waiting request with one token left is padded with, beside decodes."""

    drops_clipped: bool
    """Whether placeholders that the split clips are dropped (0.29)."""
    waits: bool = True
    """Whether one waits where max_model_len has no room for them, or (0.29) goes on unpadded, also where there is none
    for the token that is sampled behind them."""
    alone: bool = False
    """Whether a request that continues is padded even if nothing runs beside it (0.32)."""


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """What a request does whose states do not arrive from a tier or a connector."""

    ignored: bool = False
    """Whether it goes on as if they had, and its blocks are published (SGLang 30986)."""
    retries: bool = False
    """Whether it takes the longest shorter prefix of which the tier has all groups, or computes it all (vLLM 50388)."""
    reports_first: bool = False
    """Whether the tokens that it skips are counted when the load is asked for, and not again when it has failed."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Which free block is handed out next: the one freed first, of those that advertise nothing the one freed last."""

    deepest: bool = False
    """Whether that is, where it is a state, the one of its group that stands for most tokens."""
    uncached_last: bool = False
    """Whether without prefix caching it is the one freed first (vLLM 0.27)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force."""

    split: Split
    """How many of the offered tokens a prefill chunk takes."""
    grid: Grid
    """Which block size the split aligns to."""
    seed: Seed
    """Which column a restored request reads."""
    lookup: Lookup
    """What the groups agree on."""
    drafter_guard: Guard
    """What a look-ahead drafter gives up of a hit."""
    fine_hits: FineHits
    """Which configurations have hits finer than a block."""
    partial_hit: PartialHit
    """What of a block that is published inside when its request, or another, writes on."""
    window: WindowPublishing
    """Which blocks of a sliding window are published."""
    boundaries: Boundaries
    """Where a prompt's reusable ends lie."""
    checkpoint: Checkpoint
    """Which states a chunk exports on its way, where blocks are reserved for them."""
    junction: Junction
    """Where a chunk stops for a shared prefix; on: exactly there, if ``shared_prefix_checkpoint``."""
    snapshots: Flag
    """Where the client asks for a state; on: what lives when a chunk has passed there is published under it."""
    retention: Retention
    """Which states stay published."""
    publish: Publish
    """When a claim is visible."""
    started: Flag
    """When a request counts as started; on: once scheduled, else once it was given a block."""
    threshold: Flag
    """When ``long_prefill_token_threshold`` applies; on: only beside other requests."""
    wide_block: WideBlock
    """What of a chunk that cannot fill a block."""
    retire: Retire
    """When a request lets go of a state."""
    padding: Padding
    """What a waiting request with one token left is padded with."""
    draft_slots: Callable[[Options], int]
    """What a drafter takes off the budget."""
    running: Running
    """How many requests run at once."""
    modules: Flag
    """How a multi-token predictor drafts; on: a module of its own for each draft is known."""
    kernel: Kernel
    """Which states a chunk leaves, and which cache modes the recurrent kernels have."""
    worker: type[Worker]
    """What a worker keeps of a request between its steps."""
    state_slots: Flag
    """What a recurrent group reserves blocks for; on: the tokens that a drafter looks ahead, too."""
    offload: TierReturn
    """How many tokens a tier below the pool may return."""
    connector: Connector
    """What a connector takes for a state, and how the hits of several groups come together."""
    load_failure: LoadFailure
    """What of tokens whose load failed."""
    admission: Admission
    """What of a request that can never fit."""
    blocked: Blocked
    """What of those behind a waiting request that gets nothing."""
    encoder: Cap
    """Where a chunk stops before an item that cannot be encoded now."""
    state_blocks: Flag
    """Whether recurrent groups in align mode may differ in their blocks; on: they may."""
    whole_items: WholeItems
    """What ``disable_chunked_mm_input`` holds back."""
    item_hash: Flag
    """Which encoded items the hash of a block names that a prompt's end and outputs fill; on: each in it."""
    abort: Abort
    """What becomes of the steps in flight of a request that is taken away."""
    free: Free
    """When blocks that steps in flight may use go back to the pool."""
    eviction: Eviction
    """Which free block is handed out next."""


RULES: dict[str, dict[str, object]] = {
    "split": {**SPLITS, **PROPOSALS},
    "grid": {
        "cache-config": grid_cache_config,
        "recurrent-group": grid_recurrent_group,
        "min-over-groups": grid_min_over_groups,
        "lcm-over-groups": grid_lcm_over_groups,
    },
    "seed": SEEDS,
    "lookup": dict(LOOKUPS),
    "drafter_guard": dict(GUARDS),
    "fine_hits": dict(FINE_HITS),
    "partial_hit": PARTIAL_HITS,
    "window": MASKS,
    "boundaries": dict(BOUNDARIES),
    "checkpoint": CHECKPOINTS,
    "junction": JUNCTIONS,
    "snapshots": {"not-kept": Flag(False), "kept": Flag(True)},
    "retention": RETENTIONS,
    "publish": {
        "at-schedule": Publish(),
        "at-schedule-at-once": Publish(refuses_same_step=False),
        "at-schedule-and-commit": Publish(at_commit=True, once=True),
        "at-schedule-under-node": Publish(under_node=True),
        "at-commit": Publish(refuses_same_step=False, hides=True),
    },
    "started": {"when-given-a-block": Flag(False), "when-scheduled": Flag(True)},
    "threshold": {"always": Flag(False), "beside-others": Flag(True)},
    "wide_block": dict(WIDE_BLOCKS),
    "retire": RETIREMENTS,
    "padding": {
        "kept": Padding(drops_clipped=False),
        "dropped": Padding(drops_clipped=True, waits=False),
        "dropped-and-alone": Padding(drops_clipped=True, waits=False, alone=True),
    },
    "draft_slots": {"max-num-seqs": draft_slots_per_seq, "scheduled": draft_slots_per_scheduled},
    "running": {"max-num-seqs": Running(), "fits-draft-pass": Running(fits_draft_pass=True)},
    "modules": {"one": Flag(False), "one-a-draft": Flag(True)},
    "kernel": KERNELS,
    "worker": dict(WORKERS),
    "state_slots": {"scheduled": Flag(False), "with-look-ahead": Flag(True)},
    "offload": dict(WINDOWS),
    "connector": CONNECTORS,
    "load_failure": {
        "recompute": LoadFailure(),
        "shorter-prefix": LoadFailure(retries=True),
        "ignored": LoadFailure(ignored=True),
        "reported-first": LoadFailure(reports_first=True),
    },
    "admission": ADMISSIONS,
    "blocked": BLOCKED,
    "encoder": CAPS,
    "state_blocks": {"one": Flag(False), "any": Flag(True)},
    "whole_items": WHOLE_ITEMS,
    "item_hash": {"last-if-late": Flag(False), "every": Flag(True)},
    "abort": ABORTS,
    "free": FREES,
    "eviction": {
        "lru": Eviction(),
        "lru-uncached-last": Eviction(uncached_last=True),
        "deepest-state-first": Eviction(deepest=True),
    },
}

assert tuple(RULES) == tuple(f.name for f in fields(Rules))


def _cut(answer: Any) -> int | Cut:
    """A split's: the engine says of the tokens whether they are in range."""
    if not issubclass(type(answer), Cut):
        return number(answer)
    if not issubclass(type(answer.stop), str):
        raise ValueError
    return Cut(number(answer.tokens), short(answer.stop, MAX_STOP))


def _hit(answer: Any) -> Hit:
    if not issubclass(type(answer), Hit):
        raise ValueError
    blocks = [counts(each) for each in answer.blocks]
    return Hit(count(answer.tokens), blocks, count(answer.junction), counts(answer.group_hits))


MAX_STOP = 80
"""Characters of the name that a user's split gives to a stop."""

ANSWERS: dict[str, tuple[Read, str]] = {
    "split": (_cut, "a number of tokens, or a Cut"),
    "grid": (number, "a block size"),
    "seed": (number, "a column"),
    "lookup": (_hit, "a Hit"),
    "retire": (counts, "a list of columns"),
    "draft_slots": (count, "a number of tokens"),
}
"""The rules that a user's code may stand in for, and what it may answer."""


def check(name: str, value: str) -> None:
    """Raise ValueError, with the nearest names, unless this is a rule and one of its values (or a plug-in)."""
    if name not in RULES:
        raise ValueError(f"unknown rule {name!r}{_nearest(name, RULES)}")
    if value in RULES[name]:
        return
    if name not in ANSWERS:
        raise ValueError(f"unknown value {value!r} of rule {name!r}{_nearest(value, RULES[name])}")
    if not _is_plugin(value):
        raise ValueError(f"unknown value {value!r} of rule {name!r}{_nearest(value, RULES[name])}, or module:Class")


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, n=3)
    return f": did you mean {' or '.join(close)}?" if close else "; allowed: " + ", ".join(known)


def plugins(values: Mapping[str, str]) -> list[str]:
    """Those of the values that are a user's, as ``name=module:Class``."""
    return [f"{name}={value}" for name, value in values.items() if value not in RULES.get(name, {})]


def named(name: str, value: object) -> str:
    """How a file would name this value of a rule: a class or function at the top of a module is ``module:Name``.

    A notebook's cells are the module ``__main__``. Raises InputError for what no file can name.
    """
    if isinstance(value, str):
        return value
    module, attribute = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not callable(value) or getattr(sys.modules.get(module), attribute, None) is not value:
        raise InputError(
            f"rule {name}: found {value!r}, allowed: a name, module:Name, or a class or function at the top of a module"
        )
    return f"{module}:{attribute}"


def is_code(name: str, value: str) -> bool:
    """Whether a file that says this of a rule names code to be imported."""
    return name in ANSWERS and value not in RULES[name] and _is_plugin(value)


def _is_plugin(value: str) -> bool:
    module, _, attribute = value.partition(":")
    return all(part.isidentifier() for part in module.split(".")) and attribute.isidentifier()


def resolve(values: Mapping[str, str]) -> Rules:
    """The rules of a full table of values. Raises InputError for what is unknown or cannot be loaded."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            check(name, value)
        except ValueError as error:
            raise InputError(str(error)) from None
        known = RULES[name]
        found[name] = known[value] if value in known else load(f"rule {name}={value}", value, *ANSWERS[name])
    return Rules(**found)
