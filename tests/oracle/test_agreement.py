"""I5: a hit is held against the cache as the decision found it, whatever the rules then do with its claims."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import GDN_GROUP, B, Story

from stateat.sim.events import Withdrawal
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.tail_copy import TAIL_COPY
from stateat.sim.run.simulate import replay
from stateat.sim.scenario.load import load

FOLLOWED = """
schema: stateat/1
name: followed
title: The one follower of a tail
engine:
  preset: vllm-0.27.0
  groups:
    - {{name: attention, kind: full-attention, block_size: 2}}
    - {{name: gdn, kind: recurrent, block_size: 4}}
  rules: {{tail_copy: {tail_copy}, publish: {publish}}}
  clock: steps
workload:
  requests:
    - {{id: owner, prompt: [[1, 6]]}}
    - {{id: follower, after: owner, prompt: [[1, 6], [2, 2]]}}
    - {{id: again, after: follower, prompt: [[1, 6], [2, 2], [3, 3]]}}
"""


@pytest.mark.parametrize("publish", RULES["publish"])
@pytest.mark.parametrize("tail_copy", TAIL_COPY)
def test_a_hit_on_what_is_published_is_never_called_unpublished(tail_copy: str, publish: str, tmp_path: Path) -> None:
    path = tmp_path / "followed.yaml"
    path.write_text(FOLLOWED.format(tail_copy=tail_copy, publish=publish))
    (outcome,) = replay(load(path)).variants.values()
    assert "I5" not in {finding.invariant for finding in outcome.findings}


def test_the_follower_in_place_hits_and_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "followed.yaml"
    path.write_text(FOLLOWED.format(tail_copy="follower-in-place", publish="at-schedule"))
    (outcome,) = replay(load(path)).variants.values()
    assert outcome.hits["follower"] == 6
    assert outcome.findings == ()


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


@pytest.mark.parametrize("why", [why for why in Withdrawal if why is not Withdrawal.ASKED])
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


def test_i5_what_the_scenario_evicts_is_gone_before_the_first_decision() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)), story.claim(7, "a", 16, b"x"))
    asked = story.unclaim(7, "x", Withdrawal.ASKED)
    story.step(asked, story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
    assert [finding.invariant for finding in story.findings] == ["I5"]


def test_i5_a_claim_of_the_very_admission_is_no_hit() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 16, -1, (16, 7)))
    story.step(story.claim(7, "b", 16), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8)))
    assert [finding.invariant for finding in story.findings] == ["I5"]


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


@pytest.mark.parametrize(("slot", "judged"), [(7, True), (8, True), (5000, False)])
def test_i5_a_hit_on_a_slot_that_was_in_use_before_anybody_told_is_not_judged(slot: int, judged: bool) -> None:
    """Slot 7 is published, 8 is known not to be."""
    story = restored(16, slot, [16, 16])
    assert story.auditor.counts.not_judged == (set() if judged else {("b", GDN_GROUP)})
    assert ("I5" in story.invariants) == (slot == 8)
