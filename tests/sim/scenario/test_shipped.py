"""Names of the scenarios that come with stateat."""

from __future__ import annotations

from pathlib import Path

import pytest

import stateat
from stateat.sim.errors import InputError
from stateat.sim.scenario.shipped import ROOT, here_or_shipped, named, shown


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_a_file_or_a_folder_of_the_package() -> None:
    file = ROOT / "seeds" / "s02-anatomy.yaml"
    assert named(Path("s02-anatomy")) == named(Path("seeds/s02-anatomy")) == file
    assert {path.name for path in ROOT.iterdir() if path.is_dir()} == {"seeds", "field", "load", "limits", "sweeps"}
    assert all(named(Path(folder)) == ROOT / folder for folder in ("seeds", "field", "load", "limits", "sweeps"))
    assert shown(str(file)) == "seeds/s02-anatomy" and shown("seeds/x.yaml") == "seeds/x.yaml"
    assert stateat.load("s02-anatomy").path == file


def test_a_path_that_exists_wins(here: Path) -> None:
    (here / "s02-anatomy").write_text("schema: [")
    (here / "seeds").symlink_to("nowhere")
    for name in ("s02-anatomy", "seeds"):
        assert named(Path(name)) == Path(name)


@pytest.mark.parametrize("path", ["s02-anatomy.yaml", "/s02-anatomy", "../s02-anatomy", "x" * 300, "."])
def test_what_can_only_be_a_path_is_left_alone(path: str) -> None:
    assert named(Path(path)) == Path(path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "s02-anatomi",
            "s02-anatomi: no such file here, and no scenario of stateat has this name; did you mean s02",
        ),
        ("seeds/s02-anatomi", "did you mean seeds/s02-anatomy"),
        ("zzzzzz", "no scenario of stateat has this name; they are: stateat list"),
        ("block-wider-than-the-budget", "two scenarios of stateat have this name: field/block-.* and limits/block-"),
    ],
)
def test_a_name_that_says_no_file_is_refused_with_those_near(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        named(Path(name))


@pytest.mark.parametrize("name", ["s02\nanatomy", "s02\x1b[31m", "s" * 200])
def test_a_name_that_says_no_file_is_told_in_a_line(name: str) -> None:
    with pytest.raises(InputError) as refused:
        named(Path(name))
    assert str(refused.value).isprintable() and len(str(refused.value)) < 200


def test_the_default_is_the_folder_that_is_here(here: Path) -> None:
    assert here_or_shipped() == ROOT
    (here / "scenarios").mkdir()
    assert here_or_shipped() == Path("scenarios")
