"""Help: what people come for, one line each, and examples that run in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from forked import Codes

from stateat.sim.cli.main import SECTIONS, main

NOT_RUN = {
    "--engine vllm": "needs installed releases or a checkout of vLLM",
    "git bisect run": "needs a checkout of vLLM",
    "stateat vllm install": "fetches from the package registry",
    "stateat conform": "needs recordings, which are not distributed",
    "stateat sweep concurrency": "takes 15 seconds; its shape is tried with --help",
    "stateat doctor": "loads what it finds; tests/sim/cli/test_streams.py runs it",
}
"""Examples that do not run in an empty folder, or not fast."""
SHORTER = {"check seeds": "check s02-anatomy"}
"""Files in place of a folder that takes 10 seconds, and that tests/test_scenarios.py runs."""
FINDS = {"stateat audit run.jsonl", "stateat replay s02-anatomy --rule split=every-boundary --json -"}
"""Examples that end with 1, since they find what the scenario is about or change what it expects."""


def commands(command: click.Command = main, name: str = "stateat") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for each in command.list_commands(ctx):
                found = command.get_command(ctx, each)
                assert found is not None
                yield from commands(found, f"{name} {each}")


def examples(command: click.Command) -> list[str]:
    """The lines below "Example" in a command's help."""
    _, _, text = (command.help or "").partition("Example")
    return [line.strip() for line in text.splitlines()[1:] if line.strip()]


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_and_says_what_each_option_does(name: str) -> None:
    command = COMMANDS[name]
    assert any(name in line or name == "stateat" for line in examples(command))
    assert all(param.help for param in command.params if isinstance(param, click.Option))
    for option in ("--help", "-h"):
        result = CliRunner().invoke(main, [*name.split()[1:], option], prog_name="stateat")
        assert result.exit_code == 0 and result.stdout.startswith(f"Usage: {name}")


def test_the_list_of_commands_has_a_whole_line_for_each_under_its_heading() -> None:
    result = CliRunner().invoke(main, ["--help"], prog_name="stateat", env={"COLUMNS": "80"})
    at = -1
    for heading, entries in SECTIONS.items():
        at = result.stdout.index(f"\n{heading}:\n", at + 1)
        for name, entry in entries.items():
            line = re.search(rf"^  {name} +(.*)$", result.stdout[at:], re.M)
            assert line is not None and line[1] == entry.help and entry.help.endswith(".")


def test_every_example_runs_in_an_empty_folder(tmp_path: Path, forked: Codes) -> None:
    lines = [line for command in COMMANDS.values() for line in examples(command)]
    assert all(any(part in line for line in lines) for part in NOT_RUN), "a reason without an example"
    cells, expected = [], []
    for i, line in enumerate(line for line in dict.fromkeys(lines) if not any(part in line for part in NOT_RUN)):
        (folder := tmp_path / str(i)).mkdir()
        for part in line.split("; "):
            call, _, _ = part.partition(" > ")
            for long, short in SHORTER.items():
                call = call.replace(long, short)
            streams = {"1": str(folder / "1.out"), "2": str(folder / "2.out")}
            cells.append({"args": shlex.split(call)[1:], "streams": streams, "folder": str(folder)})
            expected.append((call, int(call in FINDS)))
    codes = forked(cells)
    assert [(call, code) for (call, _), code in zip(expected, codes, strict=True)] == expected


def test_help_loads_only_what_it_prints() -> None:
    for args in ([], ["replay"], ["sweep"], ["geometry"]):
        code = (
            f"import sys; from stateat.sim.cli.main import main; main({[*args, '--help']}, standalone_mode=False)\n"
            "print({'numpy', 'pydantic', 'rich', 'yaml', 'simpy'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "set()"
