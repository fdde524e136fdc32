"""Kept worlds: those in which a preset once differed from its release, with what the live release decided.

``tests/data/worlds.json.gz`` has them, and worlds of every release with steps in flight; ``make test`` replays them
without vLLM.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from random_worlds.heard import ORDER, Heard, totals
from random_worlds.world import World
from stateat.sim.run.engine import Make

FILE = Path(__file__).parents[2] / "data" / "worlds.json.gz"


def told(world: World, make: Make | None = None) -> dict[str, Any]:
    """What an engine decides in a world, as plain data; ``make``: a live release."""
    heard = Heard()
    outcome = world.run(heard, make)
    return {"steps": heard.plain(), "totals": json.loads(json.dumps(totals(outcome)))}


def keep(name: str, why: str, world: World, make: Make) -> None:
    """Add a world with what the live release decides in it, or put it in place of the one of this name."""
    kept = {each["scenario"]["name"]: each for each in read()} if FILE.exists() else {}
    kept[name] = {"scenario": world.plain(name, why), "release": told(world, make)}
    lines = [json.dumps(kept[each], separators=(",", ":")) for each in sorted(kept)]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(gzip.compress(("[\n" + ",\n".join(lines) + "\n]\n").encode(), mtime=0))


def read() -> list[dict[str, Any]]:
    """All kept worlds: ``scenario`` and what the ``release`` of its preset decided."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def differences(kept: dict[str, Any]) -> Iterator[str]:
    """Where the reference engine decides a kept world otherwise than was recorded: the first place, in words."""
    own, release = told(World.of(kept["scenario"])), kept["release"]
    if own != release:
        steps = sorted({*own["steps"], *release["steps"]}, key=int)
        for step in steps:
            mine, theirs = own["steps"].get(step, {}), release["steps"].get(step, {})
            for kind in (k for k in ORDER if mine.get(k) != theirs.get(k)):
                yield f"step {step}, {kind}: reference {mine.get(kind)}, release {theirs.get(kind)}"
                return
        yield f"in all: reference {own['totals']}, release {release['totals']}"
