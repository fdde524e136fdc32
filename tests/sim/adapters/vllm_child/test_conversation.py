"""The conversation with the parent: answers, and streams out of everybody's reach."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import conversation
import objects
import pytest

from stateat.sim.adapters.vllm.install import CHILD


def test_what_is_strange_or_lacking_is_answered_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [objects.Unsupported("it has no x"), objects.Strange("its A has no b"), ModuleNotFoundError(name="torch")]

    def answer(state: object, request: object) -> None:
        raise said.pop(0)

    monkeypatch.setattr(conversation, "answer", answer)
    written = io.StringIO()
    conversation.serve(["{}"] * 3, written)
    assert [json.loads(line) for line in written.getvalue().splitlines()] == [
        {"unsupported": "it has no x"},
        {"error": "its A has no b; known are vLLM 0.26.0 to 0.33.0"},
        {"error": "its Python has no module torch"},
    ]
    assert capsys.readouterr().err == ""


def test_the_protocol_is_out_of_the_reach_of_whoever_prints_or_reads() -> None:
    code = (
        "import os, subprocess, sys, conversation\n"
        "read, write = conversation.streams()\n"
        "print('printed'); os.write(1, b'written\\n'); subprocess.run(['echo', 'echoed'])\n"
        "print(repr(sys.stdin.read()))\n"
        "write.write(read.readline()); write.flush()\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(CHILD)},
        input="asked\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout == "asked\n"
    assert child.stderr == "printed\nwritten\nechoed\n''\n"


def test_it_runs_as_a_folder_and_says_which_module_a_python_lacks() -> None:
    said = subprocess.run(
        [sys.executable, str(CHILD)], input='{"do": "hello"}\n', capture_output=True, text=True, check=True
    )
    assert said.stdout == '{"error":"its Python has no module vllm"}\n' and said.stderr == ""
