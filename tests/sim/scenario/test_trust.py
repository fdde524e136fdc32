"""A scenario of a stranger is data: code needs consent, paths outside its folder are shown, and nothing is quoted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

import stateat
from stateat.sim.cli.main import main
from stateat.sim.errors import InputError
from stateat.sim.scenario.load import load

ENGINE = {
    "groups": [
        {"name": "attention", "kind": "full-attention", "block_size": 16},
        {"name": "gdn", "kind": "recurrent", "block_size": 64},
    ]
}
WORKLOAD: dict[str, Any] = {"requests": [{"id": "a", "prompt": [[1, 200]]}]}
CODE = {"rules": {"split": "a_stranger:Go"}}
REFUSED = "found 'a_stranger:Go', code that the file names, allowed with --allow-code"


def scenario(**changes: Any) -> dict[str, Any]:
    return {"schema": "stateat/1", "name": "s", "engine": ENGINE, "workload": WORKLOAD} | changes


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module that a file may name."""
    (tmp_path / "a_stranger.py").write_text("class Go:\n    def __call__(self, chunk):\n        return chunk.offered\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("STATEAT_ALLOW_CODE", raising=False)
    yield tmp_path
    sys.modules.pop("a_stranger", None)


def write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


PLACES = [
    (scenario(engine=ENGINE | CODE), "engine.rules.split"),
    (scenario(variants={"v": CODE}), "variants.v.rules.split"),
    (scenario(variants={"v": {"engine": CODE}}), "variants.v.engine.rules.split"),
    (scenario(cases={"c": CODE}), "cases.c.rules.split"),
]


@pytest.mark.parametrize(("data", "key"), PLACES, ids=[key for _, key in PLACES])
@pytest.mark.parametrize("command", ["replay", "check", "explain", "list"])
def test_code_that_a_file_names_needs_consent(here: Path, command: str, data: dict[str, Any], key: str) -> None:
    write(here / "s.yaml", data)
    refused = run(command, "s.yaml")
    assert refused.exit_code == 2
    told = " ".join(refused.output.split())
    line = (here / "s.yaml").read_text().splitlines().index(f"{' ' * (2 * key.count('.'))}split: a_stranger:Go") + 1
    assert f"s.yaml:{line}: {key}: {REFUSED}" in told
    assert "a_stranger" not in sys.modules
    assert run(command, "s.yaml", "--allow-code").exit_code == 0
    assert ("a_stranger" in sys.modules) == (command != "list")


SWEEPS = [
    ({"base": scenario(engine=ENGINE | CODE)}, "base.engine.rules.split"),
    ({"base": "base.yaml"}, "engine.rules.split"),
    ({"base": scenario(), "grid": {"engine.rules.split": ["prefill-end", "a_stranger:Go"]}}, "split[1]"),
    ({"base": scenario(), "grid": {"engine.rules": [{}, CODE["rules"]]}}, "engine.rules[1].split"),
    (
        {
            "base": scenario(variants={"v": {"rules": {}}}),
            "sample": {"n": 3, "over": {"variants.v.rules.split": {"kind": "choice", "values": ["a_stranger:Go"]}}},
        },
        "values[0]",
    ),
]


@pytest.mark.parametrize(("parts", "key"), SWEEPS, ids=[key for _, key in SWEEPS])
def test_so_does_code_in_a_sweep_and_in_its_base(here: Path, parts: dict[str, Any], key: str) -> None:
    write(here / "base.yaml", scenario(engine=ENGINE | CODE))
    write(here / "w.yaml", {"schema": "stateat-sweep/1", "name": "w"} | parts)
    refused = run("sweep", "w.yaml")
    assert refused.exit_code == 2 and f"{key}: {REFUSED}" in refused.output
    assert "a_stranger" not in sys.modules
    assert run("sweep", "w.yaml", "--allow-code").exit_code == 0


def test_a_value_that_is_never_tried_is_refused_too(here: Path) -> None:
    values = [f"a_stranger:Go{i}" for i in range(3000)]
    data = {"base": scenario(), "grid": {"engine.rules.split": ["prefill-end", *values]}}
    with pytest.raises(InputError) as caught:
        stateat.sweep({"schema": "stateat-sweep/1", "name": "w"} | data)
    assert "... and 2950 more" in str(caught.value)


def test_the_environment_may_consent(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "s.yaml", scenario(engine=ENGINE | CODE))
    for said, code in (("1", 0), ("0", 2), ("", 2)):
        monkeypatch.setenv("STATEAT_ALLOW_CODE", said)
        assert run("check", "s.yaml").exit_code == code


def test_one_file_that_is_refused_leaves_the_others(here: Path) -> None:
    write(here / "bad.yaml", scenario(engine=ENGINE | CODE))
    write(here / "good.yaml", scenario())
    found = run("check", ".", "--json", "o.json")
    assert found.exit_code == 2 and "1 could not be run" in found.output
    assert json.loads((here / "o.json").read_text())["scenario"] == "s"


def test_ones_own_word_needs_nothing(here: Path) -> None:
    write(here / "s.yaml", scenario())
    assert run("replay", "s.yaml", "--rule", "split=a_stranger:Go").exit_code == 0
    assert stateat.replay("s.yaml", rules={"split": "a_stranger:Go"}).variants
    with pytest.raises(InputError) as caught:
        stateat.replay(scenario(engine=ENGINE | CODE))
    # There is no command line, and no file.
    assert "that the mapping names, allowed with allow_code=True, which" in str(caught.value)
    assert "--allow-code" not in str(caught.value)
    write(here / "s.yaml", scenario(engine=ENGINE | CODE))
    with pytest.raises(InputError, match="allow_code=True"):
        load("s.yaml")
    assert stateat.replay("s.yaml", allow_code=True).variants
    assert stateat.replay(scenario(engine=ENGINE | CODE), allow_code=True).variants


def test_an_unknown_rule_is_told_as_one(here: Path) -> None:
    write(here / "s.yaml", scenario(engine=ENGINE | {"rules": {"splitt": "a_stranger:Go", "publish": "a_stranger:Go"}}))
    told = run("check", "s.yaml").output
    assert "unknown rule 'splitt'" in told and "of rule 'publish'; allowed" in told and "--allow-code" not in told


# Paths.


def traced(path: str) -> dict[str, Any]:
    return scenario(workload={"trace": {"format": "jsonl", "path": path}})


@pytest.fixture
def shared(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = here / "shared"
    folder.mkdir()
    (here / "secret").write_text("top secret words\n")
    (folder / "t.jsonl").write_text('{"id": "a", "prompt": [[1, 200]]}\n')
    (folder / "link").symlink_to(here / "secret")
    monkeypatch.setenv("STATEAT_SHARED", str(folder))
    return folder


OUT = ("../secret", "/etc/passwd", "x/../../secret", "link", "", ".", "..", "../../../../etc/passwd")


@pytest.mark.parametrize("name", OUT)
@pytest.mark.usefixtures("shared")
def test_shared_does_not_leave_its_folder(here: Path, name: str) -> None:
    write(here / "s.yaml", traced(f"shared:{name}"))
    found = run("check", "s.yaml")
    assert found.exit_code == 2
    assert f"s.yaml:12: workload.trace: found 'shared:{name}', a" in found.output
    assert "secret words" not in found.output and "root:" not in found.output


@pytest.mark.usefixtures("shared")
def test_what_is_shared_is_read_without_a_word(here: Path) -> None:
    write(here / "s.yaml", traced("shared:t.jsonl"))
    found = run("check", "s.yaml")
    assert found.exit_code == 0 and found.stderr == ""


def test_a_path_out_of_the_folder_is_shown_once_and_before(here: Path) -> None:
    (here / "in").mkdir()
    (here / "out.jsonl").write_text("top secret words\n")
    (here / "in" / "link.jsonl").symlink_to(here / "out.jsonl")
    (here / "in" / "own.jsonl").write_text("words of its own\n")
    note = f"note: in/s.yaml reads {here / 'out.jsonl'}, outside its folder"
    for path in ("../out.jsonl", str(here / "out.jsonl"), "link.jsonl"):
        write(here / "in" / "s.yaml", traced(path) | {"variants": {"a": {}, "b": {}}})
        for command in ("check", "replay", "explain"):
            found = run(command, "in/s.yaml")
            assert found.exit_code == 2 and found.stderr.count(note) == 1
            assert found.output.index(note) < found.output.index("not quoted")
            assert "out.jsonl:1: " in found.output or "link.jsonl:1: " in found.output
            assert "secret" not in found.output
    write(here / "in" / "s.yaml", traced("own.jsonl"))
    found = run("check", "in/s.yaml")
    assert "note:" not in found.stderr and "found 'words of its own'" in found.output


def test_a_table_out_of_the_folder_is_not_quoted_either(here: Path) -> None:
    (here / "in").mkdir()
    (here / "out.csv").write_text("top,secret\nwords,of it\n")
    for column in ("other", "secret"):
        prompt = {"kind": "empirical", "path": "../out.csv", "column": column}
        made = {"arrivals": {"kind": "poisson", "rate": 1}, "count": 2, "prompt": prompt}
        write(here / "in" / "s.yaml", scenario(workload=made))
        found = run("check", "in/s.yaml")
        assert found.exit_code == 2 and "reads" in found.stderr
        assert "top" not in found.output and "words" not in found.output and "of it" not in found.output


def test_a_base_out_of_the_folder_is_shown_and_not_quoted(here: Path) -> None:
    (here / "in").mkdir()
    for text in ("top secret words\n", "[secret", "key: secret\n", "schema: other\nsecret: 1\n"):
        (here / "out.yaml").write_text(text)
        write(here / "in" / "w.yaml", {"schema": "stateat-sweep/1", "name": "w", "base": "../out.yaml"})
        found = run("sweep", "in/w.yaml")
        assert found.exit_code == 2
        assert f"note: in/w.yaml reads {here / 'out.yaml'}, outside its folder" in found.stderr
        assert "in/w.yaml:3: base: found '../out.yaml', allowed a scenario" in found.stderr
        assert "secret" not in found.output


def test_a_swept_path_is_shown(here: Path) -> None:
    (here / "in").mkdir()
    (here / "out.jsonl").write_text('{"id": "a", "prompt": [[1, 200]]}\n')
    (here / "in" / "own.jsonl").write_text('{"id": "a", "prompt": [[1, 200]]}\n')
    grid = {"workload.trace.path": ["own.jsonl", "../out.jsonl"]}
    data = {"schema": "stateat-sweep/1", "name": "w", "base": traced("own.jsonl"), "grid": grid}
    write(here / "in" / "w.yaml", data)
    found = run("sweep", "in/w.yaml")
    assert found.exit_code == 0
    assert found.stderr.count(f"reads {here / 'out.jsonl'}, outside its folder") == 1


def test_a_link_to_another_file_among_scenarios_is_not_quoted(here: Path) -> None:
    (here / "in").mkdir()
    (here / "secret").write_text("password: words\n")
    (here / "in" / "s.yaml").symlink_to(here / "secret")
    for command in ("check", "list"):
        found = run(command, "in")
        assert found.exit_code == 2 and "password" not in found.output and "words" not in found.output
