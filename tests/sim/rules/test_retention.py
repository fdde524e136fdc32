"""Which states stay published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.rules.retention import (
    RETENTION,
    Retention,
    floored,
    longer_only,
    on_grid,
    resend_and_longer,
    unshifted,
    with_and_without_drop,
)
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

PROMPTS, BLOCKS = st.integers(1, 5000), st.integers(1, 300)


@given(prompt=PROMPTS, block=BLOCKS)
def test_with_a_drop_a_resend_starts_a_block_earlier_than_a_longer_prompt_at_exact_multiples_only(
    prompt: int, block: int
) -> None:
    ends = resend_and_longer(prompt, block, True)
    longer = max(prompt // block * block - block, 0)
    resend = max((prompt - 1) // block * block - block, 0)
    assert set(ends) == {resend, longer}
    assert (longer - resend) in ((block, 0) if prompt % block == 0 else (0,))
    assert longer_only(prompt, block, True) == (longer,)


@given(prompt=PROMPTS, block=BLOCKS)
def test_without_a_drop_all_keep_the_last_boundary_that_leaves_a_token(prompt: int, block: int) -> None:
    last = frozenset({(prompt - 1) // block * block})
    for replays in (unshifted, longer_only, resend_and_longer, with_and_without_drop):
        assert floored(replays(prompt, block, False), block, block) == last


@given(prompt=PROMPTS, block=BLOCKS)
def test_unshifted_keeps_a_block_that_a_drafter_cannot_reach(prompt: int, block: int) -> None:
    (kept,) = floored(unshifted(prompt, block, True), block, block)
    assert kept == (prompt - 1) // block * block
    assert kept in with_and_without_drop(prompt, block, True)
    assert max(kept - block, 0) in with_and_without_drop(prompt, block, True)


@pytest.mark.parametrize(
    ("interval", "kept"),
    [(None, [16, 32, 48, 64]), (0, []), (16, [16, 32, 48, 64]), (32, [32, 64]), (48, [48])],
)
def test_an_interval_keeps_its_multiples(interval: int | None, kept: list[int]) -> None:
    assert [end for end in (16, 32, 48, 64) if on_grid(end, 16, interval)] == kept


def test_what_is_asked_for_is_in_force_where_the_rule_knows_it() -> None:
    force = {}
    for name, rule in RETENTION.items():
        assert isinstance(rule, Retention)
        force[name] = [rule.interval(asked) for asked in (None, 0, 64)]
    assert force.pop("dense") == [None, None, None]
    assert force.pop("boundaries-only") == [0, 0, 0]
    assert all(found == [None, 0, 64] for found in force.values())


KEEPERS = {
    "align": Group("states", "recurrent", 16),
    "all": Group("states", "recurrent", 16, mamba_cache_mode="all"),
    "window": Group("window", "full-attention", 16, sliding_window=17),
    "attention": Group("attention", "full-attention", 16),
}


class Published(Observer):
    """The ends of recurrent blocks that are advertised."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.ends.append(offset)


def hits(preset: str, kinds: tuple[str, ...], interval: int | None) -> list[int]:
    """Five blocks and a token; then its first four, its first two and a half, all of it, with other tokens behind."""
    groups = tuple(KEEPERS[kind] for kind in kinds)
    options = Options(
        groups, preset=preset, max_num_batched_tokens=16, prefix_cache_retention_interval=interval, clock="steps"
    )
    prompts = [((1, n), (9, 3)) if i else ((1, n),) for i, n in enumerate((81, 64, 40, 81))]
    outcome = drive(options, [Arrival(f"r{i}", i, 10 * i, prompt) for i, prompt in enumerate(prompts)])
    assert not outcome.poisoned
    return list(outcome.hits.values())


@pytest.mark.parametrize("mode", ["align", "all"])
def test_both_modes_keep_what_an_interval_keeps(mode: str) -> None:
    found = {}
    for interval in (None, 0, 16, 32, 48):
        heard = Published()
        options = Options(
            (KEEPERS[mode],),
            preset="vllm-0.29.0",
            max_num_batched_tokens=16,
            prefix_cache_retention_interval=interval,
            clock="steps",
        )
        drive(options, [Arrival("a", 0, 0, ((1, 81),))], observers=[heard])
        found[interval] = heard.ends
    assert found == {None: [16, 32, 48, 64, 80], 0: [80], 16: [16, 32, 48, 64, 80], 32: [32, 64, 80], 48: [48, 80]}


@pytest.mark.parametrize("preset", ["vllm-0.29.0", "vllm-0.33.0"])
@pytest.mark.parametrize(
    "kinds",
    [("align",), ("window",), ("attention", "align"), ("attention", "window"), ("attention", "window", "align")],
    ids="+".join,
)
def test_a_window_keeps_whole_rows_where_a_state_is_kept(preset: str, kinds: tuple[str, ...]) -> None:
    """The hits of the releases, asked of them."""
    asked = {interval: hits(preset, kinds, interval) for interval in (None, 0, 32, 64)}
    assert asked == {None: [0, 64, 32, 80], 0: [0, 0, 0, 80], 32: [0, 64, 32, 80], 64: [0, 64, 0, 80]}


def test_full_attention_keeps_all_whatever_the_interval_is() -> None:
    assert [hits("vllm-0.29.0", ("attention",), interval) for interval in (None, 0)] == [[0, 64, 32, 80]] * 2


def test_in_all_mode_a_longer_prompt_hits_only_what_was_retained() -> None:
    """As vLLM 0.29.0, which keeps 48 of a prompt of 64: where a resend of it starts."""
    options = Options((KEEPERS["all"],), preset="vllm-0.29.0", prefix_cache_retention_interval=0, clock="steps")
    prompts = [((1, 64),), ((1, 48), (2, 9)), ((1, 64), (3, 5))]
    outcome = drive(options, [Arrival("abc"[i], i, 5 * i, prompt) for i, prompt in enumerate(prompts)])
    assert outcome.hits == {"a": 0, "b": 48, "c": 48} and outcome.claims == 2


@pytest.mark.parametrize("preset", ["vllm-0.26.0", "vllm-0.28.0"])
def test_a_release_without_the_option_takes_the_interval_from_its_environment(preset: str) -> None:
    asked = {interval: hits(preset, ("attention", "align"), interval) for interval in (None, 0, 32, 64)}
    assert asked == {None: [0, 64, 32, 80], 0: [0, 0, 0, 80], 32: [0, 64, 32, 80], 64: [0, 64, 0, 80]}


@pytest.mark.parametrize(("preset", "kept"), [("vllm-0.28.0", 96), ("vllm-0.29.0", 160)])
def test_what_a_resend_needs_is_a_whole_scheduler_block_to_0_28(preset: str, kept: int) -> None:
    """States have blocks of 32, attention has 48, and a hit may end at any 16: the tail is published too."""
    heard = Published()
    groups = (Group("attention", "full-attention", 48), Group("states", "recurrent", 32))
    options = Options(
        groups,
        preset=preset,
        max_num_batched_tokens=32,
        prefix_cache_retention_interval=0,
        cache_config_block_size=32,
        clock="steps",
    )
    drive(options, [Arrival("a", 0, 0, ((1, 190),))], observers=[heard])
    assert sorted(set(heard.ends)) == [kept, 176]


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({}, [0, 0, 0, 80]),
        ({"window": None}, [0, 0, 0, 80]),
        ({"states": None}, [0, 0, 0, 80]),
        ({"window": None, "states": None}, [0, 64, 32, 80]),
        ({"window": 32, "states": 32}, [0, 64, 32, 80]),
        ({"window": 32, "states": 64}, [0, 64, 0, 80]),
    ],
)
def test_an_interval_of_a_group_is_its_own(own: dict[str, int | None], found: list[int]) -> None:
    """A hit is where all groups have kept something."""
    groups = tuple(KEEPERS[kind] for kind in ("attention", "window", "align"))
    options = Options(
        groups,
        preset="vllm-0.29.0",
        max_num_batched_tokens=16,
        prefix_cache_retention_interval=0,
        group_retention_intervals=own,
        clock="steps",
    )
    prompts = [((1, n), (9, 3)) if i else ((1, n),) for i, n in enumerate((81, 64, 40, 81))]
    outcome = drive(options, [Arrival(f"r{i}", i, 10 * i, prompt) for i, prompt in enumerate(prompts)])
    assert list(outcome.hits.values()) == found
    assert not outcome.poisoned
