"""The program: draws worlds, runs both sides in several processes, prints the table and shrinks what differs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import yaml

from random_worlds import kept
from random_worlds.compare import EQUAL, REFUSED, Comparison, compare
from random_worlds.draw import world as drawn
from random_worlds.keys import KEYS, MODES, in_mode, only, under
from random_worlds.shrink import shrink
from random_worlds.table import Column, text
from random_worlds.world import World
from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.fleet import Fleet
from stateat.sim.releases.presets import PRESETS

CHUNK = 100
"""Worlds that a process takes at a time."""

Compare = Callable[[World], Comparison]


@contextmanager
def live(release: str) -> Iterator[Compare]:
    """Comparison with a live release: one process of it for all worlds."""
    with Fleet(["vllm"]) as fleet:
        yield lambda world: compare(world, fleet.of(f"vllm-{release}")[1])


def known() -> list[str]:
    """Releases that are installed and have a preset."""
    return [found.release for found in install.installed() if f"vllm-{found.release}" in PRESETS]


def world_of(release: str, seed: int, index: int, keys: Sequence[str] = (), mode: str = "any") -> World:
    """World ``index`` of a seed for a release, in a mode; with ``keys`` all others are at their defaults."""
    return under(in_mode(only(drawn(seed, index), set(keys)), mode), f"vllm-{release}")


def column(release: str, seed: int, indices: Sequence[int], keys: Sequence[str] = (), mode: str = "any") -> Column:
    """Compare these worlds of one release."""
    counts = Column(release)
    with live(release) as compared:
        for index in indices:
            world = world_of(release, seed, index, keys, mode)
            started = perf_counter()
            found = compared(world)
            counts.seconds += perf_counter() - started
            counts.add(index, world, found)
    return counts


def main(given: Sequence[str] | None = None) -> int:
    """Run the program; 1 if something differs."""
    asked = _arguments(given)
    releases = asked.releases.split(",") if asked.releases else known()
    for release in releases:
        if release not in known():
            print(f"--releases: found {release}, allowed {', '.join(known())}")
            return 2
    keys = asked.keys.split(",") if asked.keys else []
    if wrong := [key for key in keys if key not in KEYS]:
        print(f"--keys: found {wrong[0]}, allowed {', '.join(KEYS)}")
        return 2
    if asked.keep:
        _keep(asked.keep, asked.why)
        return 0
    if asked.world is not None:
        return max(_show(release, asked.seed, asked.world, keys, asked) for release in releases)
    columns = {release: Column(release) for release in releases}
    parts = [range(i, min(i + CHUNK, asked.count)) for i in range(0, asked.count, CHUNK)]
    with ProcessPoolExecutor(asked.jobs) as pool:
        jobs = [
            pool.submit(column, release, asked.seed, part, keys, asked.mode) for release in releases for part in parts
        ]
        for job in jobs:
            part = job.result()
            columns[part.release].merge(part)
            done = columns[part.release]
            print(f"{done.release}: {done.worlds:,} worlds, {len(done.faults):,} differ", file=sys.stderr, flush=True)
    print(text(columns.values()))
    for each in columns.values():
        print(f"{each.release}: {each.worlds / max(each.seconds, 1e-9):.0f} worlds a second in each process")
        for index, what in each.faults.items():
            print(f"  world {index}: {what}")
        for what, count in each.refusals.most_common():
            print(f"  {count:,} {what}")
    if asked.json:
        asked.json.write_text(json.dumps([each.plain() for each in columns.values()], indent=1))
    for each in columns.values():
        shown: set[str] = set()
        for index, what in each.faults.items():
            if what not in shown and len(shown) < asked.shrink:
                shown.add(what)
                _show(each.release, asked.seed, index, keys, asked)
    return int(any(each.faults for each in columns.values()))


def _show(release: str, seed: int, index: int, keys: Sequence[str], asked: argparse.Namespace) -> int:
    """Print a world, as small as it differs, and in what; 1 if it does."""
    with live(release) as compared:
        world = world_of(release, seed, index, keys, asked.mode)
        found = compared(world)
        if found.status not in (EQUAL, REFUSED) and not asked.whole:
            world = shrink(world, lambda smaller: _same(compared(smaller), found))
            found = compared(world)
    print(f"\n# world {index} of seed {seed} on {release}: {found.status}")
    for line in (*str(found.difference or "").splitlines(), *found.text.splitlines()):
        print(f"# {line}")
    print(world.file(f"world-{seed}-{index}"))
    return int(found.fault)


def _keep(file: Path, why: str) -> None:
    """Keep the world of a scenario file with what its preset's live release decides."""
    world = World.of(yaml.safe_load(file.read_text()))
    with Fleet(["vllm"]) as fleet:
        kept.keep(file.stem, why, world, fleet.of(world.options.preset)[1])


def _same(found: Comparison, wanted: Comparison) -> bool:
    return (found.status, found.kind) == (wanted.status, wanted.kind)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("random_worlds", description=__doc__)
    add = parser.add_argument
    add("--releases", default="", help="such as 0.27.0,0.33.0; by default all that are installed and have a preset")
    add("--count", type=int, default=100, help="worlds of each release (100)")
    add("--seed", type=int, default=0, help="which worlds (0)")
    add("--jobs", type=int, default=1, help="processes (1)")
    add("--keys", default="", help="keys that may be away from their defaults, such as watermark,groups.eagle; all")
    add("--mode", choices=MODES, default="any", help="a step at a time, asynchronous, or as drawn (any)")
    add("--json", type=Path, help="a file for the table as data")
    add("--shrink", type=int, default=1, help="differences of each release that are shrunk and printed (1)")
    add("--world", type=int, help="this one world alone, with its first difference, shrunk")
    add("--whole", action="store_true", help="with --world: as it is, not shrunk")
    add("--keep", type=Path, help="a scenario file, kept with what its release decides in tests/data/worlds.json.gz")
    add("--why", default="", help="with --keep: what it shows, a sentence")
    return parser.parse_args(given)
