"""I14: a run in which nothing moves names who is stuck, and one that ends well names nobody."""

from __future__ import annotations

import pytest
from stories import Story


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
