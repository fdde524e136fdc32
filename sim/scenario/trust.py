"""Trust: what the scenario file of a stranger may make the program do (docs/security.md).

A file is data. Where it names code (``module:Class``), whoever runs it must have said that it may; where it names a
file outside its own folder, that is shown before the file is read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from stateat.sim.printable import one_line, short
from stateat.sim.releases.rules import is_code
from stateat.sim.scenario.tree import Node, Problem
from stateat.sim.workload.files import outside

CONSENT = (
    "code that the file names, allowed with --allow-code (from Python: allow_code=True), which lets it run any code"
)
IN_PYTHON = "code that the mapping names, allowed with allow_code=True, which lets it run any code"
"""The same of a scenario that is written in no file."""


def code(node: Node) -> Iterator[Problem]:
    """Each place below a node where a rule is given as code to be imported."""
    children: Iterable[Node] = node.value if isinstance(node.value, list) else ()
    if isinstance(node.value, dict):
        children = node.value.values()
        for name, rule in _entries(node.get("rules")):
            if isinstance(rule.value, str) and is_code(name, rule.value):
                text = f"found {short(rule.value)!r}, {CONSENT if rule.line else IN_PYTHON}"
                yield Problem(rule.line, rule.path, text)
    for child in children:
        yield from code(child)


def _entries(rules: Node | None) -> Iterable[tuple[str, Node]]:
    return rules.value.items() if rules is not None and isinstance(rules.value, dict) else ()


def show(file: Path, paths: Iterable[str], folder: Path) -> None:
    """Say on standard error which files a file reads outside its folder; once each."""
    for path in outside(paths, folder):
        with suppress(OSError, ValueError):
            print(one_line(f"note: {file} reads {path}, outside its folder"), file=sys.stderr, flush=True)
