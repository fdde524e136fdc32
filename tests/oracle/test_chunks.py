"""I2, I6 and I17: how chunks start and end; each law is broken by a hand-made run, and kept by the nearest one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import GDN_GROUP, B, Story, clean

from stateat.oracle.chunks import CAUSES


@given(start=st.integers(0, 60), length=st.integers(1, 60))
def test_i2_a_chunk_that_starts_inside_a_block_ends_within_it(start: int, length: int) -> None:
    end = start + length
    story = Story()
    story.arrive("a", prompt=end)
    story.auditor.requests["a"].next = start
    story.step(lambda: story.auditor.chunk("a", start, end, 0, "", 0, ()))
    crosses = start % B != 0 and end > (start // B + 1) * B
    assert story.invariants == (["I2"] if crosses else [])
    assert story.auditor.counts.mid_block == crosses


def test_i2_says_where_the_chunk_should_have_ended() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 4, -1, (4, 7), stop="junction"))
    story.step(story.run("a", 4, 40, 7, (40, 9)))
    (found,) = story.findings
    assert (found.severity, found.claimed, found.held, found.group, found.column) == ("shape", 16, 40, "gdn", 0)
    assert story.auditor.counts.poisoned == 0


def test_i2_a_decode_row_may_cross_a_boundary() -> None:
    story = Story(drafts=3)
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    drafts = story.outputs_of("a", 16, 3)
    story.step(story.run("a", 15, 19, 7, (16, 7), (17, 8), (18, 9), (19, 10), drafts=drafts))
    assert story.findings == ()


def off_grid(stop: str = "", end: int = 10, prompt: int = 38, **options: object) -> Story:
    story = Story(**options)  # type: ignore[arg-type]
    story.arrive("a", prompt=prompt)
    return story.step(story.admit("a"), story.run("a", 0, end, -1, (end, 7), stop=stop))


@pytest.mark.parametrize("stop", ["", "budget", "threshold", "split", "mid-block", "last-cache-position"])
def test_i2_an_end_off_the_grid_without_a_cause_is_told(stop: str) -> None:
    (found,) = off_grid(stop).findings
    assert (found.invariant, found.severity, found.held) == ("I2", "shape", 10)
    assert off_grid(stop).auditor.counts.mid_block == 0


@pytest.mark.parametrize("stop", CAUSES)
def test_i2_an_end_off_the_grid_with_a_cause_is_not(stop: str) -> None:
    assert off_grid(stop).findings == ()


def test_the_causes_of_an_end_off_the_grid_are_those_of_the_design() -> None:
    assert sorted(CAUSES) == ["checkpoint", "encoder", "junction", "look-ahead", "partial-tail", "snapshot-point"]


def test_i2_the_prompts_last_hash_unit_is_a_cause_and_its_neighbours_are_not() -> None:
    told = [end for end in range(33, 38) if off_grid("budget", end).invariants]
    assert told == [33, 34, 35, 37]


def test_i2_the_prefills_end_and_the_grid_are_never_told() -> None:
    for end in (16, 32, 38):
        assert off_grid("budget", end).findings == ()


def test_i2_a_block_wider_than_any_chunk_may_be_is_a_cause() -> None:
    assert off_grid("budget", cap=15).findings == ()
    assert off_grid("budget", cap=16).invariants == ["I2"]
    assert off_grid("budget", cap=16, threshold=15).findings == ()
    assert off_grid("budget", cap=15, threshold=16).findings == ()


def test_i2_without_prefix_caching_no_grid_is_kept() -> None:
    assert off_grid("budget", enable_prefix_caching=False).findings == ()


@pytest.mark.parametrize(("enabled", "found"), [(True, ["I2"]), (False, [])])
def test_i2_without_prefix_caching_a_block_may_be_crossed(enabled: bool, found: list[str]) -> None:
    """Nothing is published, so that no claim can be wrong."""
    story = Story(enable_prefix_caching=enabled)
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 4, -1, (4, 7), stop="junction"))
    story.step(story.run("a", 4, 40, 7, (40, 9)))
    assert story.invariants == found
    assert story.auditor.counts.mid_block == len(found)


def test_i6_tokens_that_run_twice() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(lambda: story.auditor.chunk("a", 8, 16, 0, "", 0, ()))
    (found,) = story.findings
    assert (found.invariant, found.severity, found.claimed, found.held) == ("I6", "poison", 16, 8)
    assert "[8, 16) run twice" in found.message


def test_i6_tokens_that_never_run() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(lambda: story.auditor.chunk("a", 32, 40, 0, "", 0, ()))
    (found,) = story.findings
    assert (found.invariant, found.claimed, found.held) == ("I6", 16, 32)
    assert "[16, 32) run never" in found.message


@given(accepted=st.integers(0, 3), told=st.integers(0, 3))
def test_i6_a_request_goes_on_behind_its_accepted_drafts(accepted: int, told: int) -> None:
    story = Story(drafts=3)
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    drafts = story.outputs_of("a", 16, 3)
    writes = ((16, 7), (17, 8), (18, 9), (19, 10))
    story.step(
        story.run("a", 15, 19, 7, *writes, drafts=drafts), story.accept("a", 3, told), story.output("a", told + 1)
    )
    start = 16 + accepted
    story.step(story.run("a", start, start + 1, 7 + accepted, (start + 1, 7 + accepted)))
    assert story.invariants.count("I6") == (accepted != told)
    assert accepted != told or not story.findings


def test_i6_a_preempted_request_starts_again_from_what_it_restores() -> None:
    for start, told in ((16, []), (0, ["I17", "I6"])):
        story = clean()
        story.step(lambda s=story: s.auditor.preempt("a"))
        story.step(story.admit("a", 16, 7), lambda s=story, n=start: s.auditor.chunk("a", n, 32, 0, "", 0, ()))
        assert story.invariants == told


def test_i17_reported_hits_are_the_tokens_skipped() -> None:
    for hit, told in ((16, []), (12, ["I17"]), (32, ["I17"])):
        story = clean()
        story.arrive("b", seed=1)
        story.step(
            lambda s=story, n=hit: s.auditor.admit("b", n, 0, False),
            lambda s=story: s.auditor.restore("b", GDN_GROUP, 7, 0, 16, [16, 16]),
            story.copy("b", "pre", 7, 9),
            story.run("b", 16, 32, 9, (32, 9)),
        )
        assert story.invariants == told
        assert all(f.severity == "honesty" and (f.claimed, f.held) == (hit, 16) for f in story.findings)


def test_i17_a_request_that_starts_from_nothing_runs_no_token_twice_whatever_was_reported() -> None:
    story = clean()
    story.arrive("b", seed=1)
    story.step(lambda: story.auditor.admit("b", 0, 16, False), story.run("b", 0, 16, -1, (16, 9)))
    (found,) = story.findings
    assert (found.invariant, found.claimed, found.held) == ("I17", 16, 0)
