"""Who may read and write which slot, and when: each law is broken by a hand-made run, and kept by the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import GDN_GROUP, Story

from stateat.sim.events import Finding, Withdrawal

Act = Callable[[Story], Callable[[], None]]


def story(*steps: Sequence[Act], depth: int = 1, interval: int | None = None, **more: int) -> list[Finding]:
    """Steps of three requests with one text; returns what I7, I8, I9 and I16 found."""
    told = Story(max_concurrent_batches=depth, prefix_cache_retention_interval=interval, **more)
    told.arrive("a", "b", "c", prompt=200, seed=1)
    for acts in steps:
        told.step(*(act(told) for act in acts))
    return [f for f in told.findings if f.invariant in ("I7", "I8", "I9", "I16")]


def told_by(method: str) -> Callable[..., Act]:
    """An act that a story tells with its method of this name, once there is a story."""
    return partial(methodcaller, method)


admit, take, release, preempt, abort = map(told_by, ("admit", "take", "release", "preempt", "abort"))
claim, unclaim, chunk, forward, run = map(told_by, ("claim", "unclaim", "chunk", "forward", "run"))
copy, launch = map(told_by, ("copy", "launch"))

WRITER = (admit("a"), take("a", 3), claim(3, "a", 16))
TELLS = release("c", 90)
"""A run that says what is let go of: a log need not."""


@pytest.mark.parametrize("same_step", [True, False])
def test_i7_a_state_is_read_by_others_once_its_step_has_committed(same_step: bool) -> None:
    reader = (admit("b", 16, 3), take("b", 4), copy("b", "pre", 3, 4))
    writes, reads = run("a", 0, 16, -1, (16, 3)), run("b", 16, 32, 4, (32, 4))
    if same_step:
        found = story((*WRITER, *reader, writes, reads))
        assert [(f.invariant, f.severity, f.request, f.claimed, f.slot) for f in found] == [
            ("I7", "hazard", "b", 16, 3)
        ]
    else:
        assert story((*WRITER, writes), (*reader, reads)) == []


def test_i7_reading_after_the_write_of_the_same_step_is_still_before_its_commit() -> None:
    reader = (admit("b", 16, 3), take("b", 4))
    (found,) = story((*WRITER, *reader, run("a", 0, 16, -1, (16, 3)), run("b", 16, 32, 3, (32, 4))))
    assert found.invariant == "I7"


def test_i7_a_step_in_flight_counts_until_it_has_run() -> None:
    reader = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    first = (*WRITER, chunk("a", 0, 16))
    ran = (launch(0), forward("a", 0, 16, -1, (16, 3)))
    early = story(first, (*reader, copy("b", "cow", 3, 4), *ran), depth=2)
    assert [f.invariant for f in early] == ["I7"]
    late = story(first, (*reader, *ran), (launch(1), copy("b", "pre", 3, 4), forward("b", 16, 32, 4, (32, 4))), depth=2)
    assert late == []


def test_i7_a_state_that_was_written_long_ago_and_is_claimed_only_now_may_be_read() -> None:
    reader = (admit("b", 16, 3), take("b", 4), run("b", 16, 32, 3, (32, 4)))
    assert story((admit("a"), take("a", 3), run("a", 0, 16, -1, (16, 3))), (claim(3, "a", 16), *reader)) == []


@pytest.mark.parametrize("released", [True, False])
def test_i8_a_slot_is_handed_out_again_only_once_its_holders_have_let_go(released: bool) -> None:
    let_go = (TELLS, release("a", 3)) if released else (TELLS,)
    found = story((admit("a"), take("a", 3), run("a", 0, 10, -1, (10, 3))), (*let_go, admit("b"), take("b", 3)))
    assert [f.invariant for f in found] == ([] if released else ["I8"])


def test_i8_attention_is_handed_no_slot_that_holds_a_state_in_use() -> None:
    (found,) = story((TELLS, admit("a"), take("a", 3), take("", 3, group=0)))
    assert (found.invariant, found.request, found.slot) == ("I8", "a", 3)
    assert "attention" in found.message


def loads_16(told: Story) -> Callable[[], None]:
    """A connector brings b's first 16 tokens into slot 3."""
    return lambda: told.auditor.load("b", GDN_GROUP, "b", 3, 16)


@pytest.mark.parametrize("loaded", [True, False])
def test_i8_a_step_in_flight_of_an_aborted_request_writes_what_another_was_handed(loaded: bool) -> None:
    """Steps run in order: only what comes into the slot beside them can be overwritten."""
    first = (admit("a"), take("a", 3), chunk("a", 0, 10))
    gone = (release("a", 3), abort("a"))
    came = (loads_16, take("b", 4), chunk("b", 16, 20)) if loaded else (take("b", 3), chunk("b", 0, 10))
    taken = (admit("b"), *came, launch(0), forward("a", 0, 10, -1, (10, 3)))
    found = story(first, (*gone, *taken), depth=2)
    assert [(f.invariant, f.request, f.slot) for f in found if f.severity == "hazard"] == [("I8", "a", 3)] * loaded


@pytest.mark.parametrize("steps", [1, 2])
def test_i8_asynchronously_nothing_is_loaded_into_a_slot_that_a_step_in_flight_writes(steps: int) -> None:
    """A step is launched at once; its outcome is heard of behind the next decisions."""
    wrote = (TELLS, admit("a"), take("a", 3), run("a", 0, 10, -1, (10, 3)))
    comes = (release("a", 3), abort("a"), admit("b"), loads_16, take("b", 4), run("b", 16, 20, 3, (20, 4)))
    found = story(wrote, *[()] * (steps - 1), comes, async_scheduling=True)
    assert [(f.invariant, f.request, f.slot) for f in found] == ([("I8", "a", 3)] if steps == 1 else [])


def test_i8_who_hit_a_state_in_flight_does_not_mind_that_it_is_written() -> None:
    first = (TELLS, *WRITER, chunk("a", 0, 16))
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32), launch(0), forward("a", 0, 16, -1, (16, 3)))
    assert story(first, hit, depth=2) == []


def test_i8_a_step_in_flight_may_read_what_its_owner_still_has() -> None:
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    gone = (release("b", 3, 4), preempt("b"), launch(0), forward("a", 0, 16, -1, (16, 3)))
    late = (launch(1), copy("b", "pre", 3, 4), forward("b", 16, 32, 4, (32, 4)))
    assert story((TELLS, *WRITER, chunk("a", 0, 16)), hit, gone, late, depth=3) == []


@pytest.mark.parametrize(("kind", "slot", "found"), [("cow", 3, []), ("cow", 4, ["I8"]), ("pre", 3, ["I8"])])
def test_i8_a_copy_on_write_takes_the_place_of_the_slot_that_was_hit(kind: str, slot: int, found: list[str]) -> None:
    """b no longer holds 3, but 4; of another copy it holds both."""
    reader = (admit("b", 16, 3), copy("b", kind, 3, 4), run("b", 16, 32, 4, (32, 4)))
    handed = (unclaim(3, "a@16"), release("a", 3), admit("c"), take("c", slot))
    steps = ((TELLS, *WRITER, run("a", 0, 16, -1, (16, 3))), reader, handed)
    assert [f.invariant for f in story(*steps)] == found


def test_i8_who_was_preempted_and_is_back_does_not_hold_what_its_steps_in_flight_write() -> None:
    first = (TELLS, *WRITER, chunk("a", 0, 16), launch(0), forward("a", 0, 16, -1, (16, 3)))
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    back = (release("b", 3, 4), preempt("b"), admit("b", 16, 3), take("b", 5), chunk("b", 16, 32))
    late = (launch(1), copy("b", "cow", 3, 4), forward("b", 16, 32, 4, (32, 4)))
    assert story(first, hit, (*back, *late), (take("c", 4), launch(2), copy("b", "cow", 3, 5)), depth=2) == []


@pytest.mark.parametrize("moved", [True, False])
def test_i9_a_claimed_slot_is_not_written_on_unless_its_claim_has_moved(moved: bool) -> None:
    first = (TELLS, *WRITER, run("a", 0, 16, -1, (16, 3)))
    away = (unclaim(3, "a@16", "move"), claim(5, "a", 16), copy("a", "cow", 3, 5)) if moved else ()
    found = story(first, (*away, run("a", 16, 20, 3, (20, 3))))
    assert [f.invariant for f in found] == ([] if moved else ["I9"])


def test_i9_the_write_that_makes_a_claim_true_is_none() -> None:
    assert story((TELLS, *WRITER, run("a", 0, 16, -1, (16, 3)))) == []


@pytest.mark.parametrize("committed", [False, True])
def test_i9_a_claim_of_a_step_in_flight_does_not_stand_yet(committed: bool) -> None:
    """A copy that a later decision makes may still take the place of what the step is to write."""
    first = (TELLS, *WRITER, take("a", 5), chunk("a", 0, 16))
    ran = (launch(0), forward("a", 0, 16, -1, (16, 3)))
    over = copy("a", "cow", 5, 3)
    steps = (first, ran, (over,)) if committed else (first, (over, *ran))
    assert [f.invariant for f in story(*steps, depth=2)] == ["I9"] * committed


@given(checkpoint=st.integers(0, 2), depth=st.integers(1, 3), more=st.booleans())
def test_i16_each_step_in_flight_may_export_a_checkpoint(checkpoint: int, depth: int, more: bool) -> None:
    slots = range(3, 3 + 2 + (depth - 1) + checkpoint * depth + more)
    found = story((TELLS, admit("a"), take("a", *slots)), depth=depth, num_prefill_checkpoint_blocks=checkpoint)
    assert [f.invariant for f in found] == ["I16"] * more


@given(drafts=st.integers(0, 4), depth=st.integers(1, 3), more=st.integers(0, 3))
def test_i16_a_request_holds_two_states_its_drafts_and_what_is_in_flight(drafts: int, depth: int, more: int) -> None:
    bound = 2 + drafts + depth - 1
    found = story((TELLS, admit("a"), take("a", *range(3, 3 + bound + more))), depth=depth, drafts=drafts)
    assert [(f.invariant, f.severity) for f in found] == ([("I16", "loss")] if more else [])


@pytest.mark.parametrize("interval", [None, 0])
def test_i16_where_only_what_a_resend_needs_is_published_what_is_published_is_pinned(interval: int | None) -> None:
    claims = [claim(slot, "a", 16 * (slot - 2)) for slot in (3, 4)]
    first = (TELLS, admit("a"), take("a", 3, 4, 5, 6), *claims)
    found = story(first, interval=interval)
    assert [f.invariant for f in found] == ([] if interval == 0 else ["I16"])


def test_a_log_that_never_tells_what_is_let_go_of_is_not_checked_for_it() -> None:
    steps = ((admit("a"), take("a", 3, 4, 5, 6, 7), run("a", 0, 10, -1, (10, 3))), (admit("b"), take("b", 3)))
    assert story(*steps) == []
    assert {f.invariant for f in story(*steps, (TELLS,))} == {"I8", "I16"}


def test_i7_is_asked_of_the_claim_that_was_hit_although_it_is_withdrawn() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(
        story.claim(7, "a", 16, b"x"),
        story.admit("a"),
        lambda: story.auditor.chunk("a", 0, 16, 0, "", 0, ()),
        story.unclaim(7, "x", Withdrawal.REKEY),
        story.admit("b", 16, 7),
        lambda: story.auditor.chunk("b", 16, 32, 0, "", 0, ()),
        lambda: story.auditor.advance("a", GDN_GROUP, 0, 16, (), -1, ((16, 7),), 0),
        lambda: story.auditor.advance("b", GDN_GROUP, 16, 32, (), 7, ((32, 8),), 0),
    )
    assert [finding.invariant for finding in story.findings] == ["I7"]
