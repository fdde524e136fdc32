"""What a scenario file may say, apart from its workload: the engine, the oracle, expectations, variants.

The descriptions below the fields are what the JSON Schema shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, SkipValidation, Tag, create_model, model_validator

from stateat.sim.events import Group, Holding, Severity
from stateat.sim.options import METHODS, Costs, Offload, Options, Speculative
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.truth import BACKENDS, DEVICES, DTYPES, KERNELS, ROUNDINGS, Truth
from stateat.sim.schema import (
    MAX_BLOCK_SIZE,
    MAX_NUM_BLOCKS,
    MAX_STEP_TOKENS,
    Count,
    Drafts,
    Length,
    Name,
    Strict,
)
from stateat.sim.workload.generate import Workload

SCHEMA = "stateat/1"
INVARIANTS = tuple(f"I{n}" for n in range(1, 19) if n != 15)
"""As in docs/invariants.md."""
MECHANISMS = tuple(f"M{n}" for n in (*range(1, 28), 30, 32))
"""As in docs/mechanisms.md."""
_DEFAULT = Options(groups=())
_TRUTH = Truth()


def _invariant(name: str) -> str:
    """Also a key of a mapping, of which a Literal would not say what is allowed."""
    if name not in INVARIANTS:
        raise ValueError(f"found {name!r}, allowed {', '.join(INVARIANTS)}")
    return name


Invariant = Annotated[str, AfterValidator(_invariant)]
BlockSize = Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]


class GroupModel(Strict):
    """A KV cache group: layers that share block tables."""

    name: Name
    """Unique among the groups."""
    kind: Literal["full-attention", "recurrent"]
    """`recurrent`: Mamba, GDN, KDA and the like."""
    block_size: BlockSize
    """Tokens in a block."""
    eagle: bool = False
    """Whether a look-ahead drafter's drop applies to it."""
    mamba_cache_mode: Literal["align", "all"] = "align"
    """Which states a chunk leaves: that at its end, or (up to vLLM 0.29) those at every boundary too."""
    sliding_window: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] = 0
    """Tokens that attention reaches back to; 0: all of them."""
    prefix_cacheable: bool = True
    """Whether the group takes part in prefix caching; false: its blocks are a request's own scratch."""

    def span(self, ranks: int) -> int:
        """Tokens of a block: full attention spreads its blocks over the ranks."""
        spread = self.kind == "full-attention" and self.prefix_cacheable and not self.sliding_window
        return self.block_size * (ranks if spread else 1)

    def group(self, ranks: int) -> Group:
        """As the engine takes it."""
        return Group(
            self.name,
            self.kind,
            self.span(ranks),
            self.eagle,
            self.mamba_cache_mode,
            self.sliding_window,
            self.prefix_cacheable,
        )


class SpeculativeModel(Strict):
    """Speculative decoding."""

    method: Literal[METHODS] = "ngram"  # type: ignore[valid-type]
    """All but `ngram` make a hit give something up: they look one token ahead (`dflash` and `dspark`: to vLLM 0.32)."""
    num_speculative_tokens: Drafts = 0
    """K: draft tokens of a proposal; 0 turns it off."""
    accepted_drafts: Annotated[list[Drafts], Field(min_length=1)] | None = None
    """Entry m mod len: drafts that are right in a request's m-th proposal (0 to K); [0] by default."""
    acceptance_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """Instead of accepted_drafts: each draft is right with this probability, drawn from the scenario's seed."""
    draft_slots: Annotated[int, Field(ge=0, le=1024)] = 0
    """Slots that a drafter with a model of its own adds to the batch for each request."""
    multi_module: bool = False
    """Whether each draft token comes from a module of its own, which reads K tokens ahead (since vLLM 0.29)."""
    block_drop: bool = True
    """Whether a look-ahead drafter gives up the last block of a hit (an option since vLLM 0.32)."""
    hash_lookahead: bool = True
    """Whether hashes cover the token behind their block in its stead (an option of vLLM 0.33)."""

    @model_validator(mode="after")
    def _one(self) -> SpeculativeModel:
        if self.accepted_drafts is not None and self.acceptance_rate is not None:
            raise ValueError("found accepted_drafts and acceptance_rate, allowed one of them")
        return self


class CostsModel(Strict):
    """How long a step lasts under `clock: us`: base + per_prefill_token * p + per_decode_token * d."""

    base: Annotated[int, Field(ge=0, le=10**9)] = Costs().base
    """Microseconds of any step."""
    per_prefill_token: Annotated[float, Field(ge=0, le=1e6)] = Costs().per_prefill_token
    """Microseconds of each prompt token of a step."""
    per_decode_token: Annotated[float, Field(ge=0, le=1e6)] = Costs().per_decode_token
    """Microseconds of each decode token (drafts included) of a step."""


class OffloadModel(Strict):
    """A tier below the pool: CPU memory."""

    blocks: Annotated[int, Field(ge=0, le=MAX_NUM_BLOCKS)] = 0
    """Blocks of any group that it keeps, the least recently used go first; 0: there is none."""


class Engine(Strict):
    """The configuration of the engine, by vLLM's names."""

    preset: str = _DEFAULT.preset
    """The release whose rules hold: `vllm-0.26.0` and so on."""
    rules: dict[str, str] = Field(default_factory=dict)
    """Rules that differ from the preset's, by name; a value is a known one or `module:Class`."""
    groups: Annotated[list[GroupModel], Field(min_length=1, max_length=64)]
    """The KV cache groups, at least one."""
    num_blocks: Annotated[int, Field(ge=1, le=MAX_NUM_BLOCKS)] = _DEFAULT.num_blocks
    """Blocks in the pool that all groups share, the null block among them."""
    max_num_batched_tokens: Length = _DEFAULT.max_num_batched_tokens
    """Token budget of a step."""
    max_num_seqs: Count = _DEFAULT.max_num_seqs
    """Requests that run at a time."""
    max_concurrent_batches: Annotated[int, Field(ge=1, le=64)] = 1
    """Steps that are decided before the first of them has run: the stages of a pipeline."""
    max_model_len: Annotated[int, Field(ge=2, le=MAX_STEP_TOKENS)] = _DEFAULT.max_model_len
    """Longest sequence, tokens; a prompt is at least one token shorter."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] = (
        _DEFAULT.long_prefill_token_threshold
    )
    """Most tokens of one request in a step; 0: no such limit."""
    enable_prefix_caching: bool = _DEFAULT.enable_prefix_caching
    """Whether finished blocks can be hit."""
    partial_hits: bool = _DEFAULT.partial_hits
    """Whether hits may be finer than a block, where the hash unit allows it."""
    decode_context_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks over which full attention is spread: its blocks hold so many times more tokens; states are on each."""
    prefix_match_unit: BlockSize | None = None
    """Tokens of a hash; the greatest common divisor of the block sizes by default."""
    cache_config_block_size: BlockSize | None = None
    """vLLM's cache_config.block_size, tokens: the grid of the split; the recurrent block by default."""
    initial_block_size: BlockSize = _DEFAULT.initial_block_size
    """vLLM's --block-size, or its default: cache_config.block_size before it is resolved (rule `restore_column`)."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = _DEFAULT.watermark
    """Fraction of the pool that admission keeps free."""
    scheduler_reserve_full_isl: bool = _DEFAULT.scheduler_reserve_full_isl
    """Whether admission wants room for the whole prompt."""
    num_prefill_checkpoint_blocks: Annotated[int, Field(ge=0, le=1)] = 0
    """Blocks for a state that a prefill chunk exports on its way (since vLLM 0.29)."""
    prefill_checkpoint_alignment: BlockSize = 1
    """Tokens: where in a chunk the kernel can export one (since vLLM 0.32)."""
    prefix_cache_retention_interval: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Tokens between states that stay published; 0: only those that a resend needs; all by default (since 0.29)."""
    shared_prefix_checkpoint: bool = False
    """Whether a chunk stops exactly where a prefix is known to be shared (since vLLM 0.32)."""
    encoder_cache_size: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Embeddings of encoded items (images) that are kept; max_num_batched_tokens by default."""
    max_num_encoder_input_tokens: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] | None = None
    """Embeddings that a step may encode; max_num_batched_tokens by default."""
    mamba_chunk_size: Annotated[int, Field(ge=0, le=MAX_BLOCK_SIZE)] = 0
    """Tokens of a recurrent kernel's own chunk, which has a state at its end (`all` mode); 0: it fits the block."""
    disable_chunked_mm_input: bool = False
    """Whether no chunk may end inside an encoded item that it does not start in."""
    offload: OffloadModel = OffloadModel()
    """A tier below the pool, into which full blocks are stored and from which requests are started; none by default."""
    speculative: SpeculativeModel = SpeculativeModel()
    """Speculative decoding; off by default."""
    clock: Literal["us", "steps"] = "us"
    """What times count: microseconds, or one step for each integer."""
    costs: CostsModel = CostsModel()
    """How long a step lasts under `clock: us`."""

    def options(self) -> Options:
        """As the engine takes them."""
        drafts = self.speculative.accepted_drafts
        return Options(
            groups=tuple(g.group(self.decode_context_parallel_size) for g in self.groups),
            preset=self.preset,
            rules=dict(self.rules),
            num_blocks=self.num_blocks,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            max_concurrent_batches=self.max_concurrent_batches,
            max_model_len=self.max_model_len,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            enable_prefix_caching=self.enable_prefix_caching,
            partial_hits=self.partial_hits,
            decode_context_parallel_size=self.decode_context_parallel_size,
            prefix_match_unit=self.prefix_match_unit,
            cache_config_block_size=self.cache_config_block_size,
            initial_block_size=self.initial_block_size,
            watermark=float(self.watermark),
            scheduler_reserve_full_isl=self.scheduler_reserve_full_isl,
            num_prefill_checkpoint_blocks=self.num_prefill_checkpoint_blocks,
            prefill_checkpoint_alignment=self.prefill_checkpoint_alignment,
            prefix_cache_retention_interval=self.prefix_cache_retention_interval,
            shared_prefix_checkpoint=self.shared_prefix_checkpoint,
            encoder_cache_size=self.encoder_cache_size,
            max_num_encoder_input_tokens=self.max_num_encoder_input_tokens,
            mamba_chunk_size=self.mamba_chunk_size,
            disable_chunked_mm_input=self.disable_chunked_mm_input,
            offload=Offload(self.offload.blocks),
            speculative=Speculative(
                method=self.speculative.method,
                num_speculative_tokens=self.speculative.num_speculative_tokens,
                accepted_drafts=(0,) if drafts is None else tuple(drafts),
                acceptance_rate=self.speculative.acceptance_rate,
                draft_slots=self.speculative.draft_slots,
                multi_module=self.speculative.multi_module,
                block_drop=self.speculative.block_drop,
                hash_lookahead=self.speculative.hash_lookahead,
            ),
            clock=self.clock,
            costs=Costs(
                base=self.costs.base,
                per_prefill_token=float(self.costs.per_prefill_token),
                per_decode_token=float(self.costs.per_decode_token),
            ),
        )


class Oracle(Strict):
    """What the truth is computed with."""

    state: str = _TRUTH.state
    """The state family: `digest`, a 128-bit fingerprint of the tokens absorbed; `ring`, `gated-delta`, `kda`, `ssd`,
    `selective-scan` or `short-conv`, arrays beside it, of a model's widths (`gated-delta:qwen3-next`)."""
    dtype: Literal[DTYPES] = _TRUTH.dtype  # type: ignore[valid-type]
    """In which a state is stored between chunks."""
    kernel: Literal[KERNELS] = _TRUTH.kernel  # type: ignore[valid-type]
    """`sequential`: float32 bits do not depend on how a prompt is cut; `chunked`, as prefill kernels: they do."""
    rounding: Literal[ROUNDINGS] = _TRUTH.rounding  # type: ignore[valid-type]
    """Of a narrower dtype: to `nearest`, or `stochastic`, from the scenario's seed."""
    backend: Literal[BACKENDS] = _TRUTH.backend  # type: ignore[valid-type]
    """What computes: `auto` is Triton where there is a GPU, else torch, else NumPy."""
    device: Literal[DEVICES] = _TRUTH.device  # type: ignore[valid-type]
    """Where: `auto` is the GPU where there is one."""

    def truth(self) -> Truth:
        """As the oracle takes them."""
        return Truth(self.state, self.dtype, self.kernel, self.rounding, self.backend, self.device)


class Bounds(Strict):
    """A range, ends included; at least one end."""

    min: Annotated[int, Field(ge=0)] | None = None
    """At least."""
    max: Annotated[int, Field(ge=0)] | None = None
    """At most."""

    @model_validator(mode="after")
    def _ordered(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("found neither min nor max, allowed at least one of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"found min {self.min} above max {self.max}, allowed min <= max")
        return self


def _number_or_bounds(value: Any) -> str:
    return "bounds" if isinstance(value, Mapping | Bounds) else "number"


def _all_or_some(value: Any) -> str:
    return "all" if isinstance(value, list) or not isinstance(value, Mapping | Strict) else "some"


Number = Annotated[
    Annotated[int, Field(ge=0), Tag("number")] | Annotated[Bounds, Tag("bounds")], Discriminator(_number_or_bounds)
]
End = Annotated[int, Field(ge=0)]
Mechanism = Literal[MECHANISMS]  # type: ignore[valid-type]


class SomeEnds(Strict):
    """Chunk ends that occur, among others."""

    contains: Annotated[list[End], Field(min_length=1)]
    """Each of them is an end of a prefill chunk of the request."""


Ends = Annotated[Annotated[list[End], Tag("all")] | Annotated[SomeEnds, Tag("some")], Discriminator(_all_or_some)]


SEVERITIES = tuple(word.value for word in Severity)
HOLDINGS = (*(word.value for word in Holding), "")
SeverityName = Literal[SEVERITIES]  # type: ignore[valid-type]
HoldingName = Literal[HOLDINGS]  # type: ignore[valid-type]


class FindingModel(Strict):
    """A finding; only the keys given are compared."""

    invariant: Invariant | None = None
    """`I1` and so on (docs/invariants.md)."""
    severity: SeverityName | None = None
    """How bad it is."""
    step: Annotated[int, Field(ge=0)] | None = None
    """The step at whose end it was found."""
    request: str | None = None
    """The id of the request concerned."""
    group: str | None = None
    """The name of the group."""
    column: int | None = None
    """Index into the request's block table of that group."""
    claimed: int | None = None
    """The offset that the hash claims, tokens."""
    held: int | None = None
    """The offset that the slot holds, tokens; null where it holds none."""
    verdict: HoldingName | None = None
    """What the slot holds, in a word."""
    root: bool | None = None
    """Whether it is a root cause rather than downstream of another finding."""

    @model_validator(mode="after")
    def _something(self) -> FindingModel:
        if not self.model_fields_set:
            raise ValueError("found an empty mapping, allowed at least one key of a finding")
        return self


class SomeFindings(Strict):
    """Findings that occur, among others."""

    contains: Annotated[list[FindingModel], Field(min_length=1)]
    """Each of them matches a finding of its own."""


Findings = Annotated[
    Annotated[list[FindingModel], Tag("all")] | Annotated[SomeFindings, Tag("some")], Discriminator(_all_or_some)
]


def _counted() -> type[Strict]:
    """Return a model with a key for each count that an expectation may name."""
    fields: dict[str, Any] = {
        name: (bool | None if count.total is any else Number | None, Field(None, description=count.says))
        for name, count in COUNTS.items()
        if count.expected
    }
    return create_model("Counted", __base__=Strict, **fields)


if TYPE_CHECKING:
    Counted = Strict
else:
    Counted = _counted()


class Expectation(Counted):
    """What a run must come to. A number is exact, or {min, max}; `poisoned: 0` needs a hit as well: hit_tokens,
    resume_hit_tokens or hits with a positive minimum (with an offload tier also loaded_tokens or loads), or `vacuous`
    with the reason why not."""

    exact: Number | None = None
    """Claimed slots that hold the true state bit for bit (families other than `digest`)."""
    noise: Number | None = None
    """Claimed slots that hold the right state with other bits: rounding, or the shape of chunks."""
    not_finite: Number | None = None
    """Claimed slots that hold NaN or infinity."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The digest of every decision."""
    ends: dict[str, Ends] | None = None
    """By request id: the ends of its prefill chunks, tokens."""
    hits: dict[str, Number] | None = None
    """By request id: tokens skipped by the hit of its first admission."""
    loads: dict[str, Number] | None = None
    """By request id: tokens that an offload tier or a connector brought at its first admission."""
    findings: Findings | None = None
    """A list: these findings and no other, in any order. `contains`: these among others."""
    invariants: dict[Invariant, Number] | None = None
    """By invariant: how many findings it has, whatever their severity."""
    vacuous: Annotated[str, Field(min_length=1)] | None = None
    """Why `poisoned: 0` means something although no hit is expected."""


class VariantExpectation(Expectation):
    """What a variant must come to: the sum of its cases, and each case."""

    cases: dict[str, Expectation] | None = None
    """By name of a case; the other keys hold for the sum of all cases."""


class Override(Strict):
    """What a variant or a case changes: maps merge, lists replace, a map of another `kind` replaces."""

    # Validated after merging, as a whole: see stateat.sim.scenario.load.
    preset: SkipValidation[str] | None = None
    """Short for engine.preset."""
    rules: SkipValidation[dict[str, str]] | None = None
    """Short for engine.rules."""
    engine: SkipValidation[Engine] | None = None
    """Changes of the engine."""
    workload: SkipValidation[Workload] | None = None
    """Changes of the workload."""
    oracle: SkipValidation[Oracle] | None = None
    """Changes of the oracle."""
    expect: SkipValidation[VariantExpectation] | None = None
    """What it must come to."""


class File(Strict):
    """A scenario of stateat: an engine, a workload, variants to compare and what each must come to."""

    schema_: Annotated[Literal["stateat/1"], Field(alias="schema")]
    """The version of this format."""
    name: Name
    """A short name."""
    title: str = ""
    """One line for people."""
    source: str = ""
    """Where the case comes from: an issue, a pull request, a paper."""
    mechanism: Annotated[list[Mechanism], Field(max_length=8)] = Field(default_factory=list)
    """The classes of fault that it shows: `M1` and so on (docs/mechanisms.md)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of everything that is drawn."""
    engine: SkipValidation[Engine] | None = None
    """The engine; variants may change it."""
    workload: SkipValidation[Workload] | None = None
    """The requests; variants may change them."""
    oracle: SkipValidation[Oracle] | None = None
    """How the truth is computed."""
    variants: Annotated[dict[Name, Override], Field(min_length=1, max_length=1000)] | None = None
    """By name: what to run and compare; without them the file itself is the one variant, named after its preset."""
    cases: Annotated[dict[Name, Override], Field(min_length=1, max_length=1000)] | None = None
    """By name: changes that are crossed with the variants; a variant's outcome is the sum over its cases."""
    expect: SkipValidation[VariantExpectation] | None = None
    """What the run must come to; with variants each has its own."""


class Whole(Strict):
    """One variant and case after merging."""

    engine: Engine
    """The engine."""
    workload: Workload
    """The requests."""
    oracle: Oracle = Oracle()
    """How the truth is computed."""
