"""States that are placed from outside: what the oracle makes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stories import GDN_GROUP, Story


def place(story: Story, slot: int, name: str, offset: int) -> Callable[[], None]:
    return lambda: story.auditor.place(name, GDN_GROUP, slot, offset)


@pytest.mark.parametrize(("claimed", "verdicts"), [(16, []), (32, [("I1", "wrong offset")])])
def test_a_placed_state_is_held_against_its_claim(claimed: int, verdicts: list[tuple[str, str]]) -> None:
    story = Story()
    story.arrive("a")
    story.step(place(story, 7, "a", 16), story.claim(7, "a", claimed))
    assert [(finding.invariant, finding.verdict) for finding in story.findings] == verdicts


def test_it_can_be_hit_in_the_step_in_which_it_is_placed_and_by_another() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(
        place(story, 7, "a", 16), story.claim(7, "a", 16), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8))
    )
    assert story.findings == ()


def test_whose_request_has_ended_is_known_still() -> None:
    story = Story()
    story.arrive("a", "b", seed=1)
    story.step(story.admit("a"), story.run("a", 0, 40, -1, (40, 9)), story.finish("a"))
    story.step()
    story.step(
        place(story, 7, "a", 16), story.claim(7, "a", 16), story.admit("b", 16, 7), story.run("b", 16, 32, 7, (32, 8))
    )
    assert story.findings == ()


def test_a_placed_state_of_another_text_is_foreign() -> None:
    story = Story()
    story.arrive("a", "b")
    story.step(place(story, 7, "a", 16), story.claim(7, "b", 16))
    assert [(finding.invariant, finding.verdict) for finding in story.findings] == [("I1", "foreign")]


def test_i8_nothing_is_placed_into_a_slot_that_somebody_uses() -> None:
    story = Story()
    story.arrive("a", "b")
    story.step(story.admit("b"), story.take("b", 7), story.run("b", 0, 16, -1, (16, 7)))
    story.step(place(story, 7, "a", 16), story.release("b", 7))
    assert [finding.invariant for finding in story.findings] == ["I8"]
