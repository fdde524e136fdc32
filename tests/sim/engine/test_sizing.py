"""What the end of a chunk is called: the same facts have the same name, whoever made the chunk."""

from __future__ import annotations

from typing import Any

import pytest

from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.request import Request
from stateat.sim.engine.sizing import Sizing
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.policy import Policy
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 16))


def asked(options: Options, prompt: int) -> tuple[Sizing, Request]:
    policy = Policy.of(options)
    cache = KVCache(options, policy.rules, Observer())
    return Sizing(policy, cache, Encoder(policy)), Request(Arrival("a", 0, 0, ((1, prompt),)), options, 0)


def name(options: Options, prompt: int, start: int, offered: int, end: int) -> str:
    sizing, request = asked(options, prompt)
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


@pytest.mark.parametrize(
    ("start", "count", "cut"),
    [
        (0, 46, (46, "budget")),
        (0, 47, (47, "budget")),
        (0, 48, (47, "look-ahead")),
        (0, 49, (47, "look-ahead")),
        (0, 50, (50, "budget")),
        (48, 1, (0, "look-ahead")),
        (48, 2, (2, "budget")),
    ],
)
def test_a_chunk_ends_with_the_prompt_or_so_far_before_it_as_all_modules_read(
    start: int, count: int, cut: tuple[int, str]
) -> None:
    """Three modules of MTP, of which each reads a token further, and a prompt of 50 tokens."""
    drafter = Speculative("mtp", 3, multi_module=True)
    sizing, request = asked(Options(GROUPS, enable_prefix_caching=False, speculative=drafter), 50)
    assert sizing.cut(request, start, count, "budget") == cut
