"""Options (vLLM's names and numbers): what an engine is configured to do. How it does it is a rule."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import gcd, lcm
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic import Strict as StrictMark

from stateat.sim.events import Group
from stateat.sim.schema import (
    MAX_BLOCK_SIZE,
    MAX_NUM_BLOCKS,
    MAX_STEP_TOKENS,
    MAX_TIME,
    BlockSize,
    Count,
    Drafts,
    Length,
    Listed,
    Name,
    StrictRecord,
    WrittenAs,
    no_number,
)

INFILL_METHODS = ("dflash", "dspark")
"""Drafters that fill in all drafts at once, from the states of the tokens before them alone."""
LOOK_AHEAD_METHODS = ("mtp", "eagle", "eagle3", *INFILL_METHODS)
"""Drafters for which a hit gives something up (the drop): they look one token ahead; to 0.32 those that fill in too."""
LOOK_UP_METHODS = ("ngram", "ngram_gpu", "suffix")
"""Drafters without a model: they look drafts up in what was said before, and propose as many as they find."""
METHODS = (*LOOK_AHEAD_METHODS, *LOOK_UP_METHODS)

BatchRange = Annotated[tuple[Count, Count, Drafts], StrictMark(False)]
"""[first, last, drafts]: requests in a step, and what is drafted behind it."""


def spread(group: Group) -> bool:
    """Return True for a group whose blocks are spread over the ranks of context parallelism."""
    return not group.recurrent and group.prefix_cacheable and not group.sliding_window


GroupInterval = Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None
"""Tokens between what is retained of a group; None: all of it is."""
TimeToLive = Annotated[int, Field(ge=1, le=MAX_TIME)]
"""Microseconds, or steps under ``clock: steps``."""


@dataclass(frozen=True, slots=True)
class GroupOptions(Group, StrictRecord):
    """A KV cache group, layers that share block tables, as a file writes it: with the block of one rank."""

    name: Name
    """A name, unique among the groups; findings name the group by it."""
    kind: Literal["full-attention", "recurrent"]
    """Kind of the layers' memory; `recurrent`: Mamba, GDN, KDA and the like."""
    block_size: BlockSize
    """Tokens in a block."""
    eagle: bool = False
    """Look-ahead drafters use the group: then a drop applies to it; if no group says so, the drop applies to
    all. An exact junction (`shared_prefix_checkpoint`) needs a group that says so, or a drop."""
    mamba_cache_mode: Literal["align", "all"] = "align"
    """States that a chunk leaves; `align`: the one at its end; `all`: those at every boundary too, to 0.31.
    Neither the split nor hits finer than a block know a group in `all` mode."""
    sliding_window: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] = 0
    """Tokens that full attention reaches back to; 0: all of them. Windows are looked up in whole blocks (rule
    `partial_hits_when`). Not with an offload tier."""
    prefix_cacheable: bool = True
    """Prefix caching includes the group; false (full attention only): its blocks are a request's own scratch,
    and neither its block size nor its kind counts for what can be hit."""

    def span(self, ranks: int) -> int:
        """Tokens of a block over all ranks: full attention spreads its blocks over them."""
        return self.block_size * (ranks if spread(self) else 1)

    def over(self, ranks: int) -> Group:
        """The group as the engine has it, with the blocks of all ranks together."""
        own = {field.name: getattr(self, field.name) for field in fields(Group)}
        return Group(**(own | {"block_size": self.span(ranks)}))


@dataclass(frozen=True, slots=True)
class Speculative(StrictRecord):
    """Speculative decoding."""

    method: Literal[METHODS] = "ngram"  # type: ignore[valid-type]
    """The drafter. `mtp`, `eagle` and `eagle3` look one token ahead, so that a hit gives a block (or hash unit)
    up; so it does to 0.32 with `dflash` and `dspark`, which fill in all drafts at once. `ngram` and `suffix` look
    their drafts up in what was said before; `ngram_gpu` is `ngram` beside the model, as `async_scheduling` needs it."""
    num_speculative_tokens: Drafts = 0
    """K, the draft tokens of a proposal, and the most that it can have; 0: off."""
    accepted_drafts: Annotated[tuple[Drafts, ...], Listed(1)] | None = None
    """Entry m mod length: drafts that are right in a request's m-th proposal; none means `[0]`."""
    acceptance_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """Instead of `accepted_drafts`: each draft is right with this probability, drawn from the scenario's seed;
    those after a wrong one do not count."""
    num_speculative_tokens_per_batch_size: Annotated[tuple[BatchRange, ...], Listed(1)] | None = None
    """Ranges `[first, last, drafts]`: behind a step of so many requests so many are drafted, at most K; a gap, and
    what is past the last range, has the drafts of the range before it; none: always K."""
    proposed_drafts: Annotated[tuple[Drafts, ...], Listed(1)] | None = None
    """Entry m mod length: drafts that a request's m-th proposal has, as of `ngram` and `suffix`, which may find fewer
    than K, or none; none: always K."""
    draft_slots: Annotated[int, Field(ge=0, le=1024)] = 0
    """Slots that a drafter with a model of its own adds to the batch for each request, and takes off the budget
    (rule `draft_slots`)."""
    multi_module: bool = False
    """Each draft comes from a module of its own (`mtp` alone), which reads K tokens ahead instead of one; since
    0.29."""
    block_drop: bool = True
    """Look-ahead drafters give up the last block (or hash unit) of a hit, or hashes look ahead in their stead; an
    option since 0.30."""
    hash_lookahead: bool = True
    """Hashes cover the tokens behind their block, so that a look-ahead drafter gives up no block of a hit;
    an option of 0.33, without effect before."""

    @property
    def eagle(self) -> bool:
        return self.num_speculative_tokens > 0 and self.method in LOOK_AHEAD_METHODS

    @property
    def draft_model(self) -> bool:
        """True for a drafter with a model of its own, which `draft_slots` make of `ngram`."""
        return self.method == "ngram" and self.draft_slots > 0

    @property
    def lookahead_tokens(self) -> int:
        """Slots that attention reserves for the drafter, beyond the scheduled tokens."""
        if self.method in LOOK_UP_METHODS and not self.draft_model:
            return 0
        # It has a query for the last sampled token, beside one for each draft.
        return self.num_speculative_tokens + (self.method == "dflash" and self.num_speculative_tokens > 0)

    def drafts_behind(self, requests: int) -> int:
        """Drafts that a drafter is asked for, at most, behind a step of so many requests."""
        drafts = self.num_speculative_tokens
        for first, _, asked in sorted(self.num_speculative_tokens_per_batch_size or ()):
            if first > requests:
                break
            drafts = min(asked, self.num_speculative_tokens)
        return drafts

    @property
    def prefill_lookahead(self) -> int:
        """Tokens past a prefill chunk that the drafter reads."""
        if not self.eagle:
            return 0
        return self.num_speculative_tokens if self.multi_module and self.method == "mtp" else 1

    @property
    def cycle(self) -> tuple[int, ...]:
        """Accepted drafts of a request's proposals, over and over; no draft is accepted where nothing is said."""
        return self.accepted_drafts or (0,)


@dataclass(frozen=True, slots=True)
class Costs(StrictRecord):
    """Microseconds that a step lasts under `clock: us`: base + per_prefill_token * p + per_decode_token * d."""

    base: Annotated[int, Field(ge=0, le=10**9)] = 8000
    """Microseconds of any step."""
    per_prefill_token: Annotated[float, Field(ge=0, le=1e6)] = 20.0
    """Microseconds of each prompt token of a step."""
    per_decode_token: Annotated[float, Field(ge=0, le=1e6)] = 40.0
    """Microseconds of each decode token (drafts included) of a step."""


@dataclass(frozen=True, slots=True)
class Offload(StrictRecord):
    """A tier below the pool: CPU memory."""

    blocks: Annotated[int, Field(ge=0, le=MAX_NUM_BLOCKS)] = 0
    """Blocks that the tier keeps, of all groups together; the least recently used go first; 0: there is no tier."""


@dataclass(frozen=True, slots=True)
class Options(StrictRecord):
    """The configuration of an engine, by vLLM's names: what a file may say and what the engine takes."""

    preset: str = field(default="vllm-0.27.0", kw_only=True)
    """The release whose rules hold."""
    rules: dict[str, str] = field(default_factory=dict, kw_only=True)
    """Rules that differ from the preset's, by name; `module:Name` runs with `--allow-code` alone (docs/security.md)."""
    groups: Annotated[tuple[Annotated[Group, WrittenAs(GroupOptions)], ...], Listed(1, 64)]
    """The KV cache groups, at least one."""
    num_blocks: Annotated[int, Field(ge=1, le=MAX_NUM_BLOCKS)] = 10_000
    """Blocks in the pool that all groups share, the null block among them."""
    num_state_blocks: Annotated[int, Field(ge=0, le=MAX_NUM_BLOCKS)] = 0
    """Blocks of a pool apart for recurrent groups (SGLang's mamba pool), which number on from `num_blocks`; 0: they
    are in the one pool, as in all releases. `watermark` holds for each pool."""
    max_num_batched_tokens: Length = 8192
    """Token budget of a step."""
    max_num_seqs: Count = 128
    """Requests that run at a time."""
    max_concurrent_batches: Annotated[int, Field(ge=1, le=64)] = 1
    """Steps that are decided before the outcome of the first of them is known, the stages of a pipeline
    (docs/rules.md#steps-in-flight); at least 2 with `async_scheduling`. Over 1 without it no step is fast-forwarded."""
    async_scheduling: Annotated[Literal[True, False, "auto"], BeforeValidator(no_number)] = False
    """The step after one is decided before its tokens are known, on placeholders that its outcome corrects; `auto`: as
    a server of the release does by default with these options (docs/servers.md)."""
    max_model_len: Annotated[int, Field(ge=2, le=MAX_STEP_TOKENS)] = 266_240
    """The longest sequence; a prompt is at least one token shorter."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] = 0
    """Most tokens of one request in a step; 0: no such limit."""
    enable_prefix_caching: bool = True
    """Finished blocks can be hit."""
    partial_hits: bool = True
    """Hits may end inside a block, where the hash unit is finer than the recurrent block."""
    decode_context_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks over which full attention is spread: its blocks hold so many times more tokens, those of windows and
    states do not."""
    prefix_match_unit: BlockSize | None = None
    """The hash unit: tokens of a hash; by default the greatest common divisor of the blocks."""
    cache_config_block_size: BlockSize | None = None
    """Block of the split's grid, vLLM's `cache_config.block_size`; by default the recurrent block (of groups in
    both modes: that of the first in `align` mode)."""
    initial_block_size: BlockSize = 16
    """Value of vLLM's `--block-size`, or its default: `cache_config.block_size` until the engine resolves it (rule
    `restore_column`)."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the pool that admission keeps free."""
    scheduler_reserve_full_isl: bool = True
    """Admission wants room for the whole prompt."""
    num_prefill_checkpoint_blocks: Annotated[int, Field(ge=0, le=1)] = 0
    """Blocks for a state that a prefill chunk exports on its way; since 0.29."""
    prefill_checkpoint_alignment: BlockSize = 1
    """Tokens between the positions behind a chunk's start at which the kernel can export a state; 0.29 cuts and
    reserves without asking it, and its kernel's is 16."""
    prefix_cache_retention_interval: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Tokens between positions where recurrent states and rows of a sliding window stay published, beside those
    that a resend needs; 0: only those; none: all; 0 or none where there is neither. To 0.28 a server takes it from
    VLLM_PREFIX_CACHE_RETENTION_INTERVAL; since 0.29 its default is 0 (vLLM PR 52216)."""
    group_retention_intervals: dict[str, GroupInterval] = field(default_factory=dict)
    """The same by the name of a group, for groups of states or with a window that differ from it; no release has
    it."""
    group_times_to_live: dict[str, TimeToLive] = field(default_factory=dict)
    """Times by the name of a group: what is published of it, and has not been used for so long (microseconds, or
    steps under `clock: steps`), is withdrawn before the next step. While a request uses it, it lives. No release has
    it."""
    shared_prefix_checkpoint: bool = False
    """Chunks stop exactly where a prefix is known to be shared, inside a block too; since 0.30, which
    calls it `enable_mamba_fine_grained_prefix_cache`."""
    encoder_cache_size: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Embeddings of encoded items (images) that are kept; `max_num_batched_tokens` by default. vLLM raises it to
    the model's largest item."""
    max_num_encoder_input_tokens: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Embeddings that an encoder may make in a step; `max_num_batched_tokens` by default."""
    mamba_chunk_size: Annotated[int, Field(ge=0, le=MAX_BLOCK_SIZE)] = 0
    """Tokens of a recurrent kernel's own chunk, at whose ends it has states (`all` mode, rule `state_writes`); 0: one
    that fits the block."""
    disable_chunked_mm_input: bool = False
    """Chunks may not end inside an encoded item that they do not start in."""
    kv_consumer: bool = False
    """A KV connector is configured that loads into blocks, so that blocks which steps in flight may use are freed late
    (rule `deferred_free`); so it is, too, with an offload tier and once a request has `external` tokens."""
    offload: Offload = Offload()
    """A tier below the pool, into which full blocks are stored and from which requests are started; off by default."""
    speculative: Speculative = Speculative()
    """Speculative decoding; off by default."""
    clock: Literal["us", "steps"] = "us"
    """Unit of times: microseconds, or one step for each integer (docs/scenario-files.md#time-and-budgets)."""
    costs: Costs = Costs()
    """Duration of a step under `clock: us`."""

    @property
    def batch_queue(self) -> int:
        """Steps that are decided before the outcome of the first of them is known, the newest included."""
        return max(self.max_concurrent_batches, 2) if self.async_scheduling else self.max_concurrent_batches

    @property
    def attention(self) -> tuple[int, ...]:
        """Indices of the attention groups."""
        return tuple(i for i, g in enumerate(self.groups) if not g.recurrent)

    @property
    def recurrent(self) -> tuple[int, ...]:
        """Indices of the recurrent groups."""
        return tuple(i for i, g in enumerate(self.groups) if g.recurrent)

    @property
    def state_block(self) -> int | None:
        """Tokens in a recurrent block, to whose ends states are aligned; None without one.

        A group in ``all`` mode leaves a state at every boundary, wherever chunks end, so where there is one in
        ``align`` mode that one counts, in whichever order they come.
        """
        aligned = [group.block_size for group in self.groups if group.aligned]
        return next(iter(aligned or [self.groups[i].block_size for i in self.recurrent]), None)

    @property
    def encoder_slots(self) -> int:
        """Embeddings of encoded items that are kept."""
        return self.max_num_batched_tokens if self.encoder_cache_size is None else self.encoder_cache_size

    @property
    def encoder_tokens(self) -> int:
        """Embeddings that a step may encode."""
        given = self.max_num_encoder_input_tokens
        return self.max_num_batched_tokens if given is None else given

    @property
    def hash_unit(self) -> int:
        """The granularity of hashes: the blocks' greatest common divisor, unless ``prefix_match_unit`` says."""
        if self.prefix_match_unit is not None:
            return self.prefix_match_unit
        return gcd(*(g.block_size for g in self.groups if g.prefix_cacheable))

    @property
    def scheduler_block_size(self) -> int:
        """The granularity of hits when they are not finer than a block."""
        return lcm(*(g.block_size for g in self.groups if g.prefix_cacheable))

    def interval_of(self, group: int) -> int | None:
        """Return the retention interval that is asked of a group."""
        return self.group_retention_intervals.get(self.groups[group].name, self.prefix_cache_retention_interval)

    def over_ranks(self) -> Options:
        """Return the options as the engine takes them from a file: groups with the blocks of all ranks together."""
        ranks = self.decode_context_parallel_size
        return replace(self, groups=tuple(g.over(ranks) if isinstance(g, GroupOptions) else g for g in self.groups))


def least_blocks(groups: int, drafts: int) -> int:
    """Blocks that a pool has at least: the null block, one for each group and one for each draft."""
    return 1 + groups + drafts


RECORDS: tuple[type[StrictRecord], ...] = (Options, GroupOptions, Speculative, Costs, Offload)
"""Records that a scenario file may write."""
