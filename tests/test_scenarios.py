"""Every shipped scenario comes to what it expects, and no other variant of it comes to the same."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.errors import MissingError
from stateat.sim.run.expect import MEASURED, PLAIN, STRUCTURED, compare, finding_facts
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import replay
from stateat.sim.scenario.load import load
from stateat.sim.scenario.models import Expectation

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("seeds", "field") for path in (ROOT / "scenarios" / folder).glob("*.yaml"))
ALIKE = "# Alike on purpose: "
"""Comment lines that begin so name variants that come to the same: ``one = other = another``, more after ``;``."""


def expectable(outcome: Outcome) -> dict[str, Any]:
    """All that an expectation can say of an outcome."""
    numbers = set(Expectation.model_fields) - set(STRUCTURED) - set(PLAIN) - set(MEASURED)
    facts = {key: getattr(outcome, key) for key in (*sorted(numbers), *PLAIN, "ends", "hits", "loads")}
    if outcome.states is not None:
        facts |= {key: getattr(outcome, key) for key in MEASURED}
    facts["findings"] = sorted(map(repr, map(finding_facts, outcome.findings)))
    facts["cases"] = {name: expectable(case) for name, case in outcome.cases.items()}
    return facts


def alike(file: Path) -> list[set[str]]:
    """Variants that a file says to come to the same."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    named = [line.removeprefix(ALIKE) for line in lines if line.startswith(ALIKE)]
    return [{name.strip() for name in part.split(" = ")} for line in named for part in re.split(r";", line)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_is_as_expected_and_its_expectations_tell_its_variants_apart(file: Path) -> None:
    scenario = load(file)
    try:
        result = replay(scenario)
    except MissingError as error:
        pytest.skip(str(error))
    assert result.failures == ()
    facts = {name: expectable(outcome) for name, outcome in result.variants.items()}
    named = alike(file)
    assert set().union(*named) <= set(facts), "alike on purpose: no such variant"
    expected = {run.variant: run.expect for run in scenario.expanded if run.expect is not None}
    for one, other in permutations(expected, 2):
        if facts[one] == facts[other]:
            assert any({one, other} <= names for names in named), f"{one} and {other} come to the same"
        else:
            assert compare(expected[one], result.variants[other]), f"what {one} expects holds for {other}"
    for names in named:
        assert len({repr(facts[name]) for name in sorted(names)}) == 1, f"not alike: {sorted(names)}"


def private_codes(text: str) -> list[str]:
    """Letters with a number, as a private list of reports has them: I1 to I18 alone are names of ours, the invariants'.

    A source names no invariant, so there an I with a number is such a code too, and so it is in brackets of its own.
    """
    source = re.search(r"^source:(.*(?:\n  .*)*)", text, re.M)
    codes = re.findall(r"\b[A-HJK]\d{1,2}\b", text) + re.findall(r"\((I\d+)\b", text)
    return codes + (re.findall(r"\bI\d+\b", source[1]) if source else [])


@pytest.mark.parametrize("file", sorted((ROOT / "scenarios").rglob("*.yaml")), ids=lambda file: file.stem)
def test_a_scenario_refers_to_public_reports_only(file: Path) -> None:
    assert private_codes(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("source: vLLM PR 33706 (A7)\n", ["A7"]),
        ("source: >-\n  vLLM issue 50388\n  and I17, read\nname: n\n", ["I17"]),
        ("# The least of all groups' hits (I13)\n", ["I13"]),
        ("  # E6, the second layout\n", ["E6"]),
        ("# Only I5 sees that; M7 is its class, s12 its seed.\nexpect: {invariants: {I9: 0}}\n", []),
    ],
)
def test_a_private_code_is_seen(text: str, found: list[str]) -> None:
    assert private_codes(text) == found
