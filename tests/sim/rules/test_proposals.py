"""Splits that were proposed, or that came before: the published figures, and what each law is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.split import Chunk, Cut
from stateat.sim.rules.splits import SPLIT
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

B = 16
GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", B))
OPTIONS = Options(GROUPS, clock="steps")


def cut(name: str, chunk: Chunk) -> Cut:
    answer = RULES["split"][name](chunk)  # type: ignore[operator]
    assert isinstance(answer, Cut)
    return answer


def ends(
    split: str, prompt: int, budgets: Sequence[int], block: int = B, drop: bool = False, **more: object
) -> list[int]:
    """Where the chunks of a prompt end, given what it is offered step by step (the last offer repeats)."""
    start, found = 0, list[int]()
    for step in range(200):
        offered = min(budgets[min(step, len(budgets) - 1)], prompt - start)
        chunk = Chunk(start, offered, prompt, prompt, prompt, block, 0, 65_536, drop, 0, 0)
        start += cut(split, replace(chunk, **more)).tokens  # type: ignore[arg-type]
        if start and start not in found:
            found.append(start)
        if start == prompt:
            return found
    raise AssertionError("no progress")


def hit_of_a_repeat(split: str, prompt: int, longer: int = 0, **engine: object) -> int:
    """Tokens that a prompt hits when it is sent again, with ``longer`` tokens behind it."""
    options = replace(OPTIONS, rules={"split": split}, **engine)  # type: ignore[arg-type]
    tail = ((2, longer),) if longer else ()
    outcome = drive(options, [Arrival("a", 0, 0, ((1, prompt),)), Arrival("b", 1, 40, ((1, prompt), *tail))])
    assert not outcome.poisoned
    return outcome.hits["b"]


# The published figures.


def test_a8_floored_sizes_carry_an_odd_start_along_and_floored_positions_do_not() -> None:
    assert ends("size-floor", 128, (10, 50)) == [10, 58, 106, 128]
    assert ends("prefill-end", 128, (10, 50), private=True) == [10, 16, 64, 112, 128]
    assert ends("prefill-end", 128, (10, 50)) == [48, 96, 128]


@pytest.mark.parametrize(
    ("prompt", "before", "after"), [(31, 16, 16), (32, 0, 16), (33, 32, 32), (48, 0, 32), (64, 0, 48)]
)
def test_e8_an_exact_multiple_is_hit_a_block_below(prompt: int, before: int, after: int) -> None:
    assert hit_of_a_repeat("prefill-end", prompt) == before
    assert hit_of_a_repeat("replay-boundary", prompt) == after
    # Whoever sends more was served before, too.
    assert hit_of_a_repeat("prefill-end", prompt, longer=1) == hit_of_a_repeat("replay-boundary", prompt, longer=1)


@pytest.mark.parametrize(("prompt", "legacy", "retained"), [(13, 8, 12), (12, 8, 8)])
def test_d7_the_last_block_is_kept_if_a_tail_follows(prompt: int, legacy: int, retained: int) -> None:
    assert ends("prefill-end", prompt, (prompt,), block=4, drop=True) == [legacy, prompt]
    assert ends("retain-mtp-block", prompt, (prompt,), block=4, drop=True) == [retained, prompt]


def test_a7_a_replay_with_outputs_is_not_split() -> None:
    chunk = Chunk(0, 20, 48, 40, 49, B, 0, 20, False, 0, 0)
    assert cut("new-requests-only", chunk) == (20, "")
    assert cut("prefill-end", chunk) == (16, "block-boundary")
    assert cut("new-requests-only", replace(chunk, num_tokens=40, prefill_end=40)) == (16, "block-boundary")


def test_a_block_a_step_keeps_a_fragment_where_every_boundary_waits() -> None:
    assert ends("granular", 2002, (364, 2002), 1600, drop=True) == [364, 1600, 2002]
    assert ends("every-boundary", 2002, (364, 2002), 1600, drop=True) == [1600, 2002]


def test_e2_a_snapshot_point_is_one_more_stop_on_the_grid() -> None:
    assert ends("snapshot-points", 4900, (8192,), 528, snapshots=(900,)) == [528, 4752, 4900]
    assert ends("snapshot-points", 4900, (8192,), 528, snapshots=(900, 1600)) == [528, 1584, 4752, 4900]
    # In the first block there is no boundary yet; and nobody else looks.
    assert ends("snapshot-points", 4900, (8192,), 1600, snapshots=(900,)) == [4800, 4900]
    assert ends("prefill-end", 4900, (8192,), 528, snapshots=(900,)) == [4752, 4900]
    # Where a state inside a block can be kept, at the hash unit; and from there to the block's end.
    exact = {"hash_unit": 16, "exact_snapshots": True}
    assert ends("snapshot-points", 4900, (8192,), 528, snapshots=(905,), **exact) == [896, 1056, 4752, 4896, 4900]


# Laws.


@given(st.integers(1, 400), st.booleans())
def test_a_repeat_hits_the_last_boundary_that_leaves_a_token(prompt: int, fine: bool) -> None:
    """floor((N - 1) / b) * b, with a budget that takes any prompt at once."""
    groups = (Group("attention", "full-attention", 16 if not fine else 8), GROUPS[1])
    boundary = (prompt - 1) // B * B
    assert hit_of_a_repeat("replay-boundary", prompt, groups=groups, partial_hits=False) == boundary
    # The control: without the stop an exact multiple gets nothing.
    expected = 0 if prompt % B == 0 else boundary
    assert hit_of_a_repeat("prefill-end", prompt, groups=groups, partial_hits=False) == expected


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    prompt, outputs = draw(st.integers(1, 200)), draw(st.integers(0, 40))
    end = max(prompt, prompt + outputs - 1)
    start, cap = draw(st.integers(0, end - 1)), draw(st.integers(1, 250))
    offered = draw(st.integers(1, min(cap, max(prompt + outputs - start, 1))))
    return Chunk(
        start,
        offered,
        end,
        prompt,
        prompt + outputs,
        draw(st.sampled_from([4, 16, 48, 64])),
        draw(st.sampled_from([0, 2, 4])),
        cap,
        draw(st.booleans()),
        0,
        draw(st.integers(0, 200)),
        private=draw(st.sampled_from([None, False, True])),
        snapshots=tuple(draw(st.lists(st.integers(1, 200), max_size=3))),
    )


@pytest.mark.parametrize("name", SPLIT)
@given(chunk=chunks())
def test_a_split_gives_no_more_than_was_offered_and_names_its_stop(name: str, chunk: Chunk) -> None:
    answer = cut(name, chunk)
    assert 0 <= answer.tokens <= chunk.offered
    assert bool(answer.stop) == (answer.tokens < chunk.offered)


@pytest.mark.parametrize("name", ["replay-boundary", "retain-mtp-block", "snapshot-points", "no-back-off"])
@given(chunk=chunks())
def test_a_start_inside_a_block_ends_with_it(name: str, chunk: Chunk) -> None:
    if chunk.start % chunk.block:
        assert chunk.start + cut(name, chunk).tokens <= (chunk.start // chunk.block + 1) * chunk.block


@given(chunk=chunks())
def test_a_granular_chunk_never_runs_past_a_boundary(chunk: Chunk) -> None:
    assert chunk.start + cut("granular", chunk).tokens <= (chunk.start // chunk.block + 1) * chunk.block


@pytest.mark.parametrize("name", ["replay-boundary", "snapshot-points"])
@given(chunk=chunks())
def test_more_stops_only_shorten(name: str, chunk: Chunk) -> None:
    assert cut(name, chunk).tokens <= cut("prefill-end", chunk).tokens


@given(chunk=chunks())
def test_a_new_request_is_split_as_ever(chunk: Chunk) -> None:
    chunk = replace(chunk, num_tokens=chunk.num_prompt, prefill_end=chunk.num_prompt)
    if chunk.start < chunk.prefill_end:
        assert cut("new-requests-only", chunk) == cut("prefill-end", chunk)


def test_the_laws_are_broken_by_the_others() -> None:
    """Negative controls."""
    chunk = Chunk(10, 50, 128, 128, 128, B, 0, 250, False, 0, 0)
    assert chunk.start + cut("size-floor", chunk).tokens == 58
    replayed = replace(chunk, num_tokens=129)
    assert chunk.start + cut("new-requests-only", replayed).tokens == 60
