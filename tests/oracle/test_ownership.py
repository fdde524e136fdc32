"""Who may read and write which slot, and when: each law is broken by a hand-made run, and kept by the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.oracle.audit import Auditor
from stateat.sim.events import SCHEMA, Finding, Group

B = 16
GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", B))
GDN = 1
Act = Callable[[Auditor], None]


def story(*steps: Sequence[Act], depth: int = 1, drafts: int = 0, interval: int | None = None) -> list[Finding]:
    """Steps of three requests with one text; returns what I7, I8, I9 and I16 found."""
    auditor = Auditor()
    options = {
        "hash_unit": 4,
        "max_num_batched_tokens": 100,
        "long_prefill_token_threshold": 0,
        "enable_prefix_caching": True,
        "max_concurrent_batches": depth,
        "prefix_cache_retention_interval": interval,
    }
    auditor.run(SCHEMA, "hand", GROUPS, drafts, options)
    for index, name in enumerate("abc"):
        auditor.arrive(name, index, 0, ((1, 200),), None, 8)
    for index, acts in enumerate(steps):
        auditor.step(index, index, 100)
        for act in acts:
            act(auditor)
        auditor.commit(index + 1)
    return [f for f in auditor.findings() if f.invariant in ("I7", "I8", "I9", "I16")]


def admit(name: str, hit: int = 0, slot: int = 0) -> Act:
    def act(auditor: Auditor) -> None:
        auditor.admit(name, hit, 0, False)
        if slot:
            auditor.restore(name, GDN, slot, (hit - 1) // B, hit, [hit, hit])

    return act


def take(name: str, *slots: int, group: int = GDN) -> Act:
    return lambda auditor: auditor.allocate(name, group, 0, slots)


def release(name: str, *slots: int) -> Act:
    return lambda auditor: auditor.release(name, GDN, slots)


def claim(name: str, slot: int, offset: int) -> Act:
    return lambda auditor: auditor.claim(GDN, slot, name, (offset - 1) // B, offset, f"{offset}".encode())


def unclaim(slot: int, offset: int, why: str = "evict") -> Act:
    return lambda auditor: auditor.unclaim(GDN, slot, f"{offset}".encode(), why)


def chunk(name: str, start: int, end: int) -> Act:
    return lambda auditor: auditor.chunk(name, start, end, 0, "", 0, ())


def forward(name: str, start: int, end: int, read: int, slot: int) -> Act:
    return lambda auditor: auditor.advance(name, GDN, start, end, (), read, [(end, slot)], 0)


def run(name: str, start: int, end: int, read: int, slot: int) -> Act:
    def act(auditor: Auditor) -> None:
        chunk(name, start, end)(auditor)
        forward(name, start, end, read, slot)(auditor)

    return act


def copy(name: str, kind: str, src: int, dst: int) -> Act:
    return lambda auditor: auditor.copy(name, GDN, kind, src, dst, src, 0)


def launch(index: int) -> Act:
    return lambda auditor: auditor.launch(index)


WRITER = (admit("a"), take("a", 3), claim("a", 3, 16))
TELLS = release("c", 90)
"""A run that says what is let go of: a log need not."""


@pytest.mark.parametrize("same_step", [True, False])
def test_i7_a_state_is_read_by_others_once_its_step_has_committed(same_step: bool) -> None:
    reader = (admit("b", 16, 3), take("b", 4), copy("b", "pre", 3, 4))
    writes, reads = run("a", 0, 16, -1, 3), run("b", 16, 32, 4, 4)
    if same_step:
        found = story((*WRITER, *reader, writes, reads))
        assert [(f.invariant, f.severity, f.request, f.claimed, f.slot) for f in found] == [
            ("I7", "hazard", "b", 16, 3)
        ]
    else:
        assert story((*WRITER, writes), (*reader, reads)) == []


def test_i7_reading_after_the_write_of_the_same_step_is_still_before_its_commit() -> None:
    reader = (admit("b", 16, 3), take("b", 4))
    (found,) = story((*WRITER, *reader, run("a", 0, 16, -1, 3), run("b", 16, 32, 3, 4)))
    assert found.invariant == "I7"


def test_i7_a_step_in_flight_counts_until_it_has_run() -> None:
    reader = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    first = (*WRITER, chunk("a", 0, 16))
    ran = (launch(0), forward("a", 0, 16, -1, 3))
    early = story(first, (*reader, copy("b", "cow", 3, 4), *ran), depth=2)
    assert [f.invariant for f in early] == ["I7"]
    late = story(first, (*reader, *ran), (launch(1), copy("b", "pre", 3, 4), forward("b", 16, 32, 4, 4)), depth=2)
    assert late == []


def test_i7_a_state_that_was_written_long_ago_and_is_claimed_only_now_may_be_read() -> None:
    reader = (admit("b", 16, 3), take("b", 4), run("b", 16, 32, 3, 4))
    assert story((admit("a"), take("a", 3), run("a", 0, 16, -1, 3)), (claim("a", 3, 16), *reader)) == []


@pytest.mark.parametrize("released", [True, False])
def test_i8_a_slot_is_handed_out_again_only_once_its_holders_have_let_go(released: bool) -> None:
    let_go = (TELLS, release("a", 3)) if released else (TELLS,)
    found = story((admit("a"), take("a", 3), run("a", 0, 10, -1, 3)), (*let_go, admit("b"), take("b", 3)))
    assert [f.invariant for f in found] == ([] if released else ["I8"])


def test_i8_attention_is_handed_no_slot_that_holds_a_state_in_use() -> None:
    (found,) = story((TELLS, admit("a"), take("a", 3), take("", 3, group=0)))
    assert (found.invariant, found.request, found.slot) == ("I8", "a", 3)
    assert "attention" in found.message


def test_i8_a_step_in_flight_of_an_aborted_request_writes_what_another_was_handed() -> None:
    first = (admit("a"), take("a", 3), chunk("a", 0, 10))

    def gone(auditor: Auditor) -> None:
        auditor.release("a", GDN, [3])
        auditor.abort("a")

    taken = (admit("b"), take("b", 3), chunk("b", 0, 10), launch(0), forward("a", 0, 10, -1, 3))
    found = story(first, (gone, *taken), depth=2)
    assert [(f.invariant, f.request, f.slot) for f in found] == [("I8", "a", 3)]


def test_i8_who_hit_a_state_in_flight_does_not_mind_that_it_is_written() -> None:
    first = (TELLS, *WRITER, chunk("a", 0, 16))
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32), launch(0), forward("a", 0, 16, -1, 3))
    assert story(first, hit, depth=2) == []


def preempt(name: str) -> Act:
    return lambda auditor: auditor.preempt(name)


def test_i8_a_step_in_flight_may_read_what_its_owner_still_has() -> None:
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    gone = (release("b", 3, 4), preempt("b"), launch(0), forward("a", 0, 16, -1, 3))
    late = (launch(1), copy("b", "pre", 3, 4), forward("b", 16, 32, 4, 4))
    assert story((TELLS, *WRITER, chunk("a", 0, 16)), hit, gone, late, depth=3) == []


def test_i8_who_was_preempted_and_is_back_does_not_hold_what_its_steps_in_flight_write() -> None:
    first = (TELLS, *WRITER, chunk("a", 0, 16), launch(0), forward("a", 0, 16, -1, 3))
    hit = (admit("b", 16, 3), take("b", 4), chunk("b", 16, 32))
    back = (release("b", 3, 4), preempt("b"), admit("b", 16, 3), take("b", 5), chunk("b", 16, 32))
    late = (launch(1), copy("b", "cow", 3, 4), forward("b", 16, 32, 4, 4))
    assert story(first, hit, (*back, *late), (take("c", 4), launch(2), copy("b", "cow", 3, 5)), depth=2) == []


@pytest.mark.parametrize("moved", [True, False])
def test_i9_a_claimed_slot_is_not_written_on_unless_its_claim_has_moved(moved: bool) -> None:
    first = (TELLS, *WRITER, run("a", 0, 16, -1, 3))
    away = (unclaim(3, 16, "move"), claim("a", 5, 16), copy("a", "cow", 3, 5)) if moved else ()
    found = story(first, (*away, run("a", 16, 20, 3, 3)))
    assert [f.invariant for f in found] == ([] if moved else ["I9"])


def test_i9_the_write_that_makes_a_claim_true_is_none() -> None:
    assert story((TELLS, *WRITER, run("a", 0, 16, -1, 3))) == []


@given(drafts=st.integers(0, 4), depth=st.integers(1, 3), more=st.integers(0, 3))
def test_i16_a_request_holds_two_states_its_drafts_and_what_is_in_flight(drafts: int, depth: int, more: int) -> None:
    bound = 2 + drafts + depth - 1
    found = story((TELLS, admit("a"), take("a", *range(3, 3 + bound + more))), depth=depth, drafts=drafts)
    assert [(f.invariant, f.severity) for f in found] == ([("I16", "loss")] if more else [])


@pytest.mark.parametrize("interval", [None, 0])
def test_i16_where_only_what_a_resend_needs_is_published_what_is_published_is_pinned(interval: int | None) -> None:
    claims = [claim("a", slot, 16 * (slot - 2)) for slot in (3, 4)]
    first = (TELLS, admit("a"), take("a", 3, 4, 5, 6), *claims)
    found = story(first, interval=interval)
    assert [f.invariant for f in found] == ([] if interval == 0 else ["I16"])


def test_a_log_that_never_tells_what_is_let_go_of_is_not_checked_for_it() -> None:
    steps = ((admit("a"), take("a", 3, 4, 5, 6, 7), run("a", 0, 10, -1, 3)), (admit("b"), take("b", 3)))
    assert story(*steps) == []
    assert {f.invariant for f in story(*steps, (TELLS,))} == {"I8", "I16"}
