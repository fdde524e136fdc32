"""I11: the slot that is taken next tells the accepted count that was applied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from stories import Story

from stateat.oracle.acceptance import Acceptance, Misapplied

WRITES = [(21, 5), (22, 6), (23, 7), (24, 8)]


def judged(kept: int) -> Acceptance:
    acceptance = Acceptance()
    acceptance.row("a", 1, WRITES, 1)
    acceptance.verified("a", [1], kept)
    return acceptance


@given(kept=st.integers(1, 4), applied=st.integers(1, 4))
def test_only_the_slot_of_the_last_token_kept_is_its_own(kept: int, applied: int) -> None:
    found = judged(kept).taken("a", 1, WRITES[applied - 1][1])
    assert found == (None if applied == kept else Misapplied(applied, kept))


@given(kept=st.integers(1, 4))
def test_a_slot_that_the_row_did_not_write_is_no_count_at_all(kept: int) -> None:
    assert judged(kept).taken("a", 1, 99) == Misapplied(0, kept)


def test_a_copy_of_the_own_state_may_be_taken_instead_and_one_of_another_not() -> None:
    for source, found in ((7, None), (6, Misapplied(0, 3))):
        acceptance = judged(3)
        acceptance.copied("a", 1, source, 40)
        assert acceptance.taken("a", 1, 40) == found


def test_a_row_with_one_state_has_nothing_to_count() -> None:
    acceptance = Acceptance()
    acceptance.row("a", 1, [(20, 5)], 1)
    assert acceptance.taken("a", 1, 99) is None


def test_who_starts_from_elsewhere_is_forgotten() -> None:
    acceptance = judged(3)
    acceptance.forget("a", [1])
    assert acceptance.taken("a", 1, 5) is None


def test_groups_and_requests_are_kept_apart() -> None:
    acceptance = judged(3)
    assert acceptance.taken("a", 2, 5) is None and acceptance.taken("b", 1, 5) is None
    assert acceptance.taken("a", 1, 5) == Misapplied(1, 3)


@given(kept=st.integers(0, 3), applied=st.integers(0, 3))
def test_i11_a_row_that_goes_on_from_another_slot_is_told_with_both_counts(kept: int, applied: int) -> None:
    story = Story(drafts=3)
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    drafts = story.outputs_of("a", 16, 3)
    writes = ((16, 7), (17, 8), (18, 9), (19, 10))
    story.step(
        story.run("a", 15, 19, 7, *writes, drafts=drafts), story.accept("a", 3, kept), story.output("a", kept + 1)
    )
    start = 16 + kept
    story.step(story.run("a", start, start + 1, 7 + applied, (start + 1, 20)))
    found = [(f.severity, f.claimed, f.held) for f in story.findings if f.invariant == "I11"]
    assert found == [("shape", kept + 1, applied + 1)] * (kept != applied)
