"""The shortest prompt that a repeat hits, against running every length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.explain.shortest import Shortest, lengths, repeat_hits, shortest_repeat
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.rules import RULES
from stateat.sim.releases.support import lacks
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

SIZES = [
    (4, 16, None),
    (16, 16, None),
    (16, 16, 4),
    (8, 12, 4),
    (16, 8, None),
    (4, 16, 2),
    (32, 16, None),
    (5, 5, 1),
    (8, 64, None),
]


@st.composite
def configurations(draw: st.DrawFn) -> Options:
    """Any release, drafter, retention and budget; half of them with one rule of another."""
    attention, recurrent, unit = draw(st.sampled_from(SIZES))
    mode = draw(st.sampled_from(["align", "align", "align", "all"]))
    groups = [
        Group("attention", "full-attention", attention, draw(st.booleans())),
        Group("gdn", "recurrent", recurrent, mamba_cache_mode=mode),
    ]
    if draw(st.integers(0, 5)) == 0:
        groups.append(Group("window", "full-attention", attention, sliding_window=draw(st.sampled_from([3, 20]))))
    speculative = Speculative()
    if draw(st.booleans()):
        speculative = Speculative(
            draw(st.sampled_from(["mtp", "ngram", "dflash"])),
            draw(st.integers(1, 5)),
            multi_module=draw(st.integers(0, 3)) == 0,
            block_drop=draw(st.integers(0, 3)) > 0,
        )
    rule = draw(st.sampled_from([None, *RULES]))
    wide = max(attention, recurrent)
    options = Options(
        tuple(groups),
        preset=draw(st.sampled_from(list(PRESETS))),
        rules={rule: draw(st.sampled_from(list(RULES[rule])))} if rule else {},
        num_blocks=300,
        prefix_match_unit=unit,
        partial_hits=draw(st.booleans()),
        max_num_batched_tokens=draw(st.sampled_from([200, 200, 40, 12]) | st.integers(recurrent, 4 * wide)),
        long_prefill_token_threshold=draw(st.just(0) | st.integers(wide, 2 * wide) | st.integers(recurrent, 4 * wide)),
        prefix_cache_retention_interval=draw(st.sampled_from([None, None, 0, recurrent, 3 * recurrent, 7 * recurrent])),
        num_prefill_checkpoint_blocks=draw(st.integers(0, 1)),
        shared_prefix_checkpoint=draw(st.booleans()),
        speculative=speculative,
        clock="steps",
    )
    assume(not any(lacks(options, table(options.preset, options.rules))))
    return options


@given(configurations())
def test_what_is_said_is_the_first_length_that_hits(options: Options) -> None:
    found = shortest_repeat(options)
    if found is not None:
        assert found.tokens in (None, found.tried)
        assert [n for n in range(1, found.tried + 1) if repeat_hits(options, n)] == [found.tokens] * (
            found.tokens is not None
        )


@given(configurations(), st.integers(1, 60))
def test_the_lengths_are_run_as_a_replay_runs_them(options: Options, tokens: int) -> None:
    """Beside the oracle, with blocks to spare."""
    sent = [Arrival("a", 0, 0, ((1, tokens),)), Arrival("b", 1, 0, ((1, tokens),), after="a")]
    assert repeat_hits(options, tokens) == (drive(options, sent).hit_tokens > 0)


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("sizes", [(16, 64, None), (64, 64, None), (64, 64, 16), (32, 48, 16)])
@pytest.mark.parametrize("drafter", [{}, {"method": "mtp"}, {"method": "mtp", "block_drop": False}])
def test_every_release_has_a_shortest_prompt(
    preset: str, sizes: tuple[int, int, int | None], drafter: dict[str, Any]
) -> None:
    attention, recurrent, unit = sizes
    options = Options(
        (Group("attention", "full-attention", attention, True), Group("gdn", "recurrent", recurrent)),
        preset=preset,
        prefix_match_unit=unit,
        speculative=Speculative(num_speculative_tokens=2, **drafter) if drafter else Speculative(),
    )
    if any(lacks(options, table(preset, {}))):
        pytest.skip("the release has no such option")
    found = shortest_repeat(options)
    assert found is not None
    if preset in ("vllm-0.30.0", "vllm-0.31.0") and "block_drop" in drafter and sizes == (64, 64, None):
        # A flagged group's lookup gives a block up all the same, and the split leaves no state there.
        assert found.tokens is None
        return
    assert found.tokens is not None
    assert [repeat_hits(options, n) for n in (found.tokens - 1, found.tokens)] == [False, True]


@pytest.mark.parametrize(("preset", "tokens"), [("vllm-0.26.0", 128), ("vllm-0.27.0", 75), ("vllm-0.29.0", 75)])
def test_a_threshold_between_two_boundaries_moves_the_shortest_prompt(preset: str, tokens: int) -> None:
    groups = (Group("attention", "full-attention", 8), Group("gdn", "recurrent", 64))
    speculative = Speculative("mtp", 5)
    options = Options(groups, preset=preset, long_prefill_token_threshold=74, speculative=speculative)
    assert shortest_repeat(options) == Shortest(tokens, tokens)
    assert [repeat_hits(options, n) for n in (tokens - 1, tokens)] == [False, True]


def test_a_budget_of_few_blocks_does_too() -> None:
    groups = (
        Group("r0", "recurrent", 1),
        Group("a0", "full-attention", 2, True),
        Group("a1", "full-attention", 3, sliding_window=4),
    )
    options = Options(groups, preset="vllm-0.28.0", max_num_batched_tokens=10, speculative=Speculative("mtp", 5))
    assert shortest_repeat(options) == Shortest(33, 33)


def test_nothing_is_said_of_prompts_that_are_too_long_to_try() -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 500_000))
    options = Options(groups, partial_hits=False, max_num_batched_tokens=500_000)
    assert lengths(options)[0] > 400_000
    assert shortest_repeat(options) is None


def test_a_gap_is_a_longer_prompt_that_misses() -> None:
    """Without a drafter nothing ends a chunk at the boundary before an exact multiple on 0.27; on 0.33 it does."""
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
    old, new = (Options(groups, preset=preset, partial_hits=False) for preset in ("vllm-0.27.0", "vllm-0.33.0"))
    assert shortest_repeat(old) == Shortest(65, 65, gaps=True)
    assert [repeat_hits(old, n) for n in (65, 127, 128)] == [True, True, False]
    assert shortest_repeat(new) == Shortest(65, 65)
    assert all(repeat_hits(new, n) for n in range(65, 200))


def test_a_search_that_takes_too_long_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 80))
    options = Options(groups, partial_hits=False, speculative=Speculative("mtp", 1))
    found = shortest_repeat(options)
    assert found is not None and found.tokens == 160
    before = [n for n in lengths(options) if n < 160]
    monkeypatch.setattr("stateat.sim.explain.shortest.MAX_TOKENS", sum(before))
    monkeypatch.setattr("stateat.sim.explain.shortest._found", {})
    assert shortest_repeat(options) == Shortest(None, before[-1])
