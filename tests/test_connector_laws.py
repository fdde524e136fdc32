"""Laws of whole runs with a connector, over any world (:mod:`worlds`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import SOUND, Padded, World, worlds

from stateat.sim.cache.manager import KVCache
from stateat.sim.events import Group
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.releases import presets
from stateat.sim.releases.rules import RULES
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive, simulate
from stateat.sim.scenario.load import load, runs
from stateat.sim.workload import Arrival

FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
CLEAN = (
    "exact-slot",
    "reconciled",
    "fails-closed",
    "divergent",
    "draft-group-missing",
    "draft-group-left-out",
    "tails",
)
WRONG = ("positional", "divergent-unbacked")


@dataclass(frozen=True)
class Case:
    """A world with a tier, and when its pool is emptied."""

    world: World
    resets: tuple[int, ...]

    def run(self, fast_forward: bool = True) -> tuple[Outcome, bool]:
        padded, world = Padded(), self.world
        outcome = drive(
            world.options, world.arrivals, world.budgets, observers=[padded], fast_forward=fast_forward,
            resets=self.resets,
        )  # fmt: skip
        return replace(outcome, wall_s=0.0), padded.found


@st.composite
def cases(
    draw: st.DrawFn,
    connectors: tuple[str, ...],
    failures: tuple[str, ...] = ("recompute", "shorter-prefix"),
    odds: int = 4,
) -> Case:
    """vLLM 0.28's rules, and a lookup that returns states only where they are; one load in ``odds`` fails."""
    world = draw(worlds("vllm-0.28.0", drafts_fit=True))
    rules = {
        "tier_return": "aligned-window",
        "connector": draw(st.sampled_from(connectors)),
        "load_failure": draw(st.sampled_from(failures)),
    }
    arrivals = tuple(
        replace(
            a,
            load_error=draw(st.integers(1, odds)) == 1,
            abort=a.time + draw(st.integers(0, 9)) if a.after is None and draw(st.integers(0, 3)) == 0 else None,
        )
        for a in world.arrivals
    )
    options = replace(world.options, rules={**SOUND, **rules}, offload=Offload(draw(st.integers(1, 200))))
    resets = tuple(draw(st.lists(st.integers(0, 40), max_size=6)))
    if options.clock == "us":
        resets = tuple(8000 * time for time in resets)
    return Case(replace(world, options=options, arrivals=arrivals), resets)


@settings(max_examples=250)
@given(case=cases(CLEAN))
def test_a_connector_that_goes_by_what_is_advertised_never_brings_a_wrong_state(case: Case) -> None:
    outcome, padded = case.run()
    assume(not padded)
    event(f"loaded: {outcome.loaded_tokens > 0}")
    assert [f.message for f in outcome.findings if f.severity == "poison"] == []


@pytest.mark.parametrize("connector", WRONG)
def test_one_that_does_not_is_found_to(connector: str) -> None:
    """Negative controls of the law above."""

    def wrong(case: Case) -> bool:
        outcome, padded = case.run()
        return not padded and outcome.wrong_restores > 0

    assert wrong(find(cases((connector,)), wrong, settings=FIRST))


def test_a_load_that_fails_unnoticed_is_found() -> None:
    def wrong(case: Case) -> bool:
        outcome, padded = case.run()
        return not padded and outcome.wrong_restores > 0

    assert wrong(find(cases(("exact-slot",), ("ignored",), odds=1), wrong, settings=FIRST))


@settings(max_examples=80)
@given(case=cases((*CLEAN, *WRONG, "saves-cancelled"), ("recompute", "shorter-prefix", "ignored")))
def test_telling_decode_steps_at_once_changes_nothing(case: Case) -> None:
    assert case.run()[0] == case.run(fast_forward=False)[0]


@st.composite
def brought(draw: st.DrawFn, connectors: tuple[str, ...] = ()) -> World:
    """A world of small blocks, under any preset and two rules at most, in which a connector brings parts of prompts.

    ``connectors``: vLLM 0.28's rules and one of these instead.
    """
    world = draw(worlds(widest=16, drafts_fit=bool(connectors)))
    if connectors:
        arrivals = tuple(
            replace(a, external=draw(st.one_of(st.just(0), st.integers(0, a.num_prompt_tokens - 1))))
            for a in world.arrivals
        )
        return replace(world.under("vllm-0.28.0", connector=draw(st.sampled_from(connectors))), arrivals=arrivals)
    names = draw(st.lists(st.sampled_from(list(RULES)), max_size=2, unique=True))
    values = {name: draw(st.sampled_from(list(RULES[name]))) for name in names}
    arrivals = tuple(replace(a, external=draw(st.integers(0, a.num_prompt_tokens - 1))) for a in world.arrivals)
    preset = draw(st.sampled_from(list(presets.PRESETS)))
    return replace(world.under(preset, **values), arrivals=arrivals)


@settings(max_examples=200)
@given(world=brought())
def test_what_is_found_beside_external_tokens_is_found_in_its_step_told_at_once_or_not(world: World) -> None:
    outcome, alone = Case(world, ()).run()[0], Case(world, ()).run(fast_forward=False)[0]
    event(f"hazards: {any(f.severity == 'hazard' for f in outcome.findings)}")
    assert outcome == alone


def starts_wrong(world: World) -> bool:
    outcome, padded = Case(world, ()).run()
    return not padded and any(f.severity == "poison" and f.root for f in outcome.findings)


@settings(max_examples=250)
@given(world=brought(("exact-slot", "divergent")))
def test_what_a_connector_brings_beyond_a_hit_is_what_the_request_goes_on_from(world: World) -> None:
    assert not starts_wrong(world)


def test_a_hit_inside_a_block_that_is_kept_beside_what_is_brought_is_found() -> None:
    assert starts_wrong(find(brought(("longest-group",)), starts_wrong, settings=FIRST))


@st.composite
def padded(draw: st.DrawFn) -> World:
    """A request of which all but the last token is brought, beside one that decodes: it is padded with placeholders."""
    block, drafts = draw(st.integers(4, 48)), draw(st.integers(1, 3))
    options = Options(
        (
            Group("attention", "full-attention", draw(st.sampled_from([block, 2 * block]))),
            Group("gdn", "recurrent", block),
        ),
        preset=draw(st.sampled_from(list(presets.PRESETS))),
        rules={"worker": draw(st.sampled_from(list(RULES["worker"])))},
        speculative=Speculative(draw(st.sampled_from(["ngram", "mtp"])), drafts, (draw(st.integers(0, drafts)),)),
        clock="steps",
    )
    lengths = draw(st.integers(1, 3 * block)), draw(st.integers(2, 3 * block))
    decodes = Arrival("decodes", 0, 0, ((1, lengths[0]),), max_tokens=40)
    time, tokens = draw(st.integers(3, 9)), draw(st.integers(4, 30))
    brought = Arrival("brought", 1, time, ((2, lengths[1]),), max_tokens=tokens, external=lengths[1] - 1)
    return World(options, (decodes, brought), ())


@settings(max_examples=300)
@given(world=padded())
def test_what_a_padded_row_leaves_is_found_in_its_step_told_at_once_or_not(world: World) -> None:
    outcome, alone = Case(world, ()).run()[0], Case(world, ()).run(fast_forward=False)[0]
    event(f"wrong reads: {alone.wrong_reads > 0}")
    assert outcome == alone


WRITTEN_ON = Path(__file__).parent.parent / "scenarios" / "field" / "a-published-tail-is-written-at-every-step.yaml"


def test_a_request_whose_worker_writes_what_is_claimed_is_never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """I9 is told in the step of each write; who takes its blocks for settled tells the writes of a run as one."""

    def steps(fast_forward: bool) -> list[int]:
        (case,) = runs(load(WRITTEN_ON), only=["when given a block"])
        outcome = simulate(case, fast_forward=fast_forward)
        return [f.step for f in outcome.findings if f.invariant == "I9"]

    assert steps(True) == steps(False) == [1, 2, 3, 4, 5, 6]
    monkeypatch.setattr(KVCache, "_settled", lambda *_: True)
    assert steps(True) != steps(False)
