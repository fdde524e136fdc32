"""Listening to a release's scheduler and cache."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import listeners
import objects
import pytest


@pytest.mark.parametrize(("fresh", "needed", "told"), [(True, 11, True), (False, 11, False), (True, 3, False)])
def test_a_need_of_more_blocks_than_there_are_is_no_refusal_for_a_hit_of_this_step(
    fresh: bool, needed: int, told: bool
) -> None:
    def need(request_id: str, new_computed_blocks: Sequence[Any]) -> int:
        # As a release may forget what it looked at.
        manager.cached_blocks_this_step.clear()
        return needed

    manager = SimpleNamespace(cached_blocks_this_step={b"hit"} if fresh else {b"other"})
    ears = SimpleNamespace(pool=SimpleNamespace(num_gpu_blocks=10), same_step=False)
    heard = listeners.Ears._needing(ears, manager, need)
    assert heard("a", [SimpleNamespace(block_hash=b"hit")]) == needed
    assert ears.same_step is told
    ears.same_step = False
    assert heard("a", new_computed_blocks=[]) == needed and not ears.same_step
    with pytest.raises(objects.Strange, match="has no cached_blocks_this_step"):
        listeners.Ears._needing(ears, SimpleNamespace(), need)
