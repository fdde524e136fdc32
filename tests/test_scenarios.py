"""Every shipped scenario comes to what it expects, and no other variant of it comes to the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import MissingError
from sim.expect import compare
from sim.scenario import load
from sim.simulate import replay

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("seeds", "field") for path in (ROOT / "scenarios" / folder).glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_is_as_expected_and_its_expectations_tell_its_variants_apart(file: Path) -> None:
    scenario = load(file)
    try:
        result = replay(scenario)
    except MissingError as error:
        pytest.skip(str(error))
    assert result.failures == ()
    expected = {run.variant: run.expect for run in scenario.expanded if run.expect is not None}
    if len(expected) < 2:
        return
    for name, wanted in expected.items():
        own = result.variants[name]
        # What is decided and found alike on purpose (a control) cannot be told apart.
        others = [o for o in result.variants.values() if (o.digest, len(o.findings)) != (own.digest, len(own.findings))]
        assert not others or any(compare(wanted, o) for o in others), f"{name}: what it expects holds for every variant"
