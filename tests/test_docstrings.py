"""A docstring's first word names the thing or the act, so that it is understandable alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = [file for folder in ("sim", "oracle", "kernels") for file in sorted((ROOT / folder).rglob("*.py"))]
WORDLESS = {
    "Also", "And", "As", "By", "For", "How", "It", "Its", "None", "Of", "That", "These", "They", "This", "Those",
    "What", "When", "Where", "Whether", "Which", "Who", "Whoever", "Why",
}  # fmt: skip
"""First words that say what nobody can know without the name beside them."""


def told(source: str) -> Iterator[tuple[int, str]]:
    """Lines and texts of docstrings, those below a field or a constant too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, node.value.value


def wordless(source: str) -> list[str]:
    """Docstrings whose first word names nothing."""
    first = [(line, text, re.match(r"\W*(\w*)", text)) for line, text in told(source)]
    return [f"{line}: {text[:60]}" for line, text, word in first if word is not None and word[1] in WORDLESS]


@pytest.mark.parametrize("file", PACKAGE, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_first_word_of_a_docstring_names_the_thing_or_the_act(file: Path) -> None:
    assert wordless(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        '"""What a module is for."""',
        'x = 1\n"""Of the pool."""',
        'class A:\n    """How it is done."""',
        'class A:\n    x: int\n    """Whether there is one."""',
        'def f():\n    """``None``: nothing."""',
    ],
)
def test_a_docstring_without_a_subject_is_found_wherever_it_stands(source: str) -> None:
    assert len(wordless(source)) == 1
    assert wordless(source.replace('"""', '"""Pool: ', 1)) == []
