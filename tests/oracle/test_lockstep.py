"""The windows of convolutions follow what a worker does with them: I13, and its negative controls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import Story

from stateat.oracle.lockstep import Lockstep
from stateat.oracle.states import Arithmetic, family
from stateat.sim.tokens import Tokens

TAPS = 4
TOKENS = Tokens.explicit(list(range(100, 164)))


def true(offset: int) -> tuple[int, ...]:
    return tuple(range(100 + max(offset - TAPS + 1, 0), 100 + offset))


@given(st.lists(st.integers(1, 63), unique=True, max_size=8).map(sorted))
def test_after_any_chunks_a_slot_keeps_the_last_inputs(cuts: list[int]) -> None:
    steps = Lockstep(TAPS)
    for start, end in pairwise([0, *cuts, 64]):
        steps.advance(TOKENS, start, end, (), 7 if start else -1, 0, [(end, 7)], False)
        assert steps.held(7) == steps.window(TOKENS, end) == true(end)


@given(known=st.integers(1, 50), right=st.integers(0, 3), drafts=st.integers(1, 3))
def test_a_copy_that_shifts_by_the_accepted_drafts_has_their_inputs(known: int, right: int, drafts: int) -> None:
    right = min(right, drafts)
    steps = Lockstep(TAPS)
    if known > 1:
        steps.advance(TOKENS, 0, known - 1, (), -1, 0, [(known - 1, 7)], False)
    ids = [100 + known + j if j < right else 0 for j in range(drafts)]
    writes = [(known + j, 7 + j) for j in range(drafts + 1)]
    steps.advance(TOKENS, known - 1, known + drafts, ids, 7 if known > 1 else -1, 0, writes, True)
    assert steps.held(7) == true(known)
    steps.copy(7, 20, right)
    assert steps.held(20) == true(known + right)
    # The control: the same copy, not shifted.
    steps.copy(7, 21, 0)
    assert (steps.held(21) == true(known + right)) is (right == 0)


def test_the_next_row_reads_the_running_column_shifted() -> None:
    steps = Lockstep(TAPS)
    steps.advance(TOKENS, 0, 9, (), -1, 0, [(9, 7)], False)
    steps.advance(TOKENS, 9, 13, [110, 111, 5], 7, 0, [(10, 7), (11, 8), (12, 9), (13, 10)], True)
    # Two of three were right: the next row starts at 12.
    steps.advance(TOKENS, 12, 16, [0, 0, 0], 7, 2, [(13, 7), (14, 8), (15, 9), (16, 10)], True)
    assert steps.held(7) == true(13)
    # Shifted too little, it goes on from the inputs of a draft before.
    steps.advance(TOKENS, 9, 13, [110, 111, 5], 7, 0, [(10, 7), (11, 8), (12, 9), (13, 10)], True)
    steps.advance(TOKENS, 12, 13, (), 7, 1, [(13, 7)], False)
    assert steps.held(7) != true(13)


def test_what_was_never_written_or_is_overwritten_holds_nothing() -> None:
    steps = Lockstep(TAPS)
    assert steps.held(7) is None
    steps.load(7, TOKENS, 20)
    assert steps.held(7) == true(20)
    steps.erase([7])
    assert steps.held(7) is None
    steps.copy(7, 8, 0)
    assert steps.held(8) is None
    steps.advance(TOKENS, 20, 30, (), 7, 0, [(30, 9)], False)
    assert steps.held(9) is None


def test_a_tier_gives_back_what_it_took() -> None:
    steps = Lockstep(TAPS)
    steps.load(7, TOKENS, 20)
    steps.store(7, (1, "k"))
    steps.load(7, TOKENS, 30)
    steps.fetch((1, "k"), 9)
    assert steps.held(9) == true(20)
    steps.fetch((1, "unknown"), 9)
    assert steps.held(9) is None


def test_a_state_on_the_way_of_a_row_has_its_own_inputs() -> None:
    steps = Lockstep(TAPS)
    steps.load(7, TOKENS, 15)
    steps.advance(TOKENS, 15, 40, (), 7, 0, [(16, 8), (32, 9), (40, 7)], False)
    assert (steps.held(8), steps.held(9), steps.held(7)) == (true(16), true(32), true(40))


@given(shift=st.integers(1, 5), drafts=st.integers(5, 7))
def test_a_shift_in_place_that_overlaps_leaves_no_window_and_one_that_does_not_is_right(
    shift: int, drafts: int
) -> None:
    steps = Lockstep(TAPS)
    steps.load(7, TOKENS, 20)
    ids, writes = TOKENS.ids[21 : 21 + drafts].tolist(), [(21 + j, 7 + j) for j in range(drafts + 1)]
    steps.advance(TOKENS, 20, 21 + drafts, ids, 7, 0, writes, True)
    steps.copy(7, 7, -shift)
    assert (steps.held(7) == true(21 + shift)) == (shift >= TAPS - 1)
    # The last inputs come from where nothing was written yet.
    held, own = steps.held(7), min(shift, TAPS - 1)
    assert held is not None
    assert held[-own:] == true(21 + shift)[-own:]


def test_a_shift_in_place_by_one_leaves_the_last_input_everywhere() -> None:
    """The last input is moved first: each place then takes what the one behind it was just given."""
    steps = Lockstep(TAPS)
    steps.load(7, TOKENS, 20)
    steps.advance(TOKENS, 20, 24, TOKENS.ids[21:24].tolist(), 7, 0, [(21 + j, 7 + j) for j in range(4)], True)
    steps.copy(7, 7, -1)
    assert steps.held(7) == true(22)[-1:] * (TAPS - 1)


@pytest.mark.parametrize("shift", [0, 1])
def test_i13_a_claimed_slot_whose_window_is_of_another_offset_is_torn(shift: int) -> None:
    """All three drafts are right; the boundary that they passed is kept, with its own inputs or those of the next."""
    story = Story(drafts=3, family=family("gated-delta", Arithmetic(backend="numpy")))
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    drafts = story.outputs_of("a", 16, 3)
    story.step(
        story.run("a", 15, 19, 7, (16, 7), (17, 8), (18, 9), (19, 10), drafts=drafts),
        story.accept("a", 3, 3),
        story.output("a", 4),
        story.copy("a", "post", 7, 30, shift=shift),
        story.claim(30, "a", 16),
    )
    found = [(f.invariant, f.severity, f.verdict, f.slot, f.claimed, f.held) for f in story.findings]
    assert found == [("I13", "poison", "torn", 30, 16, 16)] * shift
    assert story.auditor.counts.poisoned == 0
