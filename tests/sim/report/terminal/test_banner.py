"""The line before a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.report.terminal.banner import banner, folded, head
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival


def text(options: Options, live: bool = False) -> str:
    return " · ".join(head(options, live))


def test_the_head_is_one_line_with_grid_unit_prefix_and_pins(told: SimpleNamespace) -> None:
    options = Options(told.groups, speculative=Speculative("mtp", 3))
    assert banner("old gate", options, False, None) == (
        "old gate (prefill-end): grid 1600 · hash unit 16 · "
        "synchronous (vllm-0.27.0 servers default to async_scheduling) · "
        "minimum cacheable prefix 3200 tokens (alone, first repeat) · "
        "worker v1 (rules: {worker: v2} runs the other) · "
        "a request pins 5 blocks of gdn + 1 per 16 tokens of attention · "
        "alone it has room for 159,904 tokens in the pool of 10,000 blocks"
    )


def test_the_head_shows_the_grid_that_the_rule_picks(told: SimpleNamespace) -> None:
    assert text(Options(told.groups, cache_config_block_size=816)).startswith("grid 816 ")
    assert text(Options(told.groups, rules={"grid": "min-over-groups"})).startswith("grid 16 ")
    assert text(Options((Group("attention", "full-attention", 16),))).startswith("no recurrent group · ")


@pytest.mark.parametrize(("states", "said"), [(5, "4,784 tokens"), (4, "0 tokens")])
def test_states_of_a_pool_apart_leave_the_other_to_attention(told: SimpleNamespace, states: int, said: str) -> None:
    options = Options(told.groups, num_blocks=300, num_state_blocks=states, speculative=Speculative("mtp", 3))
    # K slots of the drafter are attention's too: 299 blocks of 16.
    assert text(options).endswith(f"alone it has room for {said} in the pool of 300 blocks, and {states} of states")


# Prompt lengths around the law, and whether a repeat hit, in the recordings of vLLM 0.27.0 (blocks 16 and 1600).
@pytest.mark.parametrize(
    ("options", "misses", "hits"),
    [
        ({"speculative": Speculative("mtp", 2)}, 3199, 3200),
        ({"speculative": Speculative("ngram", 0)}, 16, 718),
        ({"speculative": Speculative("mtp", 3), "partial_hits": False}, 3199, 3200),
    ],
)
def test_a_prompt_below_the_minimum_prefix_is_not_hit_again(
    told: SimpleNamespace, options: dict[str, object], misses: int, hits: int
) -> None:
    said = text(Options(told.groups, **options))  # type: ignore[arg-type]
    shortest = int(said.split("minimum cacheable prefix ")[1].split()[0])
    assert misses < shortest <= hits


def test_the_head_says_what_a_minimum_leaves_out(told: SimpleNamespace) -> None:
    """Lengths run by hand on 0.29 with an interval of 0: 1600 is kept for a prompt of 3200, and for none behind it."""
    kept = {"preset": "vllm-0.29.0", "prefix_cache_retention_interval": 0, "speculative": Speculative("mtp", 1)}
    assert "3200 tokens (alone, first repeat; some longer prompts miss)" in text(Options(told.groups, **kept))  # type: ignore[arg-type]
    short = Options(told.groups, speculative=Speculative("mtp", 1), max_model_len=3199)
    assert "3200 tokens (alone, first repeat; max_model_len is 3199)" in text(short)
    plain = tuple(Group(g.name, g.kind, g.block_size) for g in told.groups)
    popped = Options(plain, rules={"drafter_drop": "pop"}, speculative=Speculative("mtp", 1))
    assert "no prompt up to 8002 tokens is hit by its first repeat" in text(popped)
    assert "prefix caching off" in text(Options(told.groups, enable_prefix_caching=False))


def test_no_minimum_is_said_where_none_is_known(told: SimpleNamespace) -> None:
    options = Options(told.groups)
    assert "minimum" in text(options)
    assert "minimum" not in text(options, live=True)
    assert "minimum" not in text(Options(told.groups, rules={"split": "builtins:repr"}))
    assert "minimum" not in text(Options(told.groups, max_num_batched_tokens=1599))


def test_a_terminal_gets_lines_that_fit_and_a_pipe_one(told: SimpleNamespace) -> None:
    options = Options(told.groups, speculative=Speculative("mtp", 3))
    whole = banner("v", options, False, None)
    lines = banner("v", options, False, 80).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) > 1
    assert " · ".join(line.strip() for line in lines) == whole
    assert folded("v: ", ["one", "two"], 1) == "v: one\n  two"


def room(options: Options) -> int:
    return int(text(options).split("alone it has room for ")[1].split()[0].replace(",", ""))


def ends(options: Options, prompt: int) -> bool:
    """Whether a prompt of so many tokens, alone, comes to its end."""
    return drive(options, [Arrival("a", 0, 0, ((1, prompt),))]).finished == 1


@given(
    sizes=st.lists(st.sampled_from([2, 4, 8, 32]), min_size=1, max_size=3),
    state=st.sampled_from([None, "align", "all"]),
    window=st.sampled_from([None, 2, 9, 40]),
    scratch=st.booleans(),
    drafts=st.integers(0, 3),
    blocks=st.integers(60, 200),
    budget=st.sampled_from([16, 40, 100]),
    preset=st.sampled_from(["vllm-0.26.0", "vllm-0.29.0"]),
)
@settings(max_examples=40)
def test_what_a_request_has_room_for_runs_and_no_prompt_runs_that_all_blocks_together_could_not_hold(
    sizes: list[int],
    state: str | None,
    window: int | None,
    scratch: bool,
    drafts: int,
    blocks: int,
    budget: int,
    preset: str,
) -> None:
    groups = [Group(f"attention {i}", "full-attention", size) for i, size in enumerate(sizes)]
    if state:
        groups.append(Group("states", "recurrent", 8, mamba_cache_mode=state))
    if window:
        groups.append(Group("window", "full-attention", 4, sliding_window=window))
    if scratch:
        groups.append(Group("scratch", "full-attention", 4, prefix_cacheable=False))
    options = Options(
        tuple(groups),
        preset=preset,
        num_blocks=blocks,
        max_num_batched_tokens=budget,
        speculative=Speculative("mtp" if drafts else "ngram", drafts),
        partial_hits=False,
        clock="steps",
    )
    fits = room(options) - options.speculative.lookahead_tokens
    assert fits < 2 or ends(options, fits)
    full = [g.block_size for g in groups if not (g.recurrent or g.sliding_window)]
    never = next(n for n in range(blocks * min(full) + 1) if sum(-(-n // size) for size in full) >= blocks)
    assert fits < never and not ends(options, never)


def test_a_window_kept_in_small_blocks_does_not_bound_what_full_attention_holds() -> None:
    groups = (
        Group("attention", "full-attention", 640),
        Group("window", "full-attention", 4, sliding_window=8),
    )
    options = Options(groups, preset="vllm-0.26.0", num_blocks=2232)
    assert "up to 2,051 blocks of window + 1 per 640 tokens of attention" in text(options)
    assert room(options) == (2231 - 2051) * 640 and ends(options, 60_000)


def test_a_window_alone_has_no_end_of_its_own() -> None:
    assert "has room" not in text(Options((Group("window", "full-attention", 4, sliding_window=8),)))


def test_a_number_of_one_is_no_plural_and_a_name_stays_one_line() -> None:
    said = banner("a\nb", Options((Group("attention", "full-attention", 1),), num_blocks=2), False, None)
    assert said.startswith("a b (")
    assert "1 per 1 token of attention · alone it has room for 1 token in the pool of 2 blocks" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "synchronous (vllm-0.27.0 servers default to async_scheduling)"),
        ({"async_scheduling": True}, "asynchronous scheduling (2 steps in flight)"),
        ({"async_scheduling": "auto"}, "asynchronous scheduling (2 steps in flight)"),
        ({"async_scheduling": True, "max_concurrent_batches": 3}, "asynchronous scheduling (3 steps in flight)"),
        ({"speculative": Speculative("ngram", 2)}, "synchronous"),
        ({"speculative": Speculative("ngram", 2), "async_scheduling": "auto"}, "synchronous"),
        ({"max_concurrent_batches": 3}, "pipeline of 3 (vllm-0.27.0 servers default to async_scheduling)"),
        ({"max_concurrent_batches": 3, "speculative": Speculative("suffix", 2)}, "pipeline of 3"),
    ],
)
def test_the_head_says_how_steps_follow_each_other_and_how_a_server_would(
    told: SimpleNamespace, options: dict[str, object], said: str
) -> None:
    assert head(Options(told.groups, **options))[2] == said  # type: ignore[arg-type]
    assert not any("synchronous" in part for part in head(Options(told.groups, **options), live=True))  # type: ignore[arg-type]
