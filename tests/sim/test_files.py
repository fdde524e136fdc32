"""Output files: refused early, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stateat.sim import files
from stateat.sim.errors import InputError
from stateat.sim.files import atomic, check_writable, write_text

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_text_is_written_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_text(tmp_path / "out.json", "{}\nä\n", "--json")
    assert names(tmp_path) == ["out.json"]
    assert (tmp_path / "out.json").read_bytes() == "{}\nä\n".encode()


def test_what_is_not_utf_8_is_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "out.json", "\udcff", "--json")
    assert (tmp_path / "out.json").read_text() == "\\udcff"


def test_a_link_to_itself_is_never_written_and_one_to_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"--json .*loop: Too many levels of symbolic links"):
        check_writable(tmp_path / "loop", "--json")
    (tmp_path / "there").symlink_to("none/file")
    with pytest.raises(InputError, match=r"--json .*there: there is no folder .*none"):
        check_writable(tmp_path / "there", "--json")
    (tmp_path / "new").symlink_to("target")
    write_text(tmp_path / "new", "x", "--json")
    assert (tmp_path / "target").read_text() == "x"


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("old and longer")
    write_text(tmp_path / "out.json", "new", "--json")
    assert (tmp_path / "out.json").read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, InputError])
def test_whatever_goes_wrong_leaves_the_old_file_and_no_partial_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(error), atomic(path, "--json") as partial:
        partial.write_text("half")
        assert names(tmp_path) == [partial.name, "out.json"]
        assert path.read_text() == "old"
        raise error
    assert names(tmp_path) == ["out.json"]
    assert path.read_text() == "old"


def test_a_partial_file_keeps_its_suffix_and_is_hidden(tmp_path: Path) -> None:
    with atomic(tmp_path / "out.png", "--plot") as partial:
        assert partial.suffix == ".png" and partial.name.startswith(".") and partial.parent == tmp_path
        partial.write_text("x")


def test_an_error_of_the_disk_names_the_option(tmp_path: Path) -> None:
    full = pytest.raises(InputError, match=r"--json .*out\.json: No space left on device")
    with full, atomic(tmp_path / "out.json", "--json") as partial:
        partial.write_text("x")
        raise OSError(28, os.strerror(28))
    assert names(tmp_path) == []


def test_what_was_never_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--json"), atomic(tmp_path / "out.json", "--json"):
        pass
    assert names(tmp_path) == []


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text", "--json")
    reader.join(10)
    assert heard == ["text"]
    assert pipe.is_fifo() and names(tmp_path) == ["pipe"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--log .*: found a folder, allowed is a file"):
        check_writable(tmp_path, "--log")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--log .*there is no folder .*none"):
        check_writable(tmp_path / "none" / "out", "--log")
    with pytest.raises(InputError), atomic(tmp_path / "none" / "out", "--log"):
        raise AssertionError("never entered")


def test_a_folder_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(InputError, match=r"--log .*no permission to write"):
        check_writable(tmp_path / "out", "--log")


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").touch()
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path) == tmp_path)
    with pytest.raises(InputError, match=r"--log .*no permission to write"):
        check_writable(tmp_path / "out", "--log")
    check_writable(tmp_path / "other", "--log")


def test_a_special_file_in_a_folder_that_cannot_be_written_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path) != tmp_path)
    check_writable(tmp_path / "pipe", "--json")


def left_by_a_killed_run(path: Path) -> None:
    """Writes half of a file, and ends without any clean-up."""
    code = (
        "import os, pathlib, sys; from stateat.sim.files import atomic\n"
        "with atomic(pathlib.Path(sys.argv[1]), '--log') as partial:\n"
        "    partial.write_text('half'); os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False).returncode == 9


def test_what_a_killed_run_left_is_cleared_by_the_next_one(tmp_path: Path) -> None:
    left_by_a_killed_run(tmp_path / "o.log")
    (partial,) = names(tmp_path)
    assert "partial" in partial
    write_text(tmp_path / "other.log", "x", "--log")
    assert names(tmp_path) == [partial, "other.log"]
    write_text(tmp_path / "o.log", "x", "--log")
    assert names(tmp_path) == ["o.log", "other.log"]


def test_what_is_being_written_or_is_no_leftover_is_never_cleared(tmp_path: Path) -> None:
    mine = [".o.7.log", ".o.partial.log", ".o.x.partial.log", ".o.7.partial.txt", ".oo.7.partial.log"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".o.7.partial.log").symlink_to(".o.7.log")
    with atomic(tmp_path / "o.log", "--log") as first:
        first.write_text("first")
        write_text(tmp_path / "o.log", "second", "--log")
        assert first.read_text() == "first"
    assert (tmp_path / "o.log").read_text() == "first"
    assert names(tmp_path) == sorted([*mine, ".o.7.partial.log", "o.log"])
    assert all((tmp_path / name).read_text() == "mine" for name in mine)
