"""Tables of the page of rules: each record is whole, and says where its value stands."""

from __future__ import annotations

import re

import pytest

from stateat.sim.releases.pages import page, using
from stateat.sim.releases.presets import CHANGES, PRESETS
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.record import Standing


@pytest.mark.parametrize("rule", RULES)
def test_a_record_is_understandable_alone(rule: str) -> None:
    record = RULES[rule]
    assert re.fullmatch(r"[A-Z].*\?", record.question)
    for name, value in record.records.items():
        assert re.fullmatch(r"[A-Z].*\.", value.does), name
        assert value.source and not value.source.endswith("."), name
    for told in re.findall(r"[Aa]s (?:under )?`([\w-]+)`", " ".join(value.does for value in record.records.values())):
        assert told in record, told


@pytest.mark.parametrize("rule", RULES)
def test_a_value_of_a_preset_is_no_proposal_and_no_fault(rule: str) -> None:
    for name, value in RULES[rule].records.items():
        used = any(values[rule] == name for values in PRESETS.values())
        assert not used or value.standing is Standing.RELEASE, name
        assert used == (not using(rule, name).startswith("none"))


def test_each_preset_but_the_first_says_what_it_changes() -> None:
    assert list(CHANGES) == list(PRESETS)[1:]


def test_spans_of_presets_are_told_in_short() -> None:
    assert using("split", "prefill-end") == "0.27 to 0.33"
    assert using("eviction", "lru") == "0.26, 0.28 to 0.33"
    assert using("grid", "cache-config") == "all"
    assert using("grid", "recurrent-group") == "none: proposal"
    assert using("worker", "v1") == "0.26 to 0.28"


def test_only_what_stands_between_the_marks_is_printed_anew() -> None:
    text = "before\n<!-- printed: changes -->\nstale\n<!-- end -->\nafter <!-- end -->\n"
    printed = page(text)
    assert printed.startswith("before\n<!-- printed: changes -->\n| preset") and "stale" not in printed
    assert printed.endswith("\n<!-- end -->\nafter <!-- end -->\n") and page(printed) == printed
