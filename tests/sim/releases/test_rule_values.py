"""A wrong value of any rule, wherever it is said, is refused with its place and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_sweep
import yaml
from click.testing import CliRunner

from stateat.sim.cli.main import main
from stateat.sim.errors import InputError
from stateat.sim.releases.rules import RULES
from stateat.sim.scenario.load import load

FILE = """\
schema: stateat/1
name: wrong
engine:
  max_num_batched_tokens: 32
  groups:
    - {{name: attention, kind: full-attention, block_size: 16}}
    - {{name: gdn, kind: recurrent, block_size: 64}}
  rules: {{{engine}}}
workload:
  requests:
    - {{id: a, prompt: [[1, 200]]}}
variants:
  one: {{rules: {{{variant}}}}}
cases:
  first: {{engine: {{rules: {{{case}}}}}}}
"""
LINES = {"engine": 8, "variant": 13, "case": 15}
WRONG = {"a name": "nope", "a word for false": '"no"', "a number": "3", "a list": "[a, b]", "nothing": "null"}


def written(folder: Path, **where: str) -> Path:
    file = folder / "wrong.yaml"
    file.write_text(FILE.format(**{"engine": "", "variant": "", "case": "", **where}))
    return file


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("where", LINES)
def test_a_wrong_value_is_refused_with_its_line(rule: str, where: str, tmp_path: Path) -> None:
    for value in WRONG.values():
        file = written(tmp_path, **{where: f"{rule}: {value}"})
        with pytest.raises(InputError) as refused:
            load(file)
        text = str(refused.value)
        assert text.startswith(f"{file}:{LINES[where]}: "), text
        assert f"rules.{rule}: " in text and ("allowed" in text or "did you mean" in text), text


@pytest.mark.parametrize("rule", RULES)
def test_a_plug_in_is_refused_where_only_names_are_allowed(rule: str, tmp_path: Path) -> None:
    file = written(tmp_path, engine=f'{rule}: "some_module:Thing"')
    if RULES[rule].signature is not None:
        # It is imported when the run starts.
        load(file, allow_code=True)
        return
    with pytest.raises(InputError, match=f"engine.rules.{rule}: unknown value 'some_module:Thing'"):
        load(file, allow_code=True)


@pytest.mark.parametrize("command", ["check", "replay", "explain"])
def test_every_command_says_so(command: str, tmp_path: Path) -> None:
    for rule in RULES:
        file = written(tmp_path, engine=f"{rule}: nope")
        result = CliRunner().invoke(main, [command, str(file)])
        assert f"{file}:8: engine.rules.{rule}: unknown value 'nope'" in result.output, result.output
        assert result.exit_code == 2, (rule, result.exit_code)


def test_a_list_of_files_tells_such_a_file_as_refused(tmp_path: Path) -> None:
    for rule in RULES:
        result = CliRunner().invoke(main, ["list", str(written(tmp_path, engine=f"{rule}: nope"))])
        assert result.exit_code == 2 and "0 scenario files, 1 refused" in result.output, (rule, result.output)


def test_a_sweep_of_a_rule_says_so(tmp_path: Path) -> None:
    for rule in RULES:
        file = tmp_path / "sweep.yaml"
        swept = small_sweep.sweep(grid={f"engine.rules.{rule}": ["nope"]})
        file.write_text(yaml.safe_dump(swept, sort_keys=False))
        result = CliRunner().invoke(main, ["sweep", str(file)])
        assert result.exit_code == 2 and f"engine.rules.{rule}[0]: unknown value 'nope'" in result.output, result.output


def test_a_wrong_value_of_the_command_line_is_refused_by_name(tmp_path: Path) -> None:
    for rule in RULES:
        result = CliRunner().invoke(main, ["replay", str(written(tmp_path)), "--rule", f"{rule}=nope"])
        assert result.exit_code == 2 and f"--rule {rule}=nope: unknown value 'nope'" in result.output, result.output
