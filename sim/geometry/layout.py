"""Geometry of a server's cache: block sizes, bytes and groups that follow from a model, its flags and a release."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.geometry.model import Model, Serving
from stateat.sim.geometry.releases import BlockSizing, sizing
from stateat.sim.options import LOOK_AHEAD_METHODS


@dataclass(frozen=True, slots=True)
class Geometry:
    """Geometry that vLLM derives; a page is that of one layer on one rank, a block that of one group of layers."""

    model: Model
    serving: Serving
    mode: str
    """``none``, ``align`` or ``all``: the mode in force."""
    kv_dtype: str
    conv_dtype: str
    state_dtype: str
    conv_bytes: int
    recurrent_bytes: int
    token_bytes: int
    granularity: int
    """Tokens: what the block is a multiple of."""
    block_size: int
    """Tokens of an attention block; in ``align`` and ``all`` mode of a recurrent one too."""
    layers_per_group: int
    attention_groups: int
    recurrent_groups: int
    checkpoint_blocks: int
    """Blocks of each recurrent group for a state that a chunk exports on its way."""
    num_blocks: int | None = None
    """Blocks of the pool, where a flag says how many."""

    @property
    def sizing(self) -> BlockSizing:
        return sizing(self.serving.preset)

    @property
    def max_model_len(self) -> int:
        return self.serving.max_model_len or self.model.max_model_len

    @property
    def mamba_block_size(self) -> int:
        """Tokens of a recurrent block; without prefix caching one state serves a request of any length."""
        return self.max_model_len if self.mode == "none" else self.block_size

    @property
    def state_bytes(self) -> int:
        return self.conv_bytes + self.recurrent_bytes

    @property
    def page_bytes(self) -> int:
        return self.block_size * self.token_bytes

    @property
    def padding(self) -> int:
        """Bytes of a state's page that hold nothing."""
        return self.page_bytes - self.state_bytes

    @property
    def padding_percent(self) -> float:
        """Padding in percent of the state's bytes, as vLLM's log has it."""
        return 100 * self.padding / self.state_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the pool: a page for each layer of a group."""
        return self.page_bytes * self.layers_per_group

    @property
    def drops(self) -> bool:
        """True if the drafter looks ahead, so that a hit gives something up."""
        return self.serving.num_speculative_tokens > 0 and self.serving.speculative_method in LOOK_AHEAD_METHODS

    def state_blocks(self, tokens: int) -> int:
        """Recurrent blocks that a request of so many tokens pins (``MambaSpec.max_memory_usage_bytes``)."""
        most = {"none": 1, "align": 2 + self.checkpoint_blocks, "all": -(-tokens // self.block_size)}[self.mode]
        return self.recurrent_groups * (most + self.serving.num_speculative_tokens)

    def attention_blocks(self, tokens: int) -> int:
        """Attention blocks that a request of so many tokens pins."""
        return self.attention_groups * -(-tokens // self.block_size)
