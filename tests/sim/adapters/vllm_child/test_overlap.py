"""How a release is asked if it schedules asynchronously, and what it makes of a depth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import objects
import overlap
import pytest


class Config:
    """A release's configuration: it checks much, and among it this."""

    def __init__(self, stages: int, runner_v2: bool | None, asked: bool | None, method: str = "") -> None:
        self.stages, self.runner_v2, self.method = stages, runner_v2, method
        self.scheduler_config = SimpleNamespace(async_scheduling=asked)

    @property
    def max_concurrent_batches(self) -> int:
        ahead = self.scheduler_config.async_scheduling and (self.runner_v2 or self.stages == 1)
        return self.stages + bool(ahead)

    def __post_init__(self) -> None:
        raise AssertionError("a check of the whole server")
        v1_async_sched_incompat = "an n-gram drafter" if self.method == "ngram" else None
        if self.scheduler_config.async_scheduling:
            if v1_async_sched_incompat is not None:
                raise ValueError(f"not with {v1_async_sched_incompat}")
        elif self.scheduler_config.async_scheduling is None:
            self.scheduler_config.async_scheduling = v1_async_sched_incompat is None
        raise AssertionError("another one")


def staged(depth: int, asked: bool | str, method: str = "", runner_v2: bool = True) -> Config:
    wanted = {"max_concurrent_batches": depth, "async_scheduling": asked, "runner_v2": runner_v2}
    told: Any = None if asked == "auto" else asked
    found: Config = overlap.staged(wanted, lambda stages, runner: Config(stages, runner, told, method))
    return found


@pytest.mark.parametrize(
    ("depth", "asked", "runner_v2", "made"),
    [
        (1, False, True, (1, None, False, 1)),
        (3, False, True, (3, None, False, 3)),
        (1, True, True, (1, True, True, 2)),
        (2, True, False, (1, False, True, 2)),
        (3, True, True, (2, True, True, 3)),
        (3, True, False, (3, False, True, 3)),
        (1, "auto", True, (1, True, True, 2)),
        (3, "auto", True, (2, True, True, 3)),
    ],
)
def test_a_depth_is_made_of_stages_and_of_the_step_ahead(
    depth: int, asked: bool | str, runner_v2: bool, made: tuple[Any, ...]
) -> None:
    config = staged(depth, asked, runner_v2=runner_v2)
    ahead = config.scheduler_config.async_scheduling
    assert (config.stages, config.runner_v2, ahead, config.max_concurrent_batches) == made


def test_what_the_release_itself_forbids_is_refused_in_its_words_and_by_default_off() -> None:
    said = r"engine\.async_scheduling: the release refuses this itself \(not with an n-gram drafter\)"
    with pytest.raises(objects.Unsupported, match=said):
        staged(1, True, "ngram")
    assert staged(3, "auto", "ngram").stages == 3
    assert staged(3, "auto", "ngram").scheduler_config.async_scheduling is False


def test_a_release_that_makes_another_depth_of_it_is_refused_by_name() -> None:
    class Single(Config):
        max_concurrent_batches = 1  # type: ignore[assignment]

    wanted = {"max_concurrent_batches": 2, "async_scheduling": False, "runner_v2": True}
    with pytest.raises(
        objects.Unsupported, match=r"engine\.max_concurrent_batches: found 2, and the release made it 1"
    ):
        overlap.staged(wanted, lambda stages, runner: Single(stages, runner, False))


def test_a_release_that_does_not_say_when_is_strange() -> None:
    class Silent(Config):
        def __post_init__(self) -> None:
            pass

    with pytest.raises(objects.Strange, match="it does not say when it schedules asynchronously"):
        overlap.decide(Silent(1, None, True))
