"""What an operator is told of a geometry: each remark where it holds, and not where it does not."""

from __future__ import annotations

import pytest
from model_configs import config

import stateat
from stateat.sim.explain.shortest import shortest_repeat
from stateat.sim.geometry.derive import derive
from stateat.sim.geometry.example import _engine, options
from stateat.sim.geometry.families import model_of
from stateat.sim.geometry.model import Serving
from stateat.sim.geometry.named import named
from stateat.sim.geometry.remarks import remarks

QUIET = {"preset": "vllm-0.28.0"}


def said(name: str, **flags: object) -> list[str]:
    found = derive(named(name), Serving(**{**QUIET, **flags}))  # type: ignore[arg-type]
    engine = options(found)
    repeat = shortest_repeat(engine)
    return remarks(found, None if repeat is None else repeat.tokens, engine.hash_unit)


@pytest.mark.parametrize("name", ["qwen3-next", "qwen3.6-27b", "kimi-linear", "falcon-h1"])
def test_nothing_is_said_of_a_plain_server(name: str) -> None:
    assert said(name) == []


@pytest.mark.parametrize(
    ("name", "flags", "text"),
    [
        ("qwen3.6-27b", {"mamba_cache_mode": "none"}, "no request is ever hit: mode none is without prefix caching"),
        ("qwen3.6-27b", {"max_model_len": 784}, "the shortest prompt that can be is 785 tokens, max_model_len 784"),
        ("qwen3.6-27b", {"max_num_batched_tokens": 512}, "(784) is above max_num_batched_tokens (512): no step fills"),
        (
            "qwen3.6-27b",
            {"max_num_batched_tokens": 512, "preset": "vllm-0.26.0"},
            "vllm-0.26.0 refuses to start: the block (784) is above max_num_batched_tokens (512)",
        ),
        ("qwen3.6-27b", {"preset": "vllm-0.27.0"}, "leaves prefix caching off for hybrid models unless"),
        ("qwen3.6-27b", {"mamba_cache_mode": "all"}, "qwen3.5 has no all mode: vllm-0.28.0 falls back to align"),
        ("jamba-v0.1", {"preset": "vllm-0.27.0"}, "takes all mode for jamba unless --mamba-cache-mode align is given"),
        ("qwen3.6-27b", {"mamba_block_size": 64}, "--mamba-block-size 64 does nothing in align mode"),
        (
            "qwen3.6-27b",
            {"mamba_block_size": 64, "mamba_cache_mode": "none"},
            "--mamba-block-size needs prefix caching",
        ),
        ("falcon-h1", {"num_speculative_tokens": 2}, "does not widen the convolution's window of falcon-h1"),
        ("qwen3.6-27b", {"mamba_ssm_cache_dtype": "bfloat16"}, "config wants its state in float32"),
        ("kimi-linear", {"mamba_ssm_cache_dtype": "bfloat16"}, "keeps a KDA state in float32"),
        ("qwen3-next", {"tensor_parallel_size": 8}, "2 KV heads on 8 ranks: each is held 4 times"),
        ("kimi-linear", {"tensor_parallel_size": 2}, "the latent vector of a token is held on each of 2 ranks"),
        ("qwen3.6-27b", {"num_speculative_tokens": 1}, "a prompt below 1601 tokens (two blocks) is never hit"),
        ("lfm2-1.2b", {}, "300.0 % of a state's page is padding (24,576 bytes)"),
    ],
)
def test_what_an_operator_should_know_is_said(name: str, flags: dict[str, object], text: str) -> None:
    assert any(text in line for line in said(name, **flags)), said(name, **flags)


@pytest.mark.parametrize(("unit", "hits"), [(None, [0] * 4), (16, [0, 0, 800, 800])])
def test_what_is_said_of_repeats_is_what_repeats_hit(unit: int | None, hits: list[int]) -> None:
    """At a hash unit of a block no repeat below two blocks hits; at a finer one the first does not, and a later may."""
    flags = {"num_speculative_tokens": 3, "prefix_match_unit": unit, "preset": "vllm-0.28.0"}
    (line,) = (line for line in said("qwen3.6-27b", **flags) if "gives up its last block" in line)
    assert line.endswith("by its first repeat" if unit else "by a repeat, however often it comes")
    engine = _engine(derive(named("qwen3.6-27b"), Serving(**flags)))  # type: ignore[arg-type]
    sent = [{"id": f"r{i}", "arrive": 9 * i, "prompt": [[1, 1000]], "max_tokens": 1} for i in range(4)]
    result = stateat.replay(
        {"schema": "stateat/1", "name": "repeats", "engine": engine, "workload": {"requests": sent}}
    )
    assert list(result.requests["hit_tokens"]) == hits


def test_what_does_not_hold_is_not_said() -> None:
    assert said("qwen3.6-27b", preset="vllm-0.27.0", enable_prefix_caching=True) == []
    assert said("qwen3.6-27b", num_speculative_tokens=1, speculative_method="ngram") == []
    assert said("qwen3.6-27b", preset="vllm-0.32.0", mamba_ssm_cache_dtype="float32") == []
    # a hash that looks ahead gives up no block
    assert not any("gives up" in line for line in said("qwen3.6-27b", num_speculative_tokens=1, preset="vllm-0.33.0"))


def test_what_a_config_does_not_say_is_told() -> None:
    values = config("nemotron-nano-9b-v2")
    del values["chunk_size"], values["head_dim"]
    found = derive(model_of(values, "config.json", "it"), Serving(**QUIET))  # type: ignore[arg-type]
    assert remarks(found, None, 16)[0] == "assumed, not in the config: head_dim 128, chunk_size 128"


def test_a_prompt_that_just_fits_can_be_hit() -> None:
    assert not [line for line in said("qwen3.6-27b", max_model_len=785) if "no request is ever hit" in line]


def test_as_many_ranks_as_heads_hold_each_head_once() -> None:
    assert not [line for line in said("qwen3-next", tensor_parallel_size=2) if "KV heads" in line]
