"""Input files: none costs more memory than its limit, and what is wrong with one is a message."""

from __future__ import annotations

import gzip
import json
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from stateat.sim import inputs
from stateat.sim.adapters.log import read as read_log
from stateat.sim.conformance.recording import read as read_recording
from stateat.sim.errors import InputError
from stateat.sim.geometry.families import read as read_config
from stateat.sim.inputs import MAX_SHOWN, as_json, open_lines, read_bytes, shown
from stateat.sim.scenario.load import load
from stateat.sim.sweeps.read import read as read_sweep
from stateat.sim.workload.lengths import Empirical, draw
from stateat.sim.workload.streams import stream
from stateat.sim.workload.traces import Trace
from stateat.sim.workload.traces import read as read_trace

FORMATS = ("mooncake", "bailian", "azure", "jsonl")


def table(file: Path) -> None:
    draw(Empirical(kind="empirical", path=str(file), column="n"), 3, stream(0, "t"), file.parent, "here")


def trace(file: Path, form: str) -> None:
    read_trace(Trace.model_validate({"format": form, "path": str(file)}), file.parent, "here")


READERS: dict[str, Any] = {
    "scenario": load,
    "sweep": read_sweep,
    "config": read_config,
    "recording": read_recording,
    "log": lambda file: list(read_log(file)),
    "table": table,
    **{form: lambda file, form=form: trace(file, form) for form in FORMATS},
}
"""Whoever reads a file that a user names."""
LIMITS = (
    "stateat.sim.inputs.MAX_LINE",
    "stateat.sim.scenario.tree.MAX_DOCUMENT",
    "stateat.sim.geometry.families.MAX_DOCUMENT",
    "stateat.sim.conformance.recording.MAX_RECORDING",
)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_without_end_is_one_message_and_little_memory(
    tmp_path: Path, name: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in LIMITS:
        monkeypatch.setattr(limit, 2**16)
    file = tmp_path / "endless"
    # 16 MiB without a line's end.
    raw = b'{"a": "' + b" " * 2**24
    file.write_bytes(gzip.compress(raw) if packed else raw)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            READERS[name](file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = str(caught.value)
    assert str(file) in said and len(said) < 500 + len(str(file))
    assert peak < 2**21


DEGENERATE = {
    "empty": b"",
    "line": b"\n",
    "lines": b"\n\n\r\n",
    "mark": b"\xef\xbb\xbf",
    "mark and line": b"\xef\xbb\xbf\n",
    "blanks": b"  \t \n",
    "return": b"\r\n",
    "zero": b"\0",
    "zeros": b"\0\0\n\0\n",
    "comma": b",\n",
    "quote": b'"',
    "header": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
    "other header": b"n\n",
    "empty first line": b"\nTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,5\n",
    "short row": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03\n",
    "row of nothing": b"TIMESTAMP,ContextTokens,GeneratedTokens\n,,\n",
    "null": b"null\n",
    "object": b"{}\n",
    "list": b"[]\n",
    "not UTF-8": b"\xff\xfe\n",
    "cut gzip": gzip.compress(b"{}")[:12],
    "no gzip": b"\x1f\x8bno",
    "deep": b"[" * 100_000,
    "digits": b"1" * 10_000,
}


@pytest.mark.parametrize("content", DEGENERATE)
@pytest.mark.parametrize("name", READERS)
def test_a_file_with_nothing_in_it_is_refused_by_every_reader(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / "nothing"
    file.write_bytes(DEGENERATE[content])
    with pytest.raises(InputError) as caught:
        READERS[name](file)
    said = str(caught.value)
    assert str(file) in said and len(said) < 1000


@pytest.mark.parametrize("form", FORMATS)
def test_a_byte_order_mark_and_line_ends_of_windows_change_no_trace(tmp_path: Path, form: str) -> None:
    row = {"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1], "chat_id": 1}
    text = json.dumps(row) + "\n\n"
    if form == "azure":
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\n2023-11-16 18:17:03,9,1\n"
    if form == "jsonl":
        text = '{"id": "a", "prompt": [[1, 9]]}\n\n'
    said = []
    for raw in (text.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), gzip.compress(text.encode())):
        (tmp_path / "trace").write_bytes(raw)
        said.append(read_trace(Trace.model_validate({"format": form, "path": "trace"}), tmp_path, "here"))
    assert said[0] == said[1] == said[2] and len(said[0]) == 1


def test_a_row_of_quoted_line_ends_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE", 2**12)
    (tmp_path / "t.csv").write_text("n\n" + '"\n",' * 2**13)
    with pytest.raises(InputError, match=r"t\.csv:[0-9]+: found a row of more than 4,096 characters"):
        table(tmp_path / "t.csv")


def test_a_trace_of_too_many_blocks_is_told_to_set_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateat.sim.workload.traces.MAX_SEGMENTS", 5)
    rows = [{"id": f"r{i}", "prompt": [[1, 4], [2, 4]]} for i in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="more than 5 blocks in all prompts; set limit"):
        trace(tmp_path / "t.jsonl", "jsonl")


def test_lines_are_told_by_their_own_number(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a\n" * 70 + b"\xff\n")
    with pytest.raises(InputError, match="t:71: not UTF-8: byte 0xff"), open_lines(tmp_path / "t") as lines:
        list(lines)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 200_000))
    writer.start()
    assert len(read_bytes(pipe, 200_000, "a text")) == 200_000
    writer.join(10)


VALUES = ["x" * 10**6, ["x" * 10**6], list(range(10**6)), {"k" * 10**6: 1}, 10**5000, None]


@pytest.mark.parametrize("value", VALUES, ids=range(6))
def test_what_was_found_is_shown_in_part(value: Any) -> None:
    assert len(shown(value)) <= MAX_SHOWN
    assert value == 10**5000 or len(as_json(value)) <= MAX_SHOWN


LONG = "x" * 10**6


@pytest.mark.parametrize(
    "text",
    [
        f"schema: {LONG}",
        f"{LONG}: 1",
        f"name: {LONG}\n{LONG}: {LONG}",
        f"engine: {{preset: {LONG}, rules: {{{LONG}: {LONG}}}, groups: [{{name: a, kind: {LONG}}}]}}",
        f"workload: {{trace: {{format: {LONG}, path: {LONG}}}}}",
        f"engine: {{groups: [{{name: a, kind: recurrent, block_size: 64}}]}}\nname: a\nschema: stateat/1\n"
        f"workload: {{trace: {{format: jsonl, path: {LONG}}}}}",
        f"'{LONG}",
        f"&{LONG} a: *b",
        f"!{LONG} a",
    ],
    ids=range(9),
)
def test_a_message_quotes_a_part_of_what_is_long(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_trace(load(tmp_path / "s.yaml").expanded[0].workload.trace, tmp_path, "here")  # type: ignore[arg-type]
    assert len(str(caught.value)) < 20_000
