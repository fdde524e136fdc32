"""From what a server's log says of its cache to the blocks of its pool. A request's blocks are counted here by hand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import InputError
from stateat.sim.geometry.capacity import request_blocks, tokens_of
from stateat.sim.geometry.derive import derive
from stateat.sim.geometry.example import scenario
from stateat.sim.geometry.layout import Geometry
from stateat.sim.geometry.model import Serving
from stateat.sim.geometry.named import NAMED, named
from stateat.sim.geometry.releases import SIZING
from stateat.sim.scenario.load import load

FP8 = {"kv_cache_dtype": "fp8", "num_speculative_tokens": 3}


def geometry(name: str = "qwen3.6-27b", **flags: Any) -> Geometry:
    return derive(named(name), Serving(**flags))


@pytest.mark.parametrize(
    ("preset", "flags", "each"),
    [
        # 262,144 tokens in blocks of 1,600 (164), and 3 groups with 2 states and 3 drafts each
        ("vllm-0.26.0", FP8, 164 + 3 * 5),
        ("vllm-0.27.0", FP8, 164 + 3 * 5),
        ("vllm-0.29.0", FP8, 164 + 3 * 5),
        # blocks of 1,600 are multiples of 64 already, and a state exported inside a chunk is one more of each group
        ("vllm-0.33.0", FP8, 164 + 3 * 6),
        # without a drafter 784, or 832 where FlashInfer's prefill wants multiples of 64
        ("vllm-0.28.0", {}, 335 + 3 * 2),
        ("vllm-0.33.0", {}, 316 + 3 * 3),
        # one state, whatever the length
        ("vllm-0.28.0", {"enable_prefix_caching": False}, 335 + 3),
    ],
)
def test_a_request_takes_whole_blocks_of_each_group(preset: str, flags: dict[str, Any], each: int) -> None:
    found = geometry(preset=preset, **flags)
    assert request_blocks(found) == each
    assert tokens_of(found, 718) == int(718 / each * 262_144)


@given(
    st.sampled_from(sorted(NAMED)),
    st.sampled_from(sorted(SIZING)),
    st.integers(0, 7),
    st.integers(1000, 300_000),
    st.integers(1, 100_000),
)
def test_the_blocks_follow_from_what_the_log_says_of_them(
    name: str, preset: str, drafts: int, longest: int, blocks: int
) -> None:
    flags: dict[str, Any] = {"preset": preset, "num_speculative_tokens": drafts, "max_model_len": longest}
    plain = geometry(name, **flags)
    said = tokens_of(plain, blocks)
    if blocks >= 1 + plain.attention_groups + plain.recurrent_groups + drafts:
        assert geometry(name, **flags, kv_cache_size_tokens=said).num_blocks == blocks
    else:
        with pytest.raises(InputError, match=r"--kv-cache-size-tokens: found .*, the smallest pools: a request of"):
            geometry(name, **flags, kv_cache_size_tokens=said)


def test_bytes_are_divided_by_those_of_a_block_on_a_rank() -> None:
    size = geometry(**FP8).block_bytes
    assert geometry(**FP8, kv_cache_memory_bytes=size * 719 - 1).num_blocks == 718
    with pytest.raises(InputError, match="--kv-cache-size-tokens and --kv-cache-memory-bytes: name one of them"):
        geometry(kv_cache_memory_bytes=size, kv_cache_size_tokens=1000)


def test_no_pool_is_smaller_or_larger_than_that_of_a_scenario() -> None:
    """The null block, one for each of four groups and one for each of three drafts."""
    found = geometry(**FP8)
    size, said = found.block_bytes, tokens_of(found, 8)
    assert geometry(**FP8, kv_cache_memory_bytes=size * 8).num_blocks == 8
    assert geometry(**FP8, kv_cache_size_tokens=said).num_blocks == 8
    with pytest.raises(InputError, match=f"found {size * 8 - 1}, allowed at least {size * 8}, the bytes of 8 blocks: "):
        geometry(**FP8, kv_cache_memory_bytes=size * 8 - 1)
    for flags in ({"kv_cache_memory_bytes": 10**15}, {"kv_cache_size_tokens": tokens_of(found, 10**8)}):
        (flag,) = flags
        with pytest.raises(InputError, match=rf"--{flag.replace('_', '-')}: found [0-9]+, a pool of [0-9]+ blocks"):
            geometry(**FP8, **flags)
    # A pool of the null block alone, and what is near it: neither is offered.
    for tokens in (tokens_of(found, 1), tokens_of(found, 1) + 1, tokens_of(found, 7)):
        with pytest.raises(InputError, match=rf"allowed {said} \(8 blocks\) or [0-9]+ \(9 blocks\), the smallest"):
            geometry(**FP8, kv_cache_size_tokens=tokens)
    data = yaml.safe_load(scenario(found, "mine"))
    for blocks in (7, 8):
        data["engine"]["num_blocks"] = blocks
        if blocks == 8:
            load(data)
        else:
            with pytest.raises(InputError, match=r"engine\.num_blocks: found 7, allowed at least 8"):
                load(data)


def test_tokens_that_no_pool_has_are_refused_with_those_that_are_near() -> None:
    """So flags that are not the server's are noticed."""
    said = tokens_of(geometry(**FP8), 718)
    with pytest.raises(InputError, match=rf"found {said + 1}, allowed {said} \(718 blocks\) or .* \(719 blocks\)"):
        geometry(**FP8, kv_cache_size_tokens=said + 1)
    with pytest.raises(InputError, match="a request of 131072 tokens takes 97 blocks"):
        geometry(**FP8, kv_cache_size_tokens=said, max_model_len=131_072)


def test_a_scenario_gets_the_pool_or_is_refused_where_it_is_too_small() -> None:
    said = tokens_of(geometry(**FP8), 718)
    text = scenario(geometry(**FP8, kv_cache_size_tokens=said), "mine")
    assert load(yaml.safe_load(text)).expanded[0].options.num_blocks == 718
    assert "num_blocks" not in scenario(geometry(**FP8), "mine")
    with pytest.raises(InputError, match="--scenario: found 20 blocks, allowed at least"):
        scenario(geometry(**FP8, kv_cache_size_tokens=tokens_of(geometry(**FP8), 20)), "mine")
