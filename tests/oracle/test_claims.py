"""I1: at the end of each step a claimed slot holds what its claims name; and the nearest runs in which it does."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from stories import Story, clean, poisoned, two_groups

from stateat.sim.events import Holding


def test_i1_a_slot_that_holds_less_than_its_hash_says_is_poisoned_and_told_in_full() -> None:
    (found,) = poisoned().findings
    assert (found.invariant, found.severity, found.verdict) == ("I1", "poison", "wrong offset")
    assert (found.request, found.group, found.column, found.slot) == ("a", "gdn", 0, 7)
    assert (found.claimed, found.held, found.root, found.readers) == (16, 10, None, ())
    assert (found.step, found.time_us, found.claimed_by) == (1, 10, "a in step 1")
    assert found.write is not None
    assert (found.write.step, found.write.request, found.write.kind) == (0, "a", "chunk")
    assert (found.write.start, found.write.end) == (0, 10)
    assert found.message == "gdn column 0 (slot 7, request a) is hashed as state@16 but holds state@10"


def test_i1_a_slot_that_holds_what_its_hash_says_is_not_poisoned() -> None:
    assert clean().findings == ()


@given(claimed=st.integers(1, 40), held=st.integers(1, 40))
def test_i1_any_offset_but_the_claimed_one_is_a_wrong_offset(claimed: int, held: int) -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.claim(7, "a", claimed), story.run("a", 0, held, -1, (held, 7), stop="junction"))
    told = [(f.invariant, f.claimed, f.held, f.verdict) for f in story.findings]
    assert told == ([] if claimed == held else [("I1", claimed, held, "wrong offset")])


def test_i1_a_claim_is_due_at_the_end_of_its_step_and_not_before() -> None:
    story = Story()
    story.arrive("a")
    story.auditor.step(0, 0, 100)
    for act in (story.admit("a"), story.claim(7, "a", 16), story.run("a", 0, 16, -1, (16, 7))):
        act()
        assert story.findings == ()
    story.auditor.commit(1)
    assert story.findings == ()


def test_i1_a_claim_made_and_withdrawn_in_one_step_is_legal() -> None:
    def told(*acts: Callable[[Story], Callable[[], None]]) -> list[str]:
        story = Story()
        story.arrive("a")
        story.step(story.admit("a"), story.run("a", 0, 10, -1, (10, 7), stop="junction"), *(act(story) for act in acts))
        return story.invariants

    assert told(lambda s: s.claim(7, "a", 16)) == ["I1"]
    assert told(lambda s: s.claim(7, "a", 16), lambda s: s.unclaim(7, "a@16")) == []


def test_i1_a_slot_that_is_written_while_claimed_is_checked_again() -> None:
    story = clean()
    assert story.findings == ()
    story.step(story.run("a", 16, 20, 7, (20, 7), stop="junction"))
    hazard, found = story.findings
    assert hazard.invariant == "I9"
    assert (found.invariant, found.step, found.claimed, found.held) == ("I1", 2, 16, 20)


def test_i1_a_claimed_slot_that_is_copied_over_is_checked_again() -> None:
    story = clean()
    story.arrive("b")
    story.step(story.admit("b"), story.run("b", 0, 16, -1, (16, 3)))
    story.step(story.copy("b", "cow", 3, 7))
    _, found = story.findings
    assert (found.slot, found.verdict, found.held) == (7, "foreign", 16)
    assert found.write is not None and found.write.kind == "cow"


def test_i1_a_poisoned_pair_is_counted_once_and_each_further_hash_by_itself() -> None:
    story = poisoned()
    story.step(story.run("a", 16, 20, 7, (11, 7), stop="junction"))
    assert story.auditor.counts.poisoned == 1
    story.step(story.claim(7, "a", 32))
    assert story.auditor.counts.poisoned == 2
    assert [f.claimed for f in story.findings if f.invariant == "I1"] == [16, 32]


def test_i1_the_same_hash_on_another_slot_is_another_pair() -> None:
    story = poisoned()
    story.step(story.copy("a", "cow", 7, 12), story.unclaim(7, "a@16", "move"), story.claim(12, "a", 16))
    assert story.auditor.counts.poisoned == 2
    assert [f.slot for f in story.findings] == [7, 12]


def test_i1_a_hash_leads_to_one_state() -> None:
    """Of two slots under one hash whoever looks it up is given either."""
    for same, told in ((True, []), (False, ["I1"])):
        story = Story()
        story.arrive("a", "b", seed=1) if same else story.arrive("a", "b")
        story.step(
            story.admit("a"), story.run("a", 0, 16, -1, (16, 7)), story.claim(7, "a", 16, b"one"),
            story.admit("b"), story.run("b", 0, 16, -1, (16, 8)), story.claim(8, "b", 16, b"one"),
        )  # fmt: skip
        assert [f.invariant for f in story.findings] == told
        assert story.auditor.counts.poisoned == len(told)
    (finding,) = story.findings
    assert (finding.slot, finding.request, finding.verdict, finding.root) == (8, "b", Holding.FOREIGN, None)
    assert finding.message.endswith("state@16 of request a (slot 7) but holds state@16 of another prefix")


def test_i1_a_hash_that_was_given_up_may_name_another_state() -> None:
    story = Story()
    story.arrive("a", "b")
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)), story.claim(7, "a", 16, b"one"))
    story.step(
        story.unclaim(7, "one"), story.admit("b"), story.run("b", 0, 16, -1, (16, 8)), story.claim(8, "b", 16, b"one")
    )
    assert story.findings == ()


def test_i1_a_claim_on_attention_blocks_that_is_given_up_first_is_no_concern() -> None:
    story = clean()
    story.step(story.unclaim(7, "a@16"), story.attention(7))
    assert story.findings == ()


def test_i1_attention_that_overwrites_a_claimed_slot_is_caught_in_that_step() -> None:
    story = clean()
    story.step(story.attention(7))
    (found,) = story.findings
    assert (found.invariant, found.slot, found.verdict) == ("I1", 7, "never written")


def test_i1_a_copy_of_attention_over_a_claimed_slot_is_caught_in_that_step() -> None:
    story = clean()
    story.step(story.copy("a", "cow", 5, 7, group=0))
    assert [(f.invariant, f.verdict) for f in story.findings] == [("I1", "never written")]


def test_i1_names_the_group_whose_slot_is_wrong() -> None:
    story = two_groups()
    story.step(lambda: story.auditor.advance("a", 2, 16, 20, (), 17, [(20, 17)], 0))
    _, found = story.findings
    assert (found.slot, found.group) == (17, "kda")
