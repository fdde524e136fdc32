"""The real schedulers of installed releases decide what was recorded of them, and what the presets decide.

Not part of ``make test``; ``make conformance`` installs three releases and runs this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import servers
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import UNRECORDED

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.cli.main import main
from stateat.sim.conformance.compare import Decisions, compare, run
from stateat.sim.conformance.recording import Recording, arrivals_of, options_of, read
from stateat.sim.errors import RefusedError
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
RANDOM = ("0.26.0", "0.27.0", "0.30.0", "0.31.0", "0.32.0")
RELEASES = [preset.removeprefix("vllm-") for preset in PRESETS]
RECORDED = [release for release in RELEASES if release not in UNRECORDED]


@pytest.fixture(scope="module")
def recorded(shared: Path) -> Callable[[str], list[Recording]]:
    files = sorted((shared / "golden").glob("*.json.gz"))
    return lambda release: [recording for path in files for recording in read(path, [release])]


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    release = request.param
    if release not in {found.release for found in install.installed()}:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    with install.of_release(release).open() as opened:
        yield opened


def on(child: Child) -> Make:
    return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)


@pytest.mark.parametrize(("child", "release"), [(r, r) for r in RECORDED], indirect=["child"], ids=RECORDED)
def test_a_live_release_decides_as_recorded(
    child: Child, release: str, recorded: Callable[[str], list[Recording]]
) -> None:
    results = [compare(recording, make=on(child)) for recording in recorded(release)]
    assert [r for r in results if r.status == "divergent"] == []
    assert Counter(r.status for r in results)["equal"] >= 69


@pytest.mark.parametrize("child", ["0.26.0"], indirect=True)
def test_another_releases_recording_is_not_met(child: Child, recorded: Callable[[str], list[Recording]]) -> None:
    """Negative control: 0.27's recordings on a live 0.26."""
    names = ("leftover-da", "turns-db", "smallbudget-da")
    found = {r.scenario: compare(r, make=on(child)).status for r in recorded("0.27.0") if r.scenario in names}
    assert found == dict.fromkeys(names, "divergent")


@pytest.mark.parametrize("child", ["0.27.0"], indirect=True)
def test_what_a_release_lacks_is_said_by_name(child: Child, recorded: Callable[[str], list[Recording]]) -> None:
    later = {r.scenario: r for r in recorded("0.32.0")}
    for name, lacking in (("ckpt-da", "num_prefill_checkpoint_blocks"), ("eagle-dnodrop", "speculative.block_drop")):
        with pytest.raises(RefusedError, match=f"vLLM 0.27.0 cannot run this: it has no engine.{lacking}"):
            run(later[name], True, "vllm-0.32.0", on(child))
    # A refusal leaves the child usable.
    assert run(later["single-da"], True, "vllm-0.32.0", on(child))[1].finished > 0


@pytest.mark.parametrize("child", ["0.26.0"], indirect=True)
def test_what_a_server_would_refuse_is_run_with_a_warning(
    child: Child, recorded: Callable[[str], list[Recording]]
) -> None:
    made: list[LiveScheduler] = []

    def make(*args: object) -> LiveScheduler:
        made.append(LiveScheduler(*args, child))  # type: ignore[arg-type]
        return made[-1]

    refused = {"longthr-db", "smallbudget-da", "smallbudget-db", "smallbudget-dc", "trim-da"}
    for recording in recorded("0.26.0"):
        if recording.scenario in refused | {"single-da"}:
            run(recording, True, "vllm-0.26.0", make)
            assert bool(made[-1].warnings) == (recording.scenario in refused), recording.scenario
            assert all("a server of this release would refuse" in warning for warning in made[-1].warnings)


@st.composite
def loads(draw: st.DrawFn) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A configuration and its requests: shared prefixes, block sizes, budgets, pools that run short, drafts."""
    attention = draw(st.sampled_from([4, 8, 16]))
    recurrent = attention * draw(st.sampled_from([1, 2, 3, 4, 8]))
    drafts = draw(st.integers(0, 4))
    requests: list[dict[str, object]] = []
    for i in range(draw(st.integers(1, 8))):
        shared, own = draw(st.integers(0, 5 * recurrent)), draw(st.integers(1, 3 * recurrent))
        requests.append(
            {
                "id": f"r{i}",
                "arrival_step": draw(st.integers(0, 12)),
                "segments": [[draw(st.integers(1, 3)), shared], [100 + i, own]] if shared else [[100 + i, own]],
                "max_tokens": draw(st.integers(1, 24)),
                "accepted": draw(st.lists(st.integers(0, drafts), min_size=1, max_size=3)),
            }
        )
    longest = 8 * recurrent // attention + 40
    config = {
        "attention_block_size": attention,
        "mamba_block_size": recurrent,
        # Whoever is alone must fit: attention, a state with its drafts, and one that is let go of.
        "num_blocks": draw(st.integers(longest + 12 + 2 * drafts, 6 * longest)),
        "max_num_batched_tokens": draw(st.integers(recurrent + drafts + 1, 8 * recurrent)),
        "max_num_seqs": draw(st.integers(1, 8)),
        "num_speculative_tokens": drafts,
        "eagle": bool(drafts) and draw(st.booleans()),
        "partial_hits": draw(st.booleans()),
    }
    return config, requests


@pytest.fixture(scope="module")
def children() -> Iterator[dict[str, Child]]:
    with ExitStack() as stack:
        found = [source for source in install.installed() if source.release in RANDOM]
        yield {source.release: stack.enter_context(install.of_release(source.release).open()) for source in found}


@pytest.mark.parametrize("release", RANDOM)
@settings(max_examples=300)
@given(load=loads())
def test_any_load_is_decided_as_the_live_release_decides_it(
    children: dict[str, Child], release: str, load: tuple[dict[str, object], list[dict[str, object]]]
) -> None:
    if release not in children:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    config, requests = load
    heard = []
    for make in (None, on(children[release])):
        decisions = Decisions()
        outcome = drive(
            options_of(config, release), arrivals_of(requests), observers=[decisions], fast_forward=False, make=make
        )
        evictions = {step: decisions.evictions(step) for step in range(outcome.steps + 1)}
        told = {name: value for name, value in vars(decisions).items() if name not in ("stops", "_offsets", "_evicted")}
        heard.append((told, evictions, outcome.poisoned, outcome.wrong_reads, outcome.livelock, outcome.free_blocks))
    assert heard[0] == heard[1]


@st.composite
def with_items(draw: st.DrawFn, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The same with spans that an encoder computes; each prompt ends in a text of its own."""
    return [replace(a, segments=(*a.segments, (10**6 + a.index, 1))) for a in servers.with_items(draw, arrivals)]


@pytest.fixture(scope="module")
def all_children() -> Iterator[dict[str, Child]]:
    with ExitStack() as stack:
        found = [source for source in install.installed() if source.release in RELEASES]
        yield {source.release: stack.enter_context(install.of_release(source.release).open()) for source in found}


@pytest.mark.parametrize("release", RELEASES)
@settings(max_examples=100)
@given(load=loads(), data=st.data())
def test_any_load_with_encoded_items_is_decided_as_the_live_release_decides_it(
    all_children: dict[str, Child], release: str, load: tuple[dict[str, object], list[dict[str, object]]], data: Any
) -> None:
    if release not in all_children:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    config, requests = load
    arrivals = data.draw(with_items(arrivals_of(requests)))
    # Livelocks are decisions too: the room may be less than an item needs.
    size, compute = data.draw(st.integers(20, 90)), data.draw(st.integers(30, 120))
    options = replace(
        options_of(config, release),
        encoder_cache_size=size,
        max_num_encoder_input_tokens=compute,
        disable_chunked_mm_input=data.draw(st.booleans()),
    )
    heard = []
    for make in (None, on(all_children[release])):
        decisions = Decisions()
        outcome = drive(options, arrivals, observers=[decisions], fast_forward=make is None, make=make)
        heard.append((outcome.digest, outcome.deferred, outcome.poisoned, outcome.livelock, outcome.free_blocks))
    assert heard[0] == heard[1]


@pytest.mark.parametrize("release", RANDOM)
@settings(max_examples=100)
@given(load=loads(), resets=st.lists(st.integers(0, 40), min_size=1, max_size=4), running=st.booleans())
def test_a_reset_is_decided_as_the_live_release_decides_it(
    children: dict[str, Child],
    release: str,
    load: tuple[dict[str, object], list[dict[str, object]]],
    resets: list[int],
    running: bool,
) -> None:
    if release not in children:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    config, requests = load
    heard = []
    for make in (None, on(children[release])):
        options, asked = options_of(config, release), arrivals_of(requests)
        outcome = drive(options, asked, resets=resets, reset_running=running, fast_forward=False, make=make)
        facts = ("digest", "resets", "preempted", "resume_hit_tokens", "claims", "evicted", "poisoned", "wrong_reads")
        heard.append({name: getattr(outcome, name) for name in (*facts, "free_blocks")})
    assert heard[0] == heard[1]


@pytest.mark.parametrize("releases", [("0.26.0", "0.27.0")])
def test_the_seeds_give_live_what_they_give_on_the_presets(children: dict[str, Child], releases: Sequence[str]) -> None:
    if missing := set(releases) - children.keys():
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    # A live release has no tier here.
    files = (ROOT / "scenarios" / "seeds").glob("*.yaml")
    seeds = sorted(str(path) for path in files if "offload:" not in path.read_text())
    assert seeds
    result = CliRunner().invoke(main, ["check", *seeds, "--engine", "vllm"])
    assert result.exit_code == 0, result.output
