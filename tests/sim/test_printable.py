"""Text from outside reaches a terminal as text: nothing in it is obeyed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from stateat.sim.cli.main import main
from stateat.sim.cli.options import console_on
from stateat.sim.errors import InputError
from stateat.sim.printable import PrintableStream, one_line, printable, short

EVIL = "\x1b[31mRED\x1b]0;title\x07"
SEEN = r"\x1b[31mRED\x1b]0;title\x07"
ODD = ["\x00", "\x07", "\x08", "\x0b", "\x1b", "\x7f", "\x85", "\x9b", "\u200f", "\u202e", "\u2028", "\u2029", "\u2066"]


@given(st.text())
def test_only_printable_characters_and_ends_of_lines_are_left(text: str) -> None:
    assert printable(text).replace("\n", "").isprintable() and one_line(text).isprintable()
    assert printable(text).count("\n") == text.count("\n")
    # What was made printable stays as it is, and what was printable too.
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize("character", ODD, ids=ascii)
def test_each_kind_of_control_is_taken_away(character: str) -> None:
    assert character not in printable(f"a{character}b")
    assert character not in str(InputError(f"a{character}b"))


def test_what_is_cut_is_one_line() -> None:
    assert short("a\nb", 10) == "a b"
    assert short("x" * 20, 10) == "x" * 9 + "…"


def test_a_stream_writes_what_is_printable_and_stays_open() -> None:
    below = io.StringIO()
    stream = PrintableStream(below)
    print(EVIL, file=stream)  # type: ignore[arg-type]
    stream.close()
    stream.writelines(["a\n", "b\n"])
    assert below.getvalue() == f"{SEEN}\na\nb\n"


def test_what_a_console_prints_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    console_on().print(Text(f"\x1b[31mRED\x1b]0;title {chr(0x202E)}"), soft_wrap=True)
    assert capsys.readouterr().out == "\\x1b[31mRED\\x1b]0;title \\u202e\n"


HEAD = """\
schema: stateat/1
name: s
engine:
  groups: [{name: gdn, kind: recurrent, block_size: 64}]
"""
REQUEST = "workload: {requests: [{id: a, prompt: [[1, 200]]}]}\n"
KEY = r'"\e[31mRED\e]0;title\a"'
FILES = {
    "key": f"{HEAD}{REQUEST}{KEY}: 1\n",
    "variant": f"{HEAD}{REQUEST}variants: {{{KEY}: {{engine: {{num_blocks: 0}}}}}}\n",
    "path": f"{HEAD}workload: {{trace: {{format: jsonl, path: {KEY}}}}}\n",
    "rule": HEAD + f"  rules: {{{KEY}: x}}\n" + REQUEST,
    "tag": f'{HEAD}{REQUEST}title: !<tag:%1b%5d0;title%07> "x"\n',
    "title": f"{HEAD}{REQUEST}title: {KEY}\n",
    "lines": f'{HEAD}{REQUEST}"a\\nok everything passed": 1\n',
}


@pytest.mark.parametrize("command", ["replay", "check", "explain", "list"])
@pytest.mark.parametrize("name", FILES)
def test_no_text_of_a_file_reaches_the_terminal_raw(tmp_path: Path, name: str, command: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILES[name])
    shown = CliRunner().invoke(main, [command, str(file)]).output
    assert shown and shown.replace("\n", "").isprintable()
    assert "\nok everything passed" not in shown


def test_a_name_of_a_file_does_not_either(tmp_path: Path) -> None:
    for name in ("\x1b]0;title\x07.yaml", "\u202elmay.yaml"):
        (tmp_path / name).write_text("")
        shown = CliRunner().invoke(main, ["check", str(tmp_path)]).output
        assert shown and shown.replace("\n", "").isprintable()
