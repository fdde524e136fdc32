"""What a slot that is wrong really holds is said, and goes back to the root of it."""

from __future__ import annotations

from stories import GDN_GROUP, Story, poisoned, tainted

from stateat.sim.tokens import VOCABULARY


def test_verdict_never_written_has_no_offset_and_no_write() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.claim(7, "a", 16))
    (found,) = story.findings
    assert (found.verdict, found.held, found.write, found.root) == ("never written", None, None, None)


def test_verdict_zero() -> None:
    story = Story()
    story.arrive("a")
    story.step(lambda: story.auditor.load("a", GDN_GROUP, "a", 7, 0), story.claim(7, "a", 16))
    (found,) = story.findings
    assert (found.verdict, found.held) == ("zero", 0)
    assert found.write is not None and found.write.kind == "load"


def test_verdict_foreign_names_the_offset_in_the_others_prefix() -> None:
    story = Story()
    story.arrive("a", "b")
    story.step(story.admit("b"), story.run("b", 0, 12, -1, (12, 7), stop="junction"), story.claim(7, "a", 16))
    (found,) = story.findings
    assert (found.verdict, found.held, found.request) == ("foreign", 12, "a")
    assert found.message.endswith("holds state@12 of request b")


def test_a_prefix_that_two_requests_share_is_not_foreign() -> None:
    story = Story()
    story.arrive("a", "b", seed=5)
    story.step(story.admit("b"), story.run("b", 0, 12, -1, (12, 7), stop="junction"), story.claim(7, "a", 12))
    assert story.findings == ()
    story.step(story.claim(7, "a", 16))
    (found,) = story.findings
    assert (found.verdict, found.held) == ("wrong offset", 12)


def test_verdict_unknown_for_tokens_of_no_known_prefix() -> None:
    story = Story(drafts=2)
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    # The draft at position 16 is wrong; the state behind it belongs to nobody.
    wrong = [(story.outputs_of("a", 16, 1)[0] + 1) % VOCABULARY]
    story.step(story.run("a", 15, 17, 7, (16, 7), (17, 8), drafts=wrong), story.claim(8, "a", 17))
    (found,) = story.findings
    assert (found.invariant, found.verdict, found.held) == ("I1", "unknown", 17)
    assert found.message.endswith("holds 17 tokens of no known prefix")


def test_a_state_over_right_drafts_is_right_and_over_wrong_ones_is_not() -> None:
    for right in (True, False):
        story = Story(drafts=2)
        story.arrive("a", prompt=15)
        story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
        drafts = [(t + (not right)) % VOCABULARY for t in story.outputs_of("a", 16, 2)]
        writes = ((16, 7), (17, 8), (18, 9))
        story.step(story.run("a", 15, 18, 7, *writes, drafts=drafts), story.claim(7, "a", 16), story.claim(9, "a", 18))
        assert [f.slot for f in story.findings] == ([] if right else [9])


def test_verdict_unknown_for_a_state_made_from_nothing_goes_back_to_the_read() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, 5, (16, 7)), story.claim(7, "a", 16))
    read, claim = story.findings
    assert (read.invariant, read.verdict, read.root, read.slot) == ("I10", "never written", None, 5)
    assert (claim.invariant, claim.verdict, claim.root) == ("I1", "unknown", read.id)


def test_verdict_tainted_points_to_the_root_and_counts_what_was_absorbed() -> None:
    story = tainted()
    root, behind = story.findings
    assert (root.root, root.readers) == (None, ("b",))
    assert (behind.invariant, behind.verdict, behind.root) == ("I1", "tainted", root.id)
    assert (behind.claimed, behind.held) == (32, 26)
    counts = story.auditor.counts
    assert (counts.poisoned, counts.poisoned_roots, counts.wrong_restores, counts.wrong_reads) == (2, 1, 1, 0)
    assert list(counts.tainted) == ["b"]


def test_downstream_of_downstream_still_points_to_the_first_root() -> None:
    story = tainted()
    story.arrive("c", prompt=60, seed=1)
    # c restores what b left, and so on: never a root again.
    story.step(
        story.admit("c", 32, 9),
        story.claim(11, "c", 48),
        story.copy("c", "pre", 9, 11),
        story.run("c", 32, 48, 11, (48, 11)),
    )
    assert [(f.invariant, f.root) for f in story.findings] == [("I1", None), ("I1", 0), ("I1", 0)]
    assert [f.readers for f in story.findings] == [("b",), ("c",), ()]
    assert story.auditor.counts.poisoned_roots == 1
    assert list(story.auditor.counts.tainted) == ["b", "c"]


def test_a_second_fault_elsewhere_is_a_root_of_its_own() -> None:
    story = tainted()
    story.arrive("d")
    story.step(story.admit("d"), story.run("d", 0, 9, -1, (9, 20), stop="junction"), story.claim(20, "d", 16))
    assert [f.root for f in story.findings] == [None, 0, None]
    assert story.auditor.counts.poisoned_roots == 2


def test_a_copy_of_a_poisoned_slot_is_downstream_of_it() -> None:
    story = poisoned()
    story.arrive("b", seed=1)
    story.step(story.copy("b", "cow", 7, 30), story.claim(30, "b", 16))
    root, copied = story.findings
    assert (copied.root, copied.slot, copied.held, copied.verdict) == (root.id, 30, 10, "wrong offset")
    assert copied.write is not None and copied.write.kind == "cow"
    assert story.auditor.counts.poisoned_roots == 1


def test_who_reads_the_right_state_of_a_poisoned_slot_is_not_tainted() -> None:
    """Slot 7 is wrong as state@16 and right as state@10: its owner goes on from there."""
    story = poisoned()
    assert story.auditor.counts.wrong_reads == 0
    assert not story.auditor.counts.tainted
    story.step(story.claim(8, "a", 16, b"again"))
    assert len(story.findings) == 1


def last_chunk(finishes: bool) -> Story:
    """A decode step leaves state@16 in slot 7 under the hash of state@20; perhaps it is the request's last."""
    story = Story()
    story.arrive("a", prompt=15)
    story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
    acts = [story.claim(7, "a", 20), story.run("a", 15, 16, 7, (16, 7)), story.output("a")]
    return story.step(*acts, *[story.finish("a")] * finishes)


def test_the_offset_that_a_running_request_left_is_found() -> None:
    assert [(f.verdict, f.held) for f in last_chunk(False).findings] == [("wrong offset", 16)]


def test_the_offset_that_a_finished_request_left_is_found_too() -> None:
    assert [(f.verdict, f.held) for f in last_chunk(True).findings] == [("wrong offset", 16)]
