"""Requests that hit nothing although an earlier request begins alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.explain.misses import GroupCoverage, Miss, Misses, misses
from stateat.sim.report.terminal.misses import reasons, sentence
from stateat.sim.run.simulate import drive
from stateat.sim.scenario.load import load, runs
from tests.support.worlds import World, worlds

ROOT = Path(__file__).resolve().parents[3]


def of(file: str, variant: str, case: str = "") -> list[Miss]:
    chosen = [run for run in runs(load(ROOT / "scenarios" / file), only=[variant]) if run.case == case]
    return misses(chosen[0])


def test_a_boundary_that_nobody_published() -> None:
    """S2 on the fixed gate: the first prompt is one chunk to its end, across 1600."""
    (miss,) = of("seeds/s02-anatomy.yaml", "fixed gate")
    attention, gdn = miss.groups
    assert (miss.request, miss.step, miss.earlier, miss.shared, miss.reach) == ("b", 3, "a", 2000, 2000)
    assert gdn == GroupCoverage("gdn", True, 1600, boundaries=1, null=1, longest=0, left=0)
    assert (attention.longest, attention.left) == (1600, 1600)
    assert list(reasons(miss)) == [
        "no boundary of gdn in it was ever published (1 of 1 null)",
        "there is 1,600 of attention",
    ]


def test_a_drop_that_leaves_nothing() -> None:
    """A recurrent group gives up its only state."""
    (miss,) = of("field/a-state-cannot-be-dropped.yaml", "popped")
    assert [(had.group, had.longest, had.left) for had in miss.groups] == [("attention", 64, 48), ("gdn", 64, 0)]
    assert "gdn has 64, of which a look-ahead drafter's drop leaves nothing" in sentence(miss)


def test_groups_that_have_no_length_in_common() -> None:
    """The drop takes attention below the only state."""
    (miss,) = of("field/exact-multiple-with-a-drafter.yaml", "before", "64 tokens")
    assert all(had.left for had in miss.groups)
    assert sentence(miss).endswith(
        "no length is there in all groups (the longest of each: attention 32 of 48, after the drop, gdn 48)"
    )


def test_states_that_were_published_and_are_gone() -> None:
    (miss,) = of("field/eviction-of-shallow-states-first.yaml", "least recently used")
    (gdn,) = [had for had in miss.groups if had.recurrent]
    assert (gdn.boundaries, gdn.null, gdn.longest) == (2, 0, 0)
    assert "no state of gdn in it can be hit any more, or yet (0 of 2 null, the rest was published)" in sentence(miss)


@pytest.mark.parametrize(
    ("had", "said"),
    [
        (GroupCoverage("gdn", True, 64, 0, 0, 0, 0), "no boundary of gdn (64) lies within the 63 that a hit may have"),
        (GroupCoverage("attention", False, 16, 3, 0, 0, 0), "attention has nothing of it any more"),
    ],
)
def test_other_reasons(had: GroupCoverage, said: str) -> None:
    assert list(reasons(Miss("b", 1, "a", 64, 63, (had,)))) == [said]


@pytest.mark.parametrize(
    ("file", "variant"),
    [
        ("field/a-block-above-every-prompt.yaml", "as configured"),  # less than a block is shared
        ("field/a-block-above-every-prompt.yaml", "one block more of prompt"),  # all that share one hit it
        ("seeds/s02-anatomy.yaml", "old gate"),
    ],
)
def test_who_shares_no_block_or_hits_is_none(file: str, variant: str) -> None:
    assert of(file, variant) == []


TURNS = """\
schema: stateat/1
name: turns
engine:
  preset: vllm-0.28.0
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
    - {name: gdn, kind: recurrent, block_size: 64}
  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [2, 0, 3]}
  clock: steps
workload:
  requests:
    - {id: a, prompt: [[3, 20]], max_tokens: OUTPUT}
    - {id: b, after: a, prompt: [[3, 20], [-1, OUTPUT], [4, 80]]}
"""


@pytest.mark.parametrize("preset", ["vllm-0.28.0", "vllm-0.32.0"])
@pytest.mark.parametrize(("output", "shared"), [(50, 64), (45, 64), (44, None), (43, None)])
def test_what_a_request_answered_is_there_for_the_next_turn(
    tmp_path: Path, preset: str, output: int, shared: int | None
) -> None:
    """The last output is not computed: 20 and 44 tokens leave 63."""
    (tmp_path / "turns.yaml").write_text(TURNS.replace("OUTPUT", str(output)).replace("vllm-0.28.0", preset))
    (run,) = runs(load(tmp_path / "turns.yaml"))
    found = [(miss.request, miss.earlier, miss.shared) for miss in misses(run)]
    assert found == ([] if shared is None else [("b", "a", shared)])


@given(worlds(preset="vllm-0.27.0"))
def test_exactly_those_without_a_hit_are_told_and_listening_changes_nothing(world: World) -> None:
    heard = Misses(world.options)
    told = drive(
        world.options,
        world.arrivals,
        world.budgets,
        observers=[heard],
        make=lambda policy, observer, seed: _listened(heard, policy, observer, seed),
    )
    assert told.digest == drive(world.options, world.arrivals, world.budgets).digest
    assert all(told.hits[miss.request] == 0 for miss in heard.found)
    prompts = {a.id: a.segments for a in world.arrivals}
    block = min(world.options.groups[i].block_size for i in world.options.recurrent)
    for miss in heard.found:
        assert miss.shared >= block and miss.earlier != miss.request
        assert prompts[miss.earlier][0][0] == prompts[miss.request][0][0]
        for had in miss.groups:
            assert had.left <= had.longest <= miss.reach <= miss.shared
            assert 0 <= had.null <= had.boundaries == miss.reach // had.block


def _listened(heard: Any, policy: Any, observer: Any, seed: int) -> Any:
    rules = replace(policy.rules, lookup=heard.lookup(policy.rules.lookup))
    return Scheduler(replace(policy, rules=rules), observer, seed, True)
