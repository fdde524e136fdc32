"""I10 and I12: what a request continues from; each law is broken by a hand-made run, and kept by the nearest one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import GDN_GROUP, Story, poisoned, prefilled, two_groups

from stateat.sim.tokens import VOCABULARY


def null_read(start: int) -> Story:
    """a continues at ``start`` from slot 0."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, start, -1, (start, 7)))
    return story.step(story.attention(0), story.run("a", start, 40, 0, (40, 8)), story.claim(8, "a", 40))


@pytest.mark.parametrize(("start", "column"), [(16, 0), (20, 1)])
def test_a_read_of_the_null_block_is_called_so_and_says_where_the_state_belongs(start: int, column: int) -> None:
    read, claim = (found for found in null_read(start).findings if found.severity == "poison")
    assert (read.invariant, read.verdict, read.held, read.slot) == ("I12", "zero", 0, 0)
    assert read.message == (
        f"a continues at {start} from gdn slot 0, the null block, which holds a zero state: "
        f"state@{start} belongs in column {column}"
    )
    assert read.write is not None and read.write.kind == "null"
    # The state goes on from zero: known, and wrong.
    assert (claim.verdict, claim.root) == ("tainted", read.id)


def test_who_starts_at_nothing_from_the_null_block_reads_what_it_should() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, 0, (16, 7)), story.claim(7, "a", 16))
    assert story.findings == ()


def test_i10_a_restored_request_that_reads_another_column() -> None:
    for slot, told in ((7, []), (8, ["I10"]), (99, ["I10"])):
        story = prefilled(16, 32)
        story.arrive("b", seed=1)
        story.step(story.admit("b", 16, 7), story.run("b", 16, 32, slot, (32, 20)))
        assert story.invariants == told
        assert story.auditor.counts.wrong_restores == len(told)
        assert list(story.auditor.counts.tainted) == ["b"] * len(told)
        for found in story.findings:
            assert (found.severity, found.claimed, found.slot) == ("poison", 16, slot)
            assert (found.verdict, found.held) == (("wrong offset", 32) if slot == 8 else ("never written", None))


def test_i10_a_zero_state_in_the_middle_of_a_prompt() -> None:
    story = prefilled(16)
    story.arrive("b", seed=1)
    story.step(story.admit("b", 16, 7), story.run("b", 16, 32, -1, (32, 20)))
    assert story.invariants == ["I10"]


def test_i12_a_wrong_read_after_verification() -> None:
    """Two of three drafts are right: the state is in column running + 2, and not where the request began."""
    for read, told in ((9, []), (7, ["I11", "I12"]), (10, ["I11", "I12"])):
        story = Story(drafts=3)
        story.arrive("a", prompt=15)
        story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
        drafts = story.outputs_of("a", 16, 3)
        drafts[2] = (drafts[2] + 1) % VOCABULARY
        writes = ((16, 7), (17, 8), (18, 9), (19, 10))
        story.step(story.run("a", 15, 19, 7, *writes, drafts=drafts), story.accept("a", 3, 2), story.output("a", 3))
        story.step(story.run("a", 18, 19, read, (19, 20)))
        assert story.invariants == told
        assert (story.auditor.counts.wrong_restores, story.auditor.counts.wrong_reads) == (0, bool(told))
        for found in story.findings[1:]:
            assert (found.claimed, found.held, found.slot) == (18, {7: 16, 10: 19}[read], read)
            assert found.verdict == {7: "wrong offset", 10: "unknown"}[read]


def boundary(source: int, claim: bool = False) -> Story:
    """Three right drafts pass 16: what is copied to slot 30 is to be state@16."""
    story = Story(drafts=3)
    story.arrive("a", prompt=14)
    story.step(story.admit("a"), story.run("a", 0, 14, -1, (14, 7)), story.output("a"))
    drafts = story.outputs_of("a", 15, 3)
    return story.step(
        story.run("a", 14, 18, 7, (15, 7), (16, 8), (17, 9), (18, 10), drafts=drafts),
        story.accept("a", 3, 3),
        story.output("a", 4),
        story.copy("a", "post", source, 30),
    )


def test_i12_a_boundary_that_verification_passed_is_kept_by_its_column() -> None:
    assert boundary(8).findings == ()
    for source, held in ((7, 15), (9, 17), (10, 18)):
        (found,) = boundary(source).findings
        assert (found.invariant, found.claimed, found.held, found.slot) == ("I12", 16, held, 30)
        assert found.column == 0
    (found,) = boundary(77).findings
    assert (found.invariant, found.verdict) == ("I12", "never written")


def test_i12_only_copies_after_verification_are_boundary_copies() -> None:
    story = boundary(8)
    story.step(story.copy("a", "pre", 10, 31))
    assert story.findings == ()


def test_i12_what_follows_a_wrong_boundary_copy_is_downstream_of_it() -> None:
    story = boundary(7)
    story.step(story.claim(30, "a", 16))
    assert [(f.invariant, f.root) for f in story.findings] == [("I12", None), ("I1", 0)]


def test_i12_a_boundary_copy_of_a_wrong_ancestor_is_no_finding_of_its_own() -> None:
    story = poisoned()
    story.arrive("b", prompt=14, seed=9)
    story.step(
        lambda: story.auditor.admit("b", 0, 0, False),
        story.run("b", 0, 14, 7, (14, 20)),
        story.output("b"),
    )
    told = len(story.findings)
    drafts = story.outputs_of("b", 15, 3)
    story.step(
        story.run("b", 14, 18, 20, (15, 20), (16, 21), (17, 22), (18, 23), drafts=drafts),
        story.accept("b", 3, 3),
        story.output("b", 4),
        story.copy("b", "post", 21, 30),
    )
    assert len(story.findings) == told


@given(steps=st.integers(1, 30))
def test_a_fast_forwarded_run_counts_each_of_its_wrong_reads(steps: int) -> None:
    for slot, wrong in ((7, 0), (8, steps)):
        story = Story()
        story.arrive("a", prompt=15, outputs=40)
        story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
        story.steps += steps
        story.step(
            story.run("a", 15, 15 + steps, slot, (15 + steps, 7), steps=steps, accepted=[0] * steps),
            story.output("a", steps),
        )
        assert story.auditor.counts.wrong_reads == wrong
        assert story.invariants == ["I12"] * (wrong > 0)


def test_a_wrong_restore_is_the_first_read_after_a_hit_and_later_ones_are_wrong_reads() -> None:
    story = poisoned()
    story.arrive("b", prompt=80, seed=1)
    story.step(story.admit("b", 16, 7), story.copy("b", "pre", 7, 9), story.run("b", 16, 32, 9, (32, 9)))
    story.step(story.run("b", 32, 48, 9, (48, 10)))
    story.step(story.run("b", 48, 64, 10, (64, 11)))
    counts = story.auditor.counts
    assert (counts.wrong_restores, counts.wrong_reads, list(counts.tainted)) == (1, 2, ["b"])
    assert story.invariants == ["I1"]


def test_a_wrong_first_read_without_a_hit_is_a_wrong_read() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, 5, (16, 7)))
    assert (story.auditor.counts.wrong_restores, story.auditor.counts.wrong_reads) == (0, 1)


def test_a_wrong_restore_in_the_second_group_is_a_wrong_restore() -> None:
    story = two_groups()
    story.arrive("b", seed=1)
    story.step(
        story.admit("b", 16, 7),
        story.run("b", 16, 32, 7, (32, 9)),
        lambda: story.auditor.advance("b", 2, 16, 32, (), 99, [(32, 19)], 0),
    )
    assert story.invariants == ["I10"]
    assert (story.auditor.counts.wrong_restores, story.auditor.counts.wrong_reads) == (1, 0)


def test_an_admission_is_one_wrong_restore_however_many_groups_read_wrong() -> None:
    story = two_groups()
    story.arrive("b", seed=1)
    story.step(
        story.admit("b", 16, 7),
        story.run("b", 16, 32, 98, (32, 9)),
        lambda: story.auditor.advance("b", 2, 16, 32, (), 99, [(32, 19)], 0),
    )
    assert (story.auditor.counts.wrong_restores, story.auditor.counts.wrong_reads) == (1, 0)


def test_a_loaded_state_is_right_at_its_offset() -> None:
    for offset, told in ((20, []), (16, ["I10"])):
        story = Story()
        story.arrive("a")
        story.step(
            lambda s=story: s.auditor.admit("a", 0, 20, False),
            lambda s=story, n=offset: s.auditor.load("a", GDN_GROUP, "a", 8, n),
            story.run("a", 20, 32, 8, (32, 8)),
        )
        assert story.invariants == told
        assert story.auditor.counts.wrong_restores == len(told)
