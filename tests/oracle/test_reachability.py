"""I4: boundaries that nobody can hit are counted, and those that somebody can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from stories import poisoned, prefilled


@given(st.sets(st.sampled_from((16, 32, 48))), st.integers(48, 63))
def test_i4_boundaries_that_nobody_claimed_are_null_and_the_others_live(claims: set[int], prompt: int) -> None:
    story = prefilled(*claims, prompt=prompt)
    counts = story.auditor.counts
    assert story.findings == ()
    assert (counts.null_boundaries, counts.materialized_boundaries) == (3 - len(claims), len(claims))


def test_i4_a_boundary_past_the_prompt_does_not_count() -> None:
    assert prefilled(prompt=47).auditor.counts.null_boundaries == 2
    assert prefilled(prompt=48).auditor.counts.null_boundaries == 3


def test_i4_a_boundary_that_was_claimed_once_is_not_null_and_no_longer_live() -> None:
    story = prefilled(16)
    story.step(story.unclaim(7, "a@16"))
    story.arrive("b", prompt=20, seed=1)
    story.step(story.admit("b"), story.run("b", 0, 20, -1, (20, 30), stop="junction"), story.output("b"))
    counts = story.auditor.counts
    # Of a: 32 and 48 are null. Of b: 16 is neither null nor live.
    assert (counts.null_boundaries, counts.materialized_boundaries) == (2, 1)


def test_i4_a_poisoned_boundary_is_not_materialized() -> None:
    story = poisoned()
    story.step(story.run("a", 16, 40, 8, (40, 9)), story.output("a"))
    counts = story.auditor.counts
    assert (counts.null_boundaries, counts.materialized_boundaries) == (1, 0)


def test_i4_counts_each_prefill_once_at_its_first_output() -> None:
    story = prefilled(16)
    counted = story.auditor.counts.null_boundaries
    story.step(story.run("a", 50, 51, 10, (51, 10)), story.output("a"))
    assert story.auditor.counts.null_boundaries == counted == 2
