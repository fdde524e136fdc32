"""Single-line changes of the package, made one by one, and whether the tests see them.

Each change is one that a slip of the hand could make: a bound off by one, ``and`` for ``or``, a condition turned
round, a call left out. It is made in a copy of the checkout. The tests that name its module run first, then those of
its folder, then the laws and the scenarios, until one fails. What passes all of them has survived: it wants a test at
its place, or a reason why nobody can see it.

    python benchmarks/mutants.py --count 100 --seed 1 --json build/mutants.json
    python benchmarks/mutants.py --room sim/cache --count 20
    python benchmarks/mutants.py --list --count 100
    python benchmarks/mutants.py --only sim/cache/pool.py:120

Recordings that lie beside a checkout are not looked at: the tests alone must see it. Exits with 1 if fewer than
``--least`` of a hundred were seen.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Queue

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "sim/cache",
    "sim/engine",
    "sim/worker",
    "sim/rules",
    "sim/run",
    "sim/sweeps",
    "sim/geometry",
    "sim/adapters/vllm",
    "sim/report",
    "oracle",
    "kernels",
)
"""Folders whose lines are changed: what decides, what is true, what is told."""
COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
SIGNS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
SECONDS = 600
"""A change that makes tests hang is seen too: how long some may take."""


@dataclass(frozen=True)
class Change:
    """One line, as it is and as it is made."""

    file: str
    line: int
    column: int
    end: int
    text: str
    was: str
    now: str
    seen_by: str = ""
    """The first test that fails, or 'time' where they hang; '': it survived."""


class Lines(ast.NodeVisitor):
    """The changes that a module's lines offer."""

    def __init__(self, file: str, source: str) -> None:
        self.file = file
        self.lines = source.encode().splitlines()
        self.found: list[Change] = []
        self.visit(ast.parse(source))

    def offer(
        self, node: ast.expr | ast.stmt, now: str, after: ast.expr | None = None, before: ast.expr | None = None
    ) -> None:
        """A node's text, or that between two others, put another way; only within a line."""
        start = (after.end_lineno, after.end_col_offset) if after else (node.lineno, node.col_offset)
        end = (before.lineno, before.col_offset) if before else (node.end_lineno, node.end_col_offset)
        if start[0] != end[0]:
            return
        line = self.lines[start[0] - 1]
        was = line[start[1] : end[1]].decode()
        if was.strip() != now.strip():
            self.found.append(Change(self.file, start[0], start[1], end[1], line.decode().strip(), was, now))

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right, sign = node.left, node.comparators[0], type(node.ops[0])
            between = self.lines[left.end_lineno - 1][left.end_col_offset :].decode()
            if left.end_lineno == right.lineno and between.lstrip(" )").startswith(SIGNS[sign]):
                text = self.lines[left.end_lineno - 1][left.end_col_offset : right.col_offset].decode()
                self.offer(node, text.replace(SIGNS[sign], COMPARED[sign], 1), left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
        left, right = node.values[0], node.values[1]
        if left.end_lineno == right.lineno:
            text = self.lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
            self.offer(node, text.replace(old, new, 1), left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        signs = {ast.Add: (" + ", " - "), ast.Sub: (" - ", " + ")}
        if type(node.op) in signs and node.left.end_lineno == node.right.lineno:
            old, new = signs[type(node.op)]
            text = self.lines[node.right.lineno - 1][node.left.end_col_offset : node.right.col_offset].decode()
            self.offer(node, text.replace(old, new, 1), node.left, node.right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.offer(node, "bool(" + ast.unparse(node.operand) + ")")
        if not (isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)):
            # -1 says "none" more often than it counts
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if node.value is True or node.value is False:
            self.offer(node, str(not node.value))
        elif isinstance(node.value, int):
            self.offer(node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self.offer(node.func, "max" if node.func.id == "min" else "min")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.offer(node.test, "False")
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.offer(node.test, "not (" + ast.unparse(node.test) + ")")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.offer(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.offer(node, "pass")
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Decorators stay: the type checker holds ``frozen``, and ``slots`` saves memory."""
        for statement in node.body:
            self.visit(statement)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Keywords change, but for the ``strict`` of a zip: it asserts that lengths never differ."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message is not behaviour that this looks for."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor is a text."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)


def offered(rooms: Sequence[str]) -> list[Change]:
    """All changes that the files of the rooms offer, in their order."""
    files = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return [c for f in files for c in Lines(f.relative_to(ROOT).as_posix(), f.read_text(encoding="utf-8")).found]


def drawn(changes: Sequence[Change], count: int, seed: int) -> list[Change]:
    """``count`` of them: lines, each as likely as another, and one change of each."""
    rng = np.random.Generator(np.random.PCG64(seed))
    by_line: dict[tuple[str, int], list[Change]] = {}
    for change in changes:
        by_line.setdefault((change.file, change.line), []).append(change)
    places = sorted(by_line)
    chosen = rng.permutation(len(places))[:count]
    return [by_line[places[i]][int(rng.integers(len(by_line[places[i]])))] for i in chosen]


def rounds(root: Path, file: str) -> list[list[str]]:
    """The tests that are asked, in turn: those that name the module, the one that is called after it first; the others
    of its folder, or of the nearest above it that has tests; laws and scenarios."""
    path, tests = Path(file).with_suffix(""), root / "tests"
    module = ".".join(("stateat", *path.parts))
    every = sorted(test for test in tests.rglob("test_*.py") if test.name != "test_imports.py")
    laws = [test for test in every if test.parent == tests and test.stem.endswith(("laws", "scenarios", "cases"))]
    named = [test for test in every if test.stem == f"test_{path.name}" or module in test.read_text(encoding="utf-8")]
    named = sorted((test for test in named if test not in laws), key=lambda test: test.stem != f"test_{path.name}")
    folder = next(tests / above for above in path.parents if any((tests / above).rglob("test_*.py")))
    beside = [test for test in every if test.is_relative_to(folder) and test not in (*named, *laws)]
    return [[str(test) for test in asked] for asked in (named, beside, laws)]


def first_failure(root: Path, tests: Sequence[str], seconds: int) -> str:
    """The first of the tests that fails, 'time' where they take too long, '' where none does."""
    env = os.environ | {
        "PYTHONPATH": str(root.parent / "path"),
        "STATEAT_SHARED": str(root.parent / "none"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", *tests]
    try:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "time"
    if done.returncode in (0, 5):
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0].partition(" ")[2] if failed else f"exit {done.returncode}"


def changed(source: bytes, change: Change) -> bytes:
    """The file with the change made."""
    lines = source.splitlines(keepends=True)
    line = lines[change.line - 1]
    lines[change.line - 1] = line[: change.column] + change.now.encode() + line[change.end :]
    return b"".join(lines)


def tried(root: Path, change: Change) -> Change:
    """The change, made in a copy, with the test that sees it."""
    path = root / change.file
    before = path.read_bytes()
    try:
        path.write_bytes(changed(before, change))
        for tests in rounds(root, change.file):
            seen = first_failure(root, tests, SECONDS) if tests else ""
            if seen:
                return replace(change, seen_by=seen)
        return change
    finally:
        path.write_bytes(before)


def honest(root: Path, change: Change) -> Change:
    """The change again, unless the test that saw it fails without it too: then nothing was proved."""
    test = change.seen_by
    if "::" in test and first_failure(root, [test.partition("[")[0]], SECONDS):
        raise SystemExit(f"{test} fails in an unchanged copy")
    return change


def copies(count: int, folder: Path) -> Iterator[Path]:
    """Copies of what git tracks, each importable as stateat from a folder ``path`` beside it."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for i in range(count):
        root = folder / str(i) / "stateat"
        for name in filter(None, tracked.split("\0")):
            if (ROOT / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        (folder / str(i) / "path").mkdir()
        (folder / str(i) / "path" / "stateat").symlink_to(root)
        # Tests that start a program of their own give it the root alone.
        (root / "stateat").symlink_to(root)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        yield root


def main() -> int:
    """Draw, try, tell; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", help="a folder (repeatable; default: all)")
    parser.add_argument("--only", metavar="FILE:LINE", help="all changes of one line")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=90.0, help="percent that must be seen")
    parser.add_argument("--list", action="store_true", help="only say what would be changed")
    parser.add_argument("--json", type=Path, help="write all changes here")
    args = parser.parse_args()
    changes = drawn(offered(args.room or ROOMS), args.count, args.seed)
    if args.only:
        changes = [c for c in offered([str(Path(args.only).parent)]) if f"{c.file}:{c.line}" == args.only]
    if args.list:
        for change in changes:
            print(f"{change.file}:{change.line}: {change.text}  [{change.was.strip()} -> {change.now.strip()}]")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(args.jobs) as pool:
        roots: Queue[Path] = Queue()
        for root in copies(args.jobs, Path(folder)):
            roots.put(root)

        def one(change: Change) -> Change:
            root = roots.get()
            try:
                done = honest(root, tried(root, change))
            finally:
                roots.put(root)
            where = f"{done.file}:{done.line}: {done.text}  [{done.was.strip()} -> {done.now.strip()}]"
            print(f"{'seen    ' if done.seen_by else 'SURVIVED'} {where}", done.seen_by, flush=True)
            return done

        done = list(pool.map(one, changes))
    seen = sum(bool(change.seen_by) for change in done)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(change) for change in done], indent=1) + "\n", encoding="utf-8")
    print(f"{seen} of {len(done)} seen")
    return 0 if seen >= args.least / 100 * len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
