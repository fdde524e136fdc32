"""Options (vLLM's names and numbers): what an engine is configured to do. How it does it is a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from stateat.sim.events import Group

INFILL_METHODS = ("dflash", "dspark")
"""Drafters that fill in all drafts at once, from the states of the tokens before them alone."""
LOOK_AHEAD_METHODS = ("mtp", "eagle", "eagle3", *INFILL_METHODS)
"""Drafters for which a hit gives something up (the drop): they look one token ahead; to 0.32 those that fill in too."""
METHODS = (*LOOK_AHEAD_METHODS, "ngram")


@dataclass(frozen=True, slots=True)
class Speculative:
    """Speculative decoding."""

    method: str = "ngram"
    num_speculative_tokens: int = 0
    accepted_drafts: tuple[int, ...] = (0,)
    """Entry m mod len: accepted drafts of a request's m-th proposal."""
    acceptance_rate: float | None = None
    """Instead of a cycle: each draft is right with this probability, drawn from the scenario's seed."""
    draft_slots: int = 0
    """Slots that a drafter with a model of its own adds to the batch, beside those scheduled."""
    multi_module: bool = False
    """Whether each draft token comes from a module of its own (MTP), which reads K tokens ahead."""
    block_drop: bool = True
    """Whether a look-ahead drafter gives up the last block of a hit (an option since vLLM 0.32)."""
    hash_lookahead: bool = True
    """Whether hashes cover the token behind their block in its stead (an option since vLLM 0.33)."""

    @property
    def eagle(self) -> bool:
        return self.num_speculative_tokens > 0 and self.method in LOOK_AHEAD_METHODS

    @property
    def lookahead_tokens(self) -> int:
        """Slots that attention reserves for the drafter, beyond the scheduled tokens."""
        if self.method == "ngram" and not self.draft_slots:
            return 0
        # It has a query for the last sampled token, beside one for each draft.
        return self.num_speculative_tokens + (self.method == "dflash" and self.num_speculative_tokens > 0)

    @property
    def prefill_lookahead(self) -> int:
        """Tokens past a prefill chunk that the drafter reads."""
        if not self.eagle:
            return 0
        return self.num_speculative_tokens if self.multi_module and self.method == "mtp" else 1


@dataclass(frozen=True, slots=True)
class Costs:
    """How long a step lasts, in microseconds: ``base + per_prefill_token * p + per_decode_token * d``."""

    base: int = 8000
    per_prefill_token: float = 20.0
    per_decode_token: float = 40.0


@dataclass(frozen=True, slots=True)
class Offload:
    """A tier below the pool (CPU memory)."""

    blocks: int = 0
    """Blocks of any group that it keeps; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Options:
    """An engine's configuration; sizes in tokens unless they say blocks."""

    groups: tuple[Group, ...]
    preset: str = "vllm-0.27.0"
    rules: dict[str, str] = field(default_factory=dict)
    """Rule values that differ from the preset's."""
    num_blocks: int = 10_000
    """Blocks in the pool, the null block among them."""
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 128
    max_concurrent_batches: int = 1
    """Steps that are decided and have not committed: 1, or the stages of a pipeline."""
    max_model_len: int = 266_240
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = True
    partial_hits: bool = True
    """Whether hits finer than a block are on, where the hash unit allows them."""
    decode_context_parallel_size: int = 1
    """Ranks over which full attention is spread; ``groups`` have the blocks of all of them together."""
    prefix_match_unit: int | None = None
    cache_config_block_size: int | None = None
    initial_block_size: int = 16
    """``cache_config.block_size`` before the engine resolves it: what the command line says, or vLLM's default."""
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    num_prefill_checkpoint_blocks: int = 0
    """Blocks for a state that a prefill chunk exports on its way (0 or 1)."""
    prefill_checkpoint_alignment: int = 1
    """Tokens: where in a chunk the kernel can export one."""
    prefix_cache_retention_interval: int | None = None
    """Tokens between states that stay published; 0: only those that a resend needs; None: all."""
    shared_prefix_checkpoint: bool = False
    """Whether a chunk stops exactly where a prefix is known to be shared."""
    encoder_cache_size: int | None = None
    """Embeddings of encoded items (images) that are kept; None: ``max_num_batched_tokens``, as in vLLM."""
    max_num_encoder_input_tokens: int | None = None
    """Embeddings that a step may encode; None: ``max_num_batched_tokens``."""
    mamba_chunk_size: int = 0
    """Tokens of a recurrent kernel's own chunk (``all`` mode); 0: one that ends at every boundary."""
    disable_chunked_mm_input: bool = False
    """Whether a chunk may not end inside an encoded item that it does not start in."""
    offload: Offload = Offload()
    speculative: Speculative = Speculative()
    clock: str = "us"
    costs: Costs = Costs()

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
        from math import gcd

        return gcd(*(g.block_size for g in self.groups if g.prefix_cacheable))

    @property
    def scheduler_block_size(self) -> int:
        """The granularity of hits when they are not finer than a block."""
        return lcm(*(g.block_size for g in self.groups if g.prefix_cacheable))


def least_blocks(groups: int, drafts: int) -> int:
    """Blocks that a pool has at least: the null block, one for each group and one for each draft."""
    return 1 + groups + drafts
