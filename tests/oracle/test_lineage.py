"""Findings in order, roots told from what follows, and who read what was wrong."""

from __future__ import annotations

from stories import Story, clean, poisoned

from stateat.oracle.lineage import Draft, Lineage
from stateat.sim.events import Withdrawal, Write


def draft(root: int | None = None, slot: int = 7) -> Draft:
    return Draft("I1", "poison", 3, 30, "a", "gdn", 0, slot, 16, 10, "wrong offset", "text", root)


def test_findings_are_numbered_in_the_order_of_their_making() -> None:
    lineage = Lineage()
    assert [lineage.add(draft(slot=n)) for n in (9, 8, 7)] == [0, 1, 2]
    assert [(f.id, f.slot) for f in lineage.findings()] == [(0, 9), (1, 8), (2, 7)]


def test_a_finding_says_all_that_its_draft_says() -> None:
    lineage = Lineage()
    write = Write(1, "a", 0, 10, "chunk")
    lineage.add(Draft("I1", "poison", 3, 30, "a", "gdn", 2, 7, 16, 10, "tainted", "text", 0, write, "a in step 3"))
    (found,) = lineage.findings()
    assert (found.invariant, found.severity, found.step, found.time_us) == ("I1", "poison", 3, 30)
    assert (found.request, found.group, found.column, found.slot) == ("a", "gdn", 2, 7)
    assert (found.claimed, found.held, found.verdict, found.root) == (16, 10, "tainted", 0)
    assert (found.message, found.write, found.claimed_by, found.readers) == ("text", write, "a in step 3", ())


def test_a_root_is_its_own_root_and_that_of_what_follows() -> None:
    lineage = Lineage()
    root = lineage.add(draft())
    behind = lineage.add(draft(root))
    assert lineage.root_of(root) == lineage.root_of(behind) == root
    assert lineage.root_of(None) is None
    assert lineage.root_of(-1) == -1


def test_readers_come_between_the_poisoning_and_the_healing_and_only_of_that_slot() -> None:
    lineage = Lineage()
    finding = lineage.add(draft())
    lineage.read(7, "before")
    lineage.poison(7, finding)
    lineage.read(7, "b")
    lineage.read(8, "elsewhere")
    lineage.read(7, "c")
    lineage.read(7, "b")
    lineage.heal(7)
    lineage.read(7, "after")
    assert lineage.findings()[0].readers == ("b", "c")


def test_a_slot_with_two_findings_has_the_readers_of_both() -> None:
    lineage = Lineage()
    for _ in range(2):
        lineage.poison(7, lineage.add(draft()))
        lineage.read(7, f"after {len(lineage.drafts)}")
    assert [f.readers for f in lineage.findings()] == [("after 1", "after 2"), ("after 2",)]


def test_healing_a_sound_slot_does_nothing() -> None:
    lineage = Lineage()
    lineage.heal(3)
    lineage.read(3, "a")
    assert lineage.findings() == ()


def test_readers_are_those_who_restored_while_it_was_wrong() -> None:
    story = clean()
    story.arrive("early", "late", "after", seed=1)
    story.step(story.admit("early", 16, 7))
    story.step(story.run("a", 16, 20, 7, (20, 7), stop="junction"))
    story.step(story.admit("late", 16, 7))
    story.step(story.unclaim(7, "a@16"))
    story.step(story.admit("after", 16, 7))
    (found,) = (f for f in story.findings if f.invariant == "I1")
    assert found.readers == ("late",)


def test_a_reader_is_listed_once_however_often_it_restores() -> None:
    story = poisoned()
    story.arrive("b", "c", seed=1)
    story.step(story.admit("b", 16, 7)).step(story.admit("c", 16, 7)).step(story.admit("b", 16, 7))
    assert story.findings[0].readers == ("b", "c")


def test_readers_of_a_slot_that_was_set_right_are_no_readers() -> None:
    story = poisoned()
    story.step(story.copy("a", "post", 8, 7))
    story.arrive("b", seed=1)
    story.step(story.admit("b", 16, 7), story.copy("b", "pre", 7, 9), story.run("b", 16, 32, 9, (32, 9)))
    assert not story.auditor.counts.tainted
    assert story.findings[0].readers == ()


def test_readers_of_a_pair_that_is_poisoned_again_are_readers_of_its_finding() -> None:
    story = poisoned()
    story.step(story.unclaim(7, "a@16"))
    story.arrive("b", "c", seed=1)
    story.step(story.admit("b"), story.run("b", 0, 12, -1, (12, 7), stop="junction"), story.claim(7, "b", 16, b"a@16"))
    story.step(story.admit("c", 16, 7), story.copy("c", "pre", 7, 9), story.run("c", 16, 32, 9, (32, 9)))
    assert story.auditor.counts.poisoned == 1
    assert story.findings[0].readers == ("c",)
    # c read what a finding is about: no finding of its own.
    assert story.invariants == ["I1"]


def test_who_hits_a_poisoned_slot_reads_it_although_its_admission_withdraws_the_claim() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 12, -1, (12, 7), stop="encoder"), story.claim(7, "a", 16, b"x"))
    story.step(story.unclaim(7, "x", Withdrawal.REKEY), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
    assert [(finding.invariant, finding.readers) for finding in story.findings] == [("I1", ("b",))]
