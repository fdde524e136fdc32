"""The list of invariants is whole: each is a word of the language, in the docs, and asked by the auditor."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from stateat.oracle import audit
from stateat.oracle.checks import CHECKS, Check
from stateat.oracle.pages import said
from stateat.sim.events import Invariant

ROOT = Path(__file__).resolve().parents[2]
ORACLE = {path.stem: path.read_text() for path in sorted((ROOT / "oracle").glob("*.py"))}


def test_the_list_has_each_invariant_once_and_in_order() -> None:
    assert [check.invariant for check in CHECKS] == list(Invariant)


def test_every_invariant_of_a_finding_is_found_in_the_module_of_its_check() -> None:
    named = {(name, word) for name, text in ORACLE.items() for word in re.findall(r'"(I\d+)"', text) if name != "audit"}
    listed = {(inspect.getmodule(c.check).__name__.rpartition(".")[2], str(c.invariant)) for c in CHECKS}  # type: ignore[union-attr]
    # A measure has no finding.
    assert named == listed - {("reachability", "I4")}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.invariant)
def test_every_module_says_what_is_verified_and_what_is_not(check: Check) -> None:
    assert said(check, "Verified").startswith(check.invariant.meaning)
    assert said(check, "Not verified")


def test_the_auditor_asks_each_check_that_has_a_moment_and_names_none_of_them() -> None:
    source = inspect.getsource(audit)
    for check in CHECKS:
        if check.moment is not None:
            assert f"Moment.{check.moment.name}]" in source and check.check.__name__ not in source
