"""The auditor hears slots, fast-forwarded runs and explicit tokens as they are; the words it uses are of the lists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import GDN_GROUP, Story

from stateat.sim.events import CopyKind, Holding, Invariant, Refusal, Severity, Stop, Withdrawal
from stateat.sim.scenario.models import FindingModel
from stateat.sim.tokens import Tokens

ROOT = Path(__file__).resolve().parents[2]


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
        assert found.write is not None
        told.append((found.step, found.held, found.verdict, found.write.step, found.write.start, found.write.end))
    assert told[0] == told[1] == (7, 20, "wrong offset", 5, 19, 20)


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
    for enum in (Invariant, Severity, Holding, Refusal, Withdrawal, CopyKind, Stop):
        assert all(word.meaning and str(word) == word.value for word in enum)


def test_the_meanings_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text()
    rows = [f"| `{word}` | {word.meaning} |" for word in Severity]
    assert "\n".join(rows) in page


@pytest.mark.parametrize("told", [False, True])
def test_a_claimed_slot_is_taken_for_a_new_one_only_by_who_tells_what_is_handed_out(told: bool) -> None:
    """Nobody wrote it: where slots handed out are told it is empty, else it may have been filled before."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), *[story.take("a", 7)] * told, story.run("a", 0, 16, -1, (16, 7)))
    story.step(story.claim(5000, "a", 16))
    assert story.invariants == ["I1"] * told
