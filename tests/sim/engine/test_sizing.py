"""What the end of a chunk is called: the same facts have the same name, whoever made the chunk."""

from __future__ import annotations

from typing import Any

import pytest

from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.request import Request
from stateat.sim.engine.sizing import Sizing
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 16))


def name(options: Options, prompt: int, start: int, offered: int, end: int) -> str:
    policy = Policy.of(options)
    cache = KVCache(options, policy.rules, Observer())
    sizing = Sizing(policy, cache, Encoder(policy))
    request = Request(Arrival("a", 0, 0, ((1, prompt),)), options, 0)
    return sizing.name(request, start, offered, end)


# The chunks that vLLM 0.29.0, 0.28.0 and 0.33.0 have made of what they offered.
WIDE: dict[str, Any] = {"groups": (Group("gdn", "recurrent", 64), Group("attention", "full-attention", 32))}
MIXED: dict[str, Any] = {"groups": (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 48))}


@pytest.mark.parametrize(
    ("preset", "engine", "chunk", "named"),
    [
        # Cut by the budget; it starts on a boundary, and so is exempt from the grid, though it exports nothing.
        ("vllm-0.29.0", {"num_prefill_checkpoint_blocks": 1}, (83, 0, 4, 4), "checkpoint"),
        ("vllm-0.29.0", {"num_prefill_checkpoint_blocks": 1}, (83, 16, 15, 31), "checkpoint"),
        # Near the prompt's end, and yet no tail: the split aligns to 32 where states have blocks of 64.
        ("vllm-0.28.0", {**WIDE, "cache_config_block_size": 32}, (208, 136, 72, 160), "mid-block"),
        ("vllm-0.33.0", {**MIXED, "cache_config_block_size": 16}, (176, 144, 31, 160), "block-boundary"),
        # The prompt's tail itself.
        ("vllm-0.28.0", WIDE, (110, 64, 46, 96), "partial-tail"),
        # All that was offered: nothing stopped it.
        ("vllm-0.28.0", WIDE, (110, 96, 14, 110), ""),
        # A release that splits otherwise than the preset.
        ("vllm-0.28.0", WIDE, (110, 64, 46, 70), "split"),
    ],
)
def test_an_end_has_the_name_that_the_presets_split_gives_it(
    preset: str, engine: dict[str, Any], chunk: tuple[int, int, int, int], named: str
) -> None:
    assert name(Options(**{"groups": GROUPS, **engine, "preset": preset}), *chunk) == named
