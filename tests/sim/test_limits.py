"""Bad input: every file under scenarios/limits is refused with the message that its head expects."""

import json
from pathlib import Path

import pytest

from stateat.sim.errors import InputError
from stateat.sim.scenario.load import load, runs

FOLDER = Path(__file__).parents[2] / "scenarios" / "limits"
MARK = "# expect: "


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_is_refused_as_expected(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEAT_SHARED", "/nowhere")
    expected = [line.removeprefix(MARK) for line in file.read_text().splitlines() if line.startswith(MARK)]
    with pytest.raises(InputError) as caught:
        for run in runs(load(file)):
            run.arrivals()
    found = str(caught.value).replace(f"{FOLDER}/", "").splitlines()
    assert len(expected) == len(found) > 0
    for line, message in zip(expected, found, strict=True):
        assert message.startswith(line)


def test_there_are_files() -> None:
    assert len(list(FOLDER.glob("*.yaml"))) > 40


def test_the_broken_trace_is_broken_in_one_line_only() -> None:
    lines = (FOLDER / "broken.jsonl").read_text().splitlines()
    wrong = [
        i
        for i, line in enumerate(lines, 1)
        if -(-(row := json.loads(line))["input_length"] // 512) > len(row["hash_ids"]) + 1
    ]
    assert wrong == [3]
