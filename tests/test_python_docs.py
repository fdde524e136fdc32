"""docs/python.md and docs/sweeps.md hold to the code: examples run, tables name every column and key."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import stateat.sim.api
import stateat.sim.sweeps.stats
from stateat.sim.run import frames
from stateat.sim.sweeps.model import Choice, Integers, LogUniform, SweepFile, Uniform
from stateat.sim.sweeps.table import HEAD
from stateat.sim.sweeps.work import CAME

ROOT = Path(__file__).resolve().parent.parent
PYTHON, SWEEPS = ROOT / "docs" / "python.md", ROOT / "docs" / "sweeps.md"
OPTIONS = doctest.NORMALIZE_WHITESPACE


def failures(text: str, name: str, told: dict[str, object] | None = None) -> str:
    """What a doctest has to say of a text; '' if all is as shown."""
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, dict(told or {}), name, name, 0)
    assert test.examples
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=said.append)
    return "".join(said)


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))


def test_the_examples_of_the_page_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert failures(examples(PYTHON), "docs/python.md") == ""


@pytest.mark.parametrize("module", [stateat.sim.api, stateat.sim.sweeps.stats], ids=lambda module: module.__name__)
def test_the_examples_of_a_module_are_true(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert tests
    for test in tests:
        said: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
        assert said == []


def test_an_example_that_is_not_true_is_seen() -> None:
    """Negative control."""
    assert "Expected" in failures(">>> 1 + 1\n3\n", "wrong")


def cells(page: Path, heading: str) -> list[str]:
    """What is in backticks in the first cells of the tables under a heading."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    _, _, rest = text.partition(f"\n{heading}\n")
    assert rest, heading
    rows = re.split(r"^#", rest, maxsplit=1, flags=re.M)[0].splitlines()
    return [name for row in rows if row.startswith("| `") for name in re.findall(r"`([^`]*)`", row.split("|")[1])]


@pytest.mark.parametrize("name", ["findings", "requests", "steps", "claims", "chunks"])
def test_every_column_of_a_frame_is_on_the_page(name: str) -> None:
    assert cells(PYTHON, f"### {name}") == list(getattr(frames, name.upper()))


def test_every_column_of_a_sweeps_table_is_on_the_page() -> None:
    assert cells(SWEEPS, "## The table") == [*HEAD, "engine.max_num_seqs", *CAME, "error"]


def test_every_key_of_a_sweep_file_is_on_the_page() -> None:
    found = cells(SWEEPS, "## A sweep file")
    keys = [field.alias or name for name, field in SweepFile.model_fields.items()]
    assert found[: len(keys)] == keys
    drawn = (Uniform, LogUniform, Integers, Choice)
    told = [re.findall(r"[\w]+", text) for text in found[len(keys) :] if text.startswith("{")]
    for model, (_, kind, *rest) in zip(drawn, told, strict=True):
        assert rest == [name for name in model.model_fields if name != "kind"]
        assert model.model_fields["kind"].annotation.__args__ == (kind,)  # type: ignore[union-attr]
