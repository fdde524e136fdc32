"""The program that makes single-line changes: each kind is offered, and each change is one line that still parses."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = '''"""A module."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import ast
@dataclass(frozen=True, slots=True)
class C:
    """A class."""
    size: int = 4
    def f(self, first: bool, most: int = 7) -> int:
        """A method."""
        if first:
            self.g(-1)
        total = self.size + most
        total += len(zip(a, b, strict=True))
        if not first and (total >= 2 or "x" in self.names):
            raise ValueError(f"found {total - 1}")
        return min(total - 1, most) if first is None else self.size
'''
MADE = {
    "    size: int = 5",
    "    def f(self, first: bool, most: int = 8) -> int:",
    "        if False:",
    "            pass",
    "        total = self.size - most",
    "        pass",
    '        if not first or (total >= 2 or "x" in self.names):',
    '        if bool(first) and (total >= 2 or "x" in self.names):',
    '        if not first and (total > 2 or "x" in self.names):',
    '        if not first and (total >= 3 or "x" in self.names):',
    '        if not first and (total >= 2 and "x" in self.names):',
    '        if not first and (total >= 2 or "x" not in self.names):',
    "        return max(total - 1, most) if first is None else self.size",
    "        return min(total + 1, most) if first is None else self.size",
    "        return min(total - 2, most) if first is None else self.size",
    "        return min(total - 1, most) if not (first is None) else self.size",
    "        return min(total - 1, most) if first is not None else self.size",
}
"""All changed lines; a minus one that says "none" stays, and so do messages, decorators and ``strict``."""


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_change_is_offered_and_touches_one_line_that_still_parses(mutants: ModuleType) -> None:
    before = SAMPLE.encode()
    made = []
    for change in mutants.Lines("sample.py", SAMPLE).found:
        after = mutants.changed(before, change).decode()
        ast.parse(after)
        pairs = list(zip(SAMPLE.splitlines(), after.splitlines(), strict=True))
        [(was, now)] = [(old, new) for old, new in pairs if old != new]
        assert was.strip() == change.text
        made.append(now)
    assert set(made) == MADE


def test_a_letter_of_several_bytes_before_a_change_moves_nothing(mutants: ModuleType) -> None:
    source = 'x = f("…", a + b)\n'
    [change] = mutants.Lines("sample.py", source).found
    assert mutants.changed(source.encode(), change).decode() == 'x = f("…", a - b)\n'


def test_a_draw_is_as_many_lines_and_the_same_for_the_same_seed(mutants: ModuleType) -> None:
    offered = mutants.Lines("sample.py", SAMPLE).found
    first, again, other = (mutants.drawn(offered, 5, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len({change.line for change in first}) == len(first) == 5


@pytest.mark.parametrize(
    ("file", "first", "beside"),
    [
        ("sim/cache/pool.py", "tests/sim/cache/test_pool.py", "tests/sim/cache/"),
        ("sim/report/words/findings.py", "", "tests/sim/report/"),
        ("oracle/claims.py", "tests/oracle/test_claims.py", "tests/oracle/"),
    ],
)
def test_a_modules_own_tests_come_first_then_its_folders_or_the_one_above_and_laws_last(
    mutants: ModuleType, file: str, first: str, beside: str
) -> None:
    named, others, laws = (
        [Path(test).relative_to(ROOT).as_posix() for test in asked] for asked in mutants.rounds(ROOT, file)
    )
    assert not first or named[0] == first
    assert others and all(test.startswith(beside) for test in others)
    assert "tests/test_laws.py" in laws and "tests/test_scenarios.py" in laws
    assert not {*named} & {*others} and not {*laws} & {*named, *others}
