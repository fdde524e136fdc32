"""Live releases on groups that the recordings do not have: sliding windows, several attention groups, flagged ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

pytestmark = pytest.mark.live

RELEASES = ("0.26.0", "0.29.0", "0.30.0", "0.31.0", "0.33.0")


@st.composite
def loads(draw: st.DrawFn) -> tuple[Options, list[Arrival]]:
    """A hybrid with a window or two, drafters of every kind, shared prefixes, pools that run short."""
    attention = draw(st.sampled_from([4, 8, 16]))
    recurrent = attention * draw(st.sampled_from([1, 2, 4]))
    groups = [
        Group("attention", "full-attention", attention, draw(st.booleans())),
        Group("gdn", "recurrent", recurrent),
    ]
    for i in range(draw(st.integers(1, 2))):
        size = draw(st.sampled_from([4, attention]))
        window = draw(st.integers(2, 3 * recurrent))
        groups.append(Group(f"window {i}", "full-attention", size, draw(st.booleans()), sliding_window=window))
    drafts = draw(st.integers(0, 3))
    # A group is flagged for a drafter that is there.
    method = draw(st.sampled_from(["mtp", "dflash", "dspark"])) if drafts else "ngram"
    if not drafts:
        groups = [replace(g, eagle=False) for g in groups]
    options = Options(
        tuple(groups),
        num_blocks=draw(st.integers(300, 900)),
        max_num_batched_tokens=draw(st.integers(recurrent + drafts + 1, 8 * recurrent)),
        max_num_seqs=draw(st.integers(1, 6)),
        partial_hits=False,
        speculative=Speculative(method, drafts, tuple(draw(st.lists(st.integers(0, drafts), min_size=1, max_size=3)))),
        clock="steps",
    )
    arrivals = []
    for i in range(draw(st.integers(2, 7))):
        shared, own = draw(st.integers(1, 6 * recurrent)), draw(st.integers(1, 2 * recurrent))
        segments = ((draw(st.integers(1, 2)), shared), (100 + i, own))
        arrivals.append(Arrival(f"r{i}", i, draw(st.integers(0, 30)), segments, draw(st.integers(1, 12))))
    return options, arrivals


@pytest.fixture(scope="module")
def children() -> Iterator[dict[str, Child]]:
    with ExitStack() as stack:
        found = [source for source in install.installed() if source.release in RELEASES]
        yield {source.release: stack.enter_context(install.of_release(source.release).open()) for source in found}


def on(child: Child) -> Make:
    return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)


@pytest.mark.parametrize("release", RELEASES)
@settings(max_examples=150)
@given(load=loads())
def test_any_groups_are_decided_as_the_live_release_decides_them(
    children: dict[str, Child], release: str, load: tuple[Options, list[Arrival]]
) -> None:
    if release not in children:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    options, arrivals = replace(load[0], preset=f"vllm-{release}"), load[1]
    heard = []
    for make in (None, on(children[release])):
        decisions = Decisions()
        outcome = drive(options, arrivals, observers=[decisions], fast_forward=False, make=make)
        told = {name: value for name, value in vars(decisions).items() if name not in ("stops", "_offsets", "_evicted")}
        heard.append((told, outcome.hits, outcome.poisoned, outcome.wrong_reads, outcome.livelock))
    assert heard[0] == heard[1]
