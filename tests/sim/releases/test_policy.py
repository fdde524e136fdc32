"""A policy: options and rules, resolved once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateat.sim.errors import PolicyError
from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.releases import policy as policies
from stateat.sim.releases.policy import Policy
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))


def test_a_run_resolves_its_rules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = []
    resolve = policies.resolve

    def count(values: dict[str, str]) -> object:
        resolved.append(values)
        return resolve(values)

    monkeypatch.setattr(policies, "resolve", count)
    drive(Options(GROUPS), [Arrival("a", 0, 0, ((1, 100),))])
    assert len(resolved) == 1


@pytest.mark.parametrize(("threshold", "longest"), [(0, 8192), (100, 100), (9000, 8192)])
def test_the_longest_chunk_is_bounded_by_budget_and_threshold(threshold: int, longest: int) -> None:
    assert Policy.of(Options(GROUPS, long_prefill_token_threshold=threshold)).longest_chunk == longest


def test_a_policy_under_other_rules_has_their_grid() -> None:
    policy = Policy.of(Options(GROUPS, cache_config_block_size=48))
    other = Policy.of(Options(GROUPS, cache_config_block_size=48, rules={"grid": "recurrent-group"}))
    assert (policy.grid, other.grid) == (48, 64)
    assert replace(policy, rules=other.rules).grid == 64


def test_a_grid_of_nothing_is_refused_by_name() -> None:
    policy = Policy.of(Options(GROUPS, rules={"grid": "recurrent-group"}))

    def nothing(options: Options) -> int:
        return 0

    with pytest.raises(PolicyError, match=r"rule grid=recurrent-group gave 0, allowed is a block size of 1 or more"):
        _ = replace(policy, rules=replace(policy.rules, grid=nothing)).grid


def test_what_is_in_force_names_what_follows_from_the_options() -> None:
    told = Policy.of(Options(GROUPS)).in_force()
    assert (told["grid"], told["hash_unit"], told["scheduler_block_size"], told["longest_chunk"]) == (64, 16, 64, 8192)
    assert "groups" not in told and isinstance(told["rules"], dict) and not isinstance(told["rules"], Sequence)
