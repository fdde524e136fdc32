"""The real schedulers of installed releases decide what was recorded of them, and what the presets decide.

Not part of ``make test``; ``make conformance`` installs three releases and runs this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from neighbours import UNRECORDED

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.cli.main import main
from stateat.sim.conformance.compare import compare, run
from stateat.sim.conformance.recording import Recording, read
from stateat.sim.errors import RefusedError
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def children() -> Iterator[dict[str, Child]]:
    with ExitStack() as stack:
        found = [source for source in install.installed() if source.release in ("0.26.0", "0.27.0")]
        yield {source.release: stack.enter_context(install.of_release(source.release).open()) for source in found}


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
