"""The reference engine decides, step by step, what the real schedulers of the recorded releases decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from golden import RELEASES, arrivals_of, differences, options_of, recordings

from sim.replay import drive


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("release", RELEASES)
def test_decisions_claims_and_poison_are_those_recorded(shared: Path, release: str, fast_forward: bool) -> None:
    compared = 0
    wrong: dict[str, list[str]] = {}
    for name, recorded_release, scenario, recorded in recordings(shared / "golden"):
        if recorded_release == release:
            compared += 1
            if found := differences(scenario, recorded, release, fast_forward):
                wrong[name] = found
    assert not wrong
    assert compared >= 60


def test_a_changed_rule_is_noticed(shared: Path) -> None:
    """Negative control: 0.26's recordings are not met by 0.27's rules."""
    noticed = [
        name
        for name, release, scenario, recorded in recordings(shared / "golden")
        if release == "0.26.0" and differences(scenario, recorded, "0.27.0", True)
    ]
    assert {"leftover-da", "turns-db", "smallbudget-da", "padclip-da"} <= set(noticed)


def test_the_worker_that_forgets_accepted_counts_is_told_from_the_one_that_keeps_them(shared: Path) -> None:
    """skip-dav1 and skip-dav2 differ in nothing but the worker."""
    outcomes = {}
    for name, release, scenario, _ in recordings(shared / "golden"):
        if name == "skip-dav1" and release == "0.27.0":
            options = options_of(scenario["config"], release)
            for worker in ("v1", "v2"):
                rules = {**options.rules, "worker": worker}
                outcomes[worker] = drive(replace(options, rules=rules), arrivals_of(scenario["requests"]))
    assert outcomes["v1"].digest == outcomes["v2"].digest
    assert (outcomes["v1"].poisoned, outcomes["v1"].wrong_reads) == (1, 11)
    assert (outcomes["v2"].poisoned, outcomes["v2"].wrong_reads) == (0, 0)
