"""Which states stay published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cache.retention import (
    RETENTIONS,
    Retention,
    floored,
    longer_only,
    on_grid,
    resend_and_longer,
    unshifted,
    with_and_without_drop,
)

PROMPTS, BLOCKS = st.integers(1, 5000), st.integers(1, 300)


@given(prompt=PROMPTS, block=BLOCKS)
def test_with_a_drop_a_resend_starts_a_block_earlier_than_a_longer_prompt_at_exact_multiples_only(
    prompt: int, block: int
) -> None:
    ends = resend_and_longer(prompt, block, True)
    longer = max(prompt // block * block - block, 0)
    resend = max((prompt - 1) // block * block - block, 0)
    assert set(ends) == {resend, longer}
    assert (longer - resend) in ((block, 0) if prompt % block == 0 else (0,))
    assert longer_only(prompt, block, True) == (longer,)


@given(prompt=PROMPTS, block=BLOCKS)
def test_without_a_drop_all_keep_the_last_boundary_that_leaves_a_token(prompt: int, block: int) -> None:
    last = frozenset({(prompt - 1) // block * block})
    for replays in (unshifted, longer_only, resend_and_longer, with_and_without_drop):
        assert floored(replays(prompt, block, False), block, block) == last


@given(prompt=PROMPTS, block=BLOCKS)
def test_unshifted_keeps_a_block_that_a_drafter_cannot_reach(prompt: int, block: int) -> None:
    (kept,) = floored(unshifted(prompt, block, True), block, block)
    assert kept == (prompt - 1) // block * block
    assert kept in with_and_without_drop(prompt, block, True)
    assert max(kept - block, 0) in with_and_without_drop(prompt, block, True)


@pytest.mark.parametrize(
    ("interval", "kept"),
    [(None, [16, 32, 48, 64]), (0, []), (16, [16, 32, 48, 64]), (32, [32, 64]), (48, [48])],
)
def test_an_interval_keeps_its_multiples(interval: int | None, kept: list[int]) -> None:
    assert [end for end in (16, 32, 48, 64) if on_grid(end, 16, interval)] == kept


def test_what_is_asked_for_is_in_force_where_the_rule_knows_it() -> None:
    force = {}
    for name, rule in RETENTIONS.items():
        assert isinstance(rule, Retention)
        force[name] = [rule.interval(asked) for asked in (None, 0, 64)]
    assert force.pop("dense") == [None, None, None]
    assert force.pop("boundaries-only") == [0, 0, 0]
    assert all(found == [None, 0, 64] for found in force.values())
