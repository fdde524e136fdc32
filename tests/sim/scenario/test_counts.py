"""The list of counts: what is derived from it, and the pages that show it."""

import re
from pathlib import Path

import pytest

from stateat.sim.scenario.counts import COUNTS, number_matches, pins_to_zero
from stateat.sim.scenario.models import Expectation

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scenario-files.md"


def test_an_expectation_names_the_counts_that_it_may_and_says_of_each_what_the_list_does() -> None:
    for name, count in COUNTS.items():
        field = Expectation.model_fields.get(name)
        assert (field is not None) == count.expected, name
        assert field is None or field.description == count.says


def test_the_page_says_of_each_count_what_the_list_does() -> None:
    section = PAGE.read_text().partition("### `expect`\n")[2].partition("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    told = {row[0].strip("`"): re.sub(r" \(\[.*?\]\(.*?\)\)", "", row[-1]) for row in rows}
    for name, count in COUNTS.items():
        if count.expected:
            # A default of the whole expectation stands behind the definition.
            assert told[name].partition("; `false` where")[0] == count.says, name


@pytest.mark.parametrize(("wanted", "zero"), [(0, True), (1, False), ({"max": 0}, True), ({"min": 0}, False)])
def test_a_number_is_pinned_to_zero_where_no_other_one_would_do(wanted: object, zero: bool) -> None:
    assert pins_to_zero(wanted) == zero  # type: ignore[arg-type]
    assert number_matches(wanted, 0) or not zero  # type: ignore[arg-type]
