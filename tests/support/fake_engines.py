"""Checkouts and releases that stand-in workers run, each in its own way (``fake_vllm_child.py``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.adapters.vllm import install

FAKE = Path(__file__).resolve().parent / "fake_vllm_child.py"
SCENARIO: dict[str, Any] = {
    "schema": "stateat/1",
    "name": "one-request",
    "engine": {
        "preset": "vllm-0.27.0",
        "groups": [
            {"name": "attention", "kind": "full-attention", "block_size": 16},
            {"name": "gdn", "kind": "recurrent", "block_size": 16},
        ],
        "num_blocks": 10,
        "max_num_batched_tokens": 64,
        "clock": "steps",
    },
    "workload": {"requests": [{"id": "a", "prompt": [[1, 16]], "max_tokens": 2}]},
}
"""What the stand-in worker can run."""


def checkout(folder: Path, how: str = "") -> str:
    """A folder whose engine behaves so; as ``--engine`` names it."""
    scheduler = folder / install.SCHEDULER
    scheduler.parent.mkdir(parents=True)
    scheduler.write_text(how)
    return f"vllm:{folder}"


def behave(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Checkouts behave as their files say, releases well; returns what was started, which grows."""
    started: list[str] = []

    def fake(name: str, how: str) -> install.Source:
        started.append(name)
        return install.Source(name, (sys.executable, str(FAKE), *how.split()))

    checked = install.of_checkout

    def of_checkout(folder: Path, *, cache: Path) -> install.Source:
        checked(folder, cache=cache)
        return fake(folder.name, (folder / install.SCHEDULER).read_text())

    there = install.Installed("base", "base", 0, Path(), True)
    monkeypatch.setattr(install, "_look", lambda cache, name: there)
    monkeypatch.setattr(install, "of_checkout", of_checkout)
    monkeypatch.setattr(install, "of_release", lambda release, cache: fake(release, ""))
    monkeypatch.setattr(install, "of_python", lambda python: fake(python.name, ""))
    return started


def git(folder: Path, *command: str) -> str:
    """Runs git in a folder, as somebody."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", str(folder), *who, *command], capture_output=True, text=True, check=True)
    return done.stdout.strip()
