"""docs/invariants.md and docs/states.md have the tables that are printed from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateat.oracle.pages import PART, PARTS, page

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"invariants.md": ["severities", "checked", "unseen"], "states.md": ["families"]}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_printed(name: str) -> None:
    text = (DOCS / name).read_text()
    assert [part for _, part, _ in PART.findall(text)] == PAGES[name]
    assert page(text) == text


@pytest.mark.parametrize("name", PAGES)
def test_what_was_written_into_a_table_by_hand_is_printed_over(name: str) -> None:
    text = (DOCS / name).read_text()
    edited = text.replace(" -->\n| ", " -->\n| by hand ", 1)
    assert edited != text and page(edited) == text


def test_every_table_is_on_a_page() -> None:
    assert sorted(PARTS) == sorted(name for names in PAGES.values() for name in names)
