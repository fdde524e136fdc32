"""What live releases are told, and that they have it: options, drafters, checkpoints, on every installed one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.answers import BEGUN
from stateat.sim.adapters.vllm.asked import nearest
from stateat.sim.adapters.vllm.config import wire
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import Decisions
from stateat.sim.errors import RefusedError
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

pytestmark = pytest.mark.live

RELEASES = [preset.removeprefix("vllm-") for preset in PRESETS]
HYBRID = (Group("attention", "full-attention", 128, eagle=True), Group("gdn", "recurrent", 128))
SERVER = Options(HYBRID, max_num_batched_tokens=512, max_num_seqs=8, clock="steps")


@pytest.fixture(scope="module")
def children() -> Iterator[dict[str, Child]]:
    with ExitStack() as stack:
        found = [source for source in install.installed() if source.release in RELEASES]
        yield {source.release: stack.enter_context(install.of_release(source.release).open()) for source in found}


def of(children: dict[str, Child], release: str) -> Child:
    if release not in children:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    return children[release]


def on(child: Child) -> Make:
    return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)


def told(child: Child, options: Options, **changed: Any) -> list[str]:
    """Make a scheduler of it; its warnings."""
    return child.ask({"do": "init", "config": wire(options) | changed}, BEGUN)["warnings"]


class Refusals(Observer):
    """Why requests were refused."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()

    def refuse(self, request: str, reason: str) -> None:
        self.reasons.add(reason)


@pytest.mark.parametrize(("mode", "drafts"), [("all", 0), ("align", 12)])
@pytest.mark.parametrize("release", RELEASES)
def test_a_prompt_that_needs_more_blocks_than_there_are_is_not_refused_for_this_step(
    children: dict[str, Child], release: str, mode: str, drafts: int
) -> None:
    """A release says with a number of blocks that a hit is of this step; a prompt can need as many."""
    child = of(children, release)
    options = Options(
        (Group("gdn", "recurrent", 4, mamba_cache_mode=mode),),
        preset=nearest(release),
        num_blocks=10,
        speculative=Speculative(num_speculative_tokens=drafts),
        clock="steps",
    )
    here, there = Refusals(), Refusals()
    arrivals = [Arrival("a", 0, 0, ((1, 60),))]
    if mode == "all" and release > "0.32":
        with pytest.raises(RefusedError, match="mamba_cache_mode: all"):
            drive(options, arrivals, make=on(child))
        return
    drive(options, arrivals, observers=[there], make=on(child))
    drive(options, arrivals, observers=[here])
    assert here.reasons == there.reasons == {"full_sequence"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_hit_on_what_this_step_claims_is_refused_for_this_step(children: dict[str, Child], release: str) -> None:
    child = of(children, release)
    options = Options(HYBRID[1:], preset=nearest(release), num_blocks=64, clock="steps")
    here, there = Refusals(), Refusals()
    arrivals = [Arrival(name, i, 0, ((1, 300),)) for i, name in enumerate("ab")]
    drive(options, arrivals, observers=[there], make=on(child))
    drive(options, arrivals, observers=[here])
    assert here.reasons == there.reasons == {"same_step"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_checkpoint_lies_where_the_release_exports_it(children: dict[str, Child], release: str) -> None:
    """0.29 exports the last block boundary of a chunk and stops at the last hash boundary, which later ones export."""
    child = of(children, release)
    groups = (Group("attention", "full-attention", 32), Group("gdn", "recurrent", 32))
    options = Options(
        groups,
        preset="vllm-0.32.0",
        num_prefill_checkpoint_blocks=1,
        prefill_checkpoint_alignment=16,
        prefix_match_unit=16,
        clock="steps",
    )
    arrivals = [Arrival("a", 0, 0, ((1, 120),)), Arrival("b", 1, 0, ((1, 120),), after="a")]
    if release < "0.29":
        with pytest.raises(RefusedError, match=r"it has no engine\.num_prefill_checkpoint_blocks"):
            drive(options, arrivals, make=on(child))
        return
    outcome = drive(options, arrivals, make=on(child))
    assert (outcome.poisoned, outcome.hits) == (0, {"a": 0, "b": 112})


@pytest.mark.parametrize(
    ("release", "method", "drafts", "slots"),
    [
        ("0.26.0", "ngram", 3, 1),
        ("0.27.0", "eagle3", 1, 1),
        ("0.28.0", "eagle3", 3, 2),
        ("0.29.0", "dspark", 3, 2),
        ("0.32.0", "dflash", 3, 3),
        ("0.32.0", "ngram", 3, 3),
        ("0.33.0", "eagle3", 2, 1),
        ("0.33.0", "mtp", 1, 1),
    ],
)
def test_draft_slots_leave_a_drafter_its_method(
    children: dict[str, Child], release: str, method: str, drafts: int, slots: int
) -> None:
    speculative = Speculative(method, drafts, draft_slots=slots)
    options = replace(SERVER, preset=nearest(release), speculative=speculative)
    if method == "ngram":
        options = replace(options, groups=tuple(replace(group, eagle=False) for group in HYBRID))
    arrivals = [
        Arrival("a", 0, 0, ((1, 300),), 20),
        Arrival("b", 1, 2, ((2, 1000),), 20),
        Arrival("c", 2, 2, ((3, 700),), 20),
        Arrival("d", 3, 0, ((2, 1000), (4, 40)), 20, after="b"),
    ]
    heard = []
    for make in (None, on(of(children, release))):
        decisions = Decisions()
        outcome = drive(options, arrivals, observers=[decisions], fast_forward=False, make=make)
        heard.append((outcome.digest, outcome.hits, outcome.chunks, decisions.claims))
    assert heard[0] == heard[1]


@pytest.mark.parametrize("release", RELEASES)
def test_slots_that_a_server_would_not_take_are_warned_of(children: dict[str, Child], release: str) -> None:
    child = of(children, release)
    for slots, warns in ((0, False), (2, False), (5, True)):
        found = told(child, replace(SERVER, speculative=Speculative("eagle3", 3, draft_slots=slots)))
        assert bool(found) == warns, slots
        assert all("engine.speculative.draft_slots" in text for text in found)


HELD = {
    "look_ahead": ("engine.speculative.method", False),
    "lookahead_tokens": ("engine.speculative.method", 9),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", HELD)
def test_what_a_release_makes_something_else_of_is_refused_by_name(
    children: dict[str, Child], release: str, name: str
) -> None:
    """What follows from a drafter is not set but held: a wrong value stands for a release that derives another."""
    option, wrong = HELD[name]
    options = replace(SERVER, speculative=Speculative("mtp", 3))
    with pytest.raises(RefusedError, match=rf"vLLM {release} cannot run this: {option}.*the release made it"):
        told(of(children, release), options, **{name: wrong})
    assert told(of(children, release), options) == []


@pytest.mark.parametrize("release", RELEASES)
def test_modes_of_states_are_the_releases_own(children: dict[str, Child], release: str) -> None:
    """``all`` went with 0.32; until then a release runs it."""
    options = replace(SERVER, groups=(HYBRID[0], replace(HYBRID[1], mamba_cache_mode="all")))
    if release < "0.32":
        told(of(children, release), options)
    else:
        with pytest.raises(RefusedError, match=r"it has no engine\.groups\.1\.mamba_cache_mode: all"):
            told(of(children, release), options)


@pytest.mark.parametrize("release", RELEASES[-1:])
def test_a_connector_beside_hashes_that_look_ahead_is_refused(children: dict[str, Child], release: str) -> None:
    child = of(children, release)
    arrivals = [Arrival("a", 0, 0, ((1, 300),), external=128)]
    for look_ahead in (True, False):
        speculative = Speculative("mtp", 3, hash_lookahead=look_ahead)
        options = replace(SERVER, preset=nearest(release), speculative=speculative)
        if look_ahead:
            with pytest.raises(RefusedError, match=r"external tokens beside hashes that look ahead"):
                drive(options, arrivals, make=on(child))
        else:
            assert drive(options, arrivals, make=on(child)).finished == 1


@pytest.mark.parametrize("release", ["0.31.0", "0.32.0", "0.33.0"])
def test_a_limit_that_the_release_lowers_itself_is_warned_of(children: dict[str, Child], release: str) -> None:
    options = replace(SERVER, max_num_batched_tokens=16, speculative=Speculative("dflash", 3, draft_slots=0))
    found = told(of(children, release), options)
    lowered = [text for text in found if "engine.max_num_seqs" in text]
    assert len(lowered) == (release == "0.33.0"), found


@pytest.mark.parametrize("release", RELEASES)
def test_a_server_without_prefix_caching_has_another_cache_mode_and_says_so(
    children: dict[str, Child], release: str
) -> None:
    child, without = of(children, release), replace(SERVER, enable_prefix_caching=False)
    [said] = told(child, without)
    assert "mamba_cache_mode none" in said and "engine.enable_prefix_caching" in said
    assert not told(child, SERVER) and not told(child, replace(without, groups=HYBRID[:1]))
