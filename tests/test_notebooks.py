"""The notebooks run (small ones of them, in full by ``make notebooks``), and keep no outputs in git."""

from __future__ import annotations

import importlib.util
import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "01-anatomy-of-a-poisoned-slot",
    "02-poisoning-rates",
    "03-what-the-fix-costs",
    "04-real-traffic",
    "05-your-own-policy",
]


def runner() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks_run", ROOT / "notebooks" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(path: Path, kind: str) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_all_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEAT_QUICK", "1")
    monkeypatch.setenv("PYTHONPATH", "")
    runner().execute(path, tmp_path / path.name)
    assert any(cell.outputs for cell in cells(tmp_path / path.name, "code"))


def test_a_cell_that_fails_fails_its_notebook(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2, 'told'")])
    nbformat.write(notebook, tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="told"):
        runner().execute(tmp_path / "wrong.ipynb", tmp_path / "ran.ipynb")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path: Path) -> None:
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    assert json.loads(nbformat.writes(runner().stripped(kept))) == json.loads(path.read_text(encoding="utf-8")), (
        "run: python notebooks/run.py --strip"
    )


def test_a_notebook_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner().main(["06-nothing"]) == 2
    assert capsys.readouterr().err.startswith("found no notebook 06-nothing.ipynb, allowed: 01-anatomy")


def test_help_says_how_to_run_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        runner().main(["--help"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("NAME", "--strip", "build/notebooks", "STATEAT_QUICK=1"))
    with pytest.raises(SystemExit) as left:
        runner().main(["--stripp"])
    assert left.value.code == 2


def test_stripping_takes_out_what_running_puts_in(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1", id="sum")])
    run = runner()
    nbformat.write(run.stripped(notebook), tmp_path / "sum.ipynb")
    before = (tmp_path / "sum.ipynb").read_bytes()
    run.execute(tmp_path / "sum.ipynb", tmp_path / "ran.ipynb")
    (cell,) = cells(tmp_path / "ran.ipynb", "code")
    assert cell.execution_count == 1
    nbformat.write(run.stripped(nbformat.read(tmp_path / "ran.ipynb", as_version=4)), tmp_path / "again.ipynb")
    assert (tmp_path / "again.ipynb").read_bytes() == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_story(path: Path) -> None:
    """A title, a question, and words before each cell; and it ends in words."""
    all_cells = nbformat.read(path, as_version=4).cells
    assert re.match(r"# \w", all_cells[0].source)
    assert all_cells[-1].cell_type == "markdown"
    assert len(cells(path, "markdown")) >= 0.7 * len(cells(path, "code"))
    assert not [cell for cell in all_cells if not cell.source.strip()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_files_that_a_notebook_names_exist(path: Path) -> None:
    for cell in cells(path, "markdown"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", cell.source):
            assert re.match(r"https?://", target) or (path.parent / target).exists(), target
    assert not re.search(r"(?<![\w.])/(work|tmp|root|home)\b", path.read_text(encoding="utf-8"))


def test_the_page_tells_of_all_notebooks_and_all_pictures() -> None:
    from stateat.sim.report import plots

    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[([\w-]+)\]", page, re.M) == NAMES
    told = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)`", page, re.M))
    assert set(told) == set(plots.__all__)
    for name, arguments in told.items():
        assert [a.rstrip("=") for a in arguments.split(", ")] == list(signature(getattr(plots, name)).parameters)
