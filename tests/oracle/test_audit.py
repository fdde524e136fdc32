"""Each invariant is tripped by a hand-made run, and not by the nearest run that keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.oracle.audit import Auditor
from stateat.oracle.chunks import CAUSES
from stateat.sim.events import SCHEMA, CopyKind, Finding, Group, Holding, Refusal, Severity, Stop, Withdrawal
from stateat.sim.scenario.models import FindingModel
from stateat.sim.tokens import VOCABULARY, Tokens

ROOT = Path(__file__).resolve().parents[2]
B = 16
"""The recurrent block of every story."""
FULL = Group("attention", "full-attention", 4)
GDN = Group("gdn", "recurrent", B)
GDN_GROUP = 1


class Story:
    """An engine that says what the test wants: one recurrent group of block 16 beside attention."""

    def __init__(
        self,
        groups: Sequence[Group] = (FULL, GDN),
        drafts: int = 0,
        cap: int = 1000,
        threshold: int = 0,
        **more: object,
    ) -> None:
        self.auditor = Auditor()
        self.steps = 0
        self.arrived = 0
        options: dict[str, object] = {
            "hash_unit": 4,
            "max_num_batched_tokens": cap,
            "long_prefill_token_threshold": threshold,
            "enable_prefix_caching": True,
        }
        self.auditor.run(SCHEMA, "hand", tuple(groups), drafts, options | more)
        # All of the pool has been handed out before, so that a slot without a state was never written.
        self.auditor.slots.hand(range(1000))

    def arrive(self, *names: str, prompt: int = 40, outputs: int = 8, seed: int | None = None) -> None:
        """Requests with a text of their own each, unless a seed says which."""
        for name in names:
            self.arrived += 1
            text = self.arrived if seed is None else seed
            self.auditor.arrive(name, self.arrived - 1, 0, ((text, prompt),), None, outputs)

    def step(self, *acts: Callable[[], None]) -> Story:
        """One whole step."""
        self.auditor.step(self.steps, 10 * self.steps, 1000)
        for act in acts:
            act()
        self.steps += 1
        self.auditor.commit(10 * self.steps)
        return self

    def admit(self, name: str, hit: int = 0, slot: int | None = None) -> Callable[[], None]:
        """From waiting to running; with a hit it restores from ``slot``."""

        def act() -> None:
            self.auditor.admit(name, hit, 0, False)
            if slot is not None:
                self.auditor.restore(name, GDN_GROUP, slot, (hit - 1) // B, hit, [hit, hit])

        return act

    def run(
        self,
        name: str,
        start: int,
        end: int,
        read: int,
        *writes: tuple[int, int],
        drafts: Sequence[int] = (),
        stop: str = "",
        steps: int = 0,
        accepted: Sequence[int] = (),
    ) -> Callable[[], None]:
        """A chunk and its forward pass."""

        def act() -> None:
            self.auditor.chunk(name, start, end, len(drafts), stop, steps, accepted)
            self.auditor.advance(name, GDN_GROUP, start, end, drafts, read, writes, steps)

        return act

    def claim(
        self, slot: int, name: str, offset: int, key: bytes | None = None, group: int = GDN_GROUP
    ) -> Callable[[], None]:
        hash = key or f"{name}@{offset}".encode()
        return lambda: self.auditor.claim(group, slot, name, -(-offset // B) - 1, offset, hash)

    def unclaim(self, slot: int, key: str, why: str = "evict") -> Callable[[], None]:
        return lambda: self.auditor.unclaim(GDN_GROUP, slot, key.encode(), why)

    def copy(self, name: str, kind: str, source: int, target: int, group: int = GDN_GROUP) -> Callable[[], None]:
        return lambda: self.auditor.copy(name, group, kind, source, target, source, 0)

    def output(self, name: str, count: int = 1) -> Callable[[], None]:
        return lambda: self.auditor.output(name, count, None)

    def accept(self, name: str, drafted: int, accepted: int) -> Callable[[], None]:
        return lambda: self.auditor.accept(name, drafted, accepted)

    def attention(self, *slots: int) -> Callable[[], None]:
        """Slots that attention writes over."""
        return lambda: self.auditor.allocate("", 0, -1, slots)

    def finish(self, name: str) -> Callable[[], None]:
        return lambda: self.auditor.finish(name)

    def outputs_of(self, name: str, first: int, count: int) -> list[int]:
        """The tokens that a request really says from a position on."""
        return list(map(int, self.auditor.requests[name].tokens.ids[first : first + count]))

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.auditor.findings()

    @property
    def invariants(self) -> list[str]:
        return [f.invariant for f in self.findings]


def poisoned() -> Story:
    """Request a: [0, 10) into slot 7, which is hashed as state@16 in step 1 and holds state@10 (one I1 finding)."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 10, -1, (10, 7), stop="partial-tail"))
    story.step(story.claim(7, "a", 16), story.run("a", 10, 16, 7, (16, 8)))
    return story


def clean() -> Story:
    """The same, but slot 7 holds state@16."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 10, -1, (10, 7), stop="partial-tail"))
    story.step(story.claim(7, "a", 16), story.run("a", 10, 16, 7, (16, 7)))
    return story


# I1: content.


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


def test_attention_erases_what_a_slot_holds() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(story.attention(7), story.claim(7, "a", 16))
    assert [(f.invariant, f.verdict, f.held) for f in story.findings] == [("I1", "never written", None)]


def test_slots_given_to_a_recurrent_group_keep_what_they_hold() -> None:
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(lambda: story.auditor.allocate("a", GDN_GROUP, 0, [7]), story.claim(7, "a", 16))
    assert story.findings == ()


# Verdicts.


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


def tainted() -> Story:
    """Request b restores the poisoned slot 7 as state@16, runs to 32 and claims that: a root and one behind it."""
    story = poisoned()
    story.arrive("b", seed=1)
    story.step(
        story.admit("b", 16, 7),
        story.claim(9, "b", 32),
        story.copy("b", "pre", 7, 9),
        story.run("b", 16, 32, 9, (32, 9)),
    )
    return story


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


# Readers.


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


# I2: chunk shape.


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


# I4: reachability, as a measure.


def prefilled(*claims: int, prompt: int = 50, seed: int = 1) -> Story:
    """A prompt that runs block by block, with states claimed at these offsets."""
    story = Story()
    story.arrive("a", prompt=prompt, seed=seed)
    story.step(story.admit("a"))
    for column, start in enumerate(range(0, prompt, B)):
        end, slot = min(start + B, prompt), 7 + column
        acts = [story.run("a", start, end, slot - 1 if start else -1, (end, slot))]
        if end in claims:
            acts.append(story.claim(slot, "a", end))
        if end == prompt:
            acts.append(story.output("a"))
        story.step(*acts)
    return story


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


# I6 and I17: the resume point, and what was reported of it.


def restored(hit: int, slot: int, group_hits: list[int]) -> Story:
    """b shares a's 40 tokens, of which slot 7 is published as state@16, and is given a hit."""
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)), story.claim(7, "a", 16))
    audit = story.auditor
    return story.step(
        lambda: audit.admit("b", hit, 0, False),
        lambda: audit.restore("b", GDN_GROUP, slot, (hit - 1) // B, hit, group_hits),
    )


def test_i5_a_hit_that_is_published_and_covered_is_none() -> None:
    assert restored(16, 7, [16, 16]).findings == ()
    assert restored(16, 7, [40, 16]).findings == ()


def test_i5_a_hit_that_attention_does_not_cover() -> None:
    (finding,) = restored(16, 7, [12, 16]).findings
    assert (finding.invariant, finding.severity, finding.group) == ("I5", "poison", "attention")
    assert (finding.claimed, finding.held) == (16, 12)
    assert finding.message == "b was given a hit of 16 tokens, and attention has 12 of them"


@pytest.mark.parametrize(("hit", "slot"), [(12, 7), (16, 8), (16, 0)])
def test_i5_a_hit_that_the_group_has_not_published_in_that_slot(hit: int, slot: int) -> None:
    (finding,) = restored(hit, slot, [16, 16]).findings
    assert (finding.invariant, finding.group, finding.claimed) == ("I5", "gdn", hit)


@pytest.mark.parametrize("why", Withdrawal)
def test_i5_a_hit_is_on_what_was_published_before_its_own_admission(why: Withdrawal) -> None:
    """What the admission itself withdraws, and publishes, is told before the hit."""
    for seconds, invariants in ((0, []), (1, ["I5"])):
        story = Story()
        story.arrive("a", "b", seed=1)
        story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)), story.claim(7, "a", 16, b"x"))
        withdrawn = story.unclaim(7, "x", why)
        # In another's decision the claim is gone before this one looks.
        others = [story.run("a", 16, 32, 7, (32, 9))] if seconds else []
        story.step(withdrawn, *others, story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
        assert [finding.invariant for finding in story.findings] == invariants


def test_i5_a_claim_of_the_very_admission_is_no_hit() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(story.claim(7, "b", 16), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
    assert [finding.invariant for finding in story.findings] == ["I5"]


def test_who_hits_a_poisoned_slot_reads_it_although_its_admission_withdraws_the_claim() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 12, -1, (12, 7), stop="encoder"), story.claim(7, "a", 16, b"x"))
    story.step(story.unclaim(7, "x", Withdrawal.REKEY), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
    assert [(finding.invariant, finding.readers) for finding in story.findings] == [("I1", ("b",))]


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


# I10 and I12: what is read.


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


# Counts of wrong reads.


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


def test_a_fast_forwarded_run_is_as_the_same_steps_one_by_one() -> None:
    told = []
    for together in (True, False):
        story = Story()
        story.arrive("a", prompt=15, outputs=40)
        story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
        if together:
            story.steps += 5
            story.step(story.run("a", 15, 20, 7, (20, 7), steps=5, accepted=[0] * 5), story.output("a", 5))
        else:
            for n in range(15, 20):
                story.step(story.run("a", n, n + 1, 7, (n + 1, 7)), story.output("a"))
            story.step()
        story.step(story.claim(7, "a", 32))
        (found,) = story.findings
        told.append((found.step, found.held, found.verdict, found.write and found.write.step))
    assert told[0] == told[1] == (7, 20, "wrong offset", 5)


def test_a_fast_forwarded_run_with_drafts_goes_on_behind_the_accepted_ones_of_its_last_step() -> None:
    for start, told in ((15 + 3 + 1 + 2, []), (15 + 3 + 1 + 1, ["I6", "I11"])):
        story = Story(drafts=2)
        story.arrive("a", prompt=15, outputs=40)
        story.step(story.admit("a"), story.run("a", 0, 15, -1, (15, 7)), story.output("a"))
        # [15, 18), of which both drafts hold, then [18, 21), of which one holds: 20 is next... or both: 21.
        drafts = story.outputs_of("a", 19, 2)
        run = story.run("a", 15, 21, 7, (19, 7), (20, 8), (21, 9), drafts=drafts, steps=2, accepted=[2, 2])
        story.steps += 2
        story.step(run, story.output("a", 6))
        story.step(story.run("a", start, start + 1, 9 if start == 21 else 8, (start + 1, 20)))
        assert story.invariants == told


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


# Two recurrent groups.

KDA = Group("kda", "recurrent", B)


def two_groups() -> Story:
    """Request a leaves state@16 in slot 7 of gdn and in slot 17 of kda, both claimed."""
    story = Story((FULL, GDN, KDA))
    story.arrive("a")
    story.step(
        story.admit("a"),
        story.run("a", 0, 16, -1, (16, 7)),
        lambda: story.auditor.advance("a", 2, 0, 16, (), -1, [(16, 17)], 0),
        story.claim(7, "a", 16, b"gdn"),
        story.claim(17, "a", 16, b"kda", group=2),
    )
    assert story.findings == ()
    return story


def test_i1_names_the_group_whose_slot_is_wrong() -> None:
    story = two_groups()
    story.step(lambda: story.auditor.advance("a", 2, 16, 20, (), 17, [(20, 17)], 0))
    _, found = story.findings
    assert (found.slot, found.group) == (17, "kda")


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


# I14: liveness.


def test_i14_a_run_that_ends_in_a_livelock_names_who_is_stuck() -> None:
    story = Story()
    story.arrive("a", "b")
    story.step(story.admit("a"))
    story.auditor.end(201, 2010, True)
    (found,) = story.findings
    assert (found.invariant, found.severity, found.step, found.time_us) == ("I14", "liveness", 201, 2010)
    assert found.request == "a" and "and 1 more" in found.message


def test_i14_a_run_that_ends_well_has_none() -> None:
    story = Story()
    story.arrive("a")
    story.auditor.end(201, 2010, False)
    assert story.findings == ()


def finished(outputs: int) -> Story:
    """With one output: prefilled and finished in the same step; with two: finished in the next."""
    story = Story()
    story.arrive("done", prompt=16, outputs=outputs)
    story.arrive("stuck")
    acts = [story.admit("done"), story.run("done", 0, 16, -1, (16, 7)), story.output("done")]
    if outputs == 1:
        return story.step(*acts, story.finish("done"))
    story.step(*acts)
    return story.step(story.run("done", 16, 17, 7, (17, 8)), story.output("done"), story.finish("done"))


@pytest.mark.parametrize("outputs", [2, 1])
def test_i14_a_request_that_finished_is_not_stuck(outputs: int) -> None:
    story = finished(outputs)
    story.auditor.end(300, 3000, True)
    (found,) = story.findings
    assert (found.request, "more" in found.message) == ("stuck", False)


# What a connector brings, and explicit tokens.


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


@given(st.lists(st.integers(0, 2**40), min_size=17, max_size=30), st.integers(1, 16))
def test_a_recorded_run_with_explicit_tokens_is_checked_as_well(ids: list[int], held: int) -> None:
    story = Story()
    story.auditor.arrive("a", 0, 0, (), tuple(ids), 4)
    story.step(story.admit("a"), story.run("a", 0, held, -1, (held, 7), stop="junction"), story.claim(7, "a", 16))
    assert [f.held for f in story.findings] == ([] if held == 16 else [held])


def test_outputs_of_an_explicit_stream_are_appended() -> None:
    story = Story()
    story.auditor.arrive("a", 0, 0, (), (1, 2, 3), 4)
    story.step(story.admit("a"), story.run("a", 0, 3, -1, (3, 7)), lambda: story.auditor.output("a", 2, (4, 5)))
    story.step(story.run("a", 3, 4, 7, (4, 7)), story.claim(7, "a", 4))
    assert story.findings == ()
    assert story.auditor.requests["a"].tokens.fingerprint(5) == Tokens.explicit([1, 2, 3, 4, 5]).fingerprint(5)


@pytest.mark.parametrize(("encoder", "wrong"), [((), False), (((4, 6),), True), (((16, 4),), False)])
def test_i5_a_state_of_text_is_not_that_of_an_item_with_the_same_tokens(
    encoder: tuple[tuple[int, int], ...], wrong: bool
) -> None:
    story = Story()
    story.arrive("a", seed=1)
    story.step(story.admit("a"), story.claim(7, "a", 16), story.run("a", 0, 16, 0, (16, 7)))
    story.auditor.arrive("b", 1, 0, ((1, 40),), None, 8, encoder)
    story.step(story.admit("b", 16, 7))
    assert ("I5" in {finding.invariant for finding in story.findings if finding.request == "b"}) is wrong


# The words of the language.


def _used(enum: type[Severity] | type[Holding]) -> set[str]:
    sources = [file.read_text() for file in sorted((ROOT / "oracle").rglob("*.py"))]
    return {word.value for word in enum if any(f"{enum.__name__}.{word.name}" in source for source in sources)}


def test_every_severity_and_every_verdict_that_a_check_gives_is_of_the_list_and_given() -> None:
    sources = [file.read_text() for file in sorted((ROOT / "oracle").rglob("*.py"))]
    assert _used(Severity) == set(Severity)
    assert _used(Holding) == set(Holding)
    # None is a bare string.
    for word in Severity:
        assert not any(re.search(rf'"I\d+", "{word}"|severity="{word}"', source) for source in sources)


def test_what_a_file_may_expect_are_the_words_of_the_list() -> None:
    fields = FindingModel.model_fields
    assert _words(fields["severity"].annotation) == list(Severity)
    assert set(_words(fields["verdict"].annotation)) == {*Holding, ""}


def _words(annotation: Any) -> list[str]:
    return [word for part in get_args(annotation) for word in get_args(part)]


def test_every_word_says_what_it_means() -> None:
    for enum in (Severity, Holding, Refusal, Withdrawal, CopyKind, Stop):
        assert all(word.meaning and str(word) == word.value for word in enum)


def test_the_meanings_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text()
    rows = [f"| `{word}` | {word.meaning} |" for word in Severity]
    assert "\n".join(rows) in page
