"""Every rule that takes a plug-in calls it as its record says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.rules import RULES
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

TOLD = {
    name: ", ".join(argument.name for argument in rule.signature.arguments)
    for name, rule in RULES.items()
    if rule.signature
}
"""By rule: the arguments, as documented."""
NAMED = {
    "split": "prefill-end",
    "grid": "cache-config",
    "restore_column": "state-block",
    "lookup": "intersection",
    "skipped_states": "walks-gaps",
    "draft_slots": "scheduled",
}


def ran(**rules: str) -> Outcome:
    """Hits, states that are let go of, drafts with slots of their own."""
    options = Options(
        (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32)),
        preset="vllm-0.32.0",
        rules=rules,
        max_num_batched_tokens=64,
        speculative=Speculative("ngram", 2, (2, 0), draft_slots=1),
        clock="steps",
    )
    return drive(options, [Arrival(f"r{i}", i, 9 * i, ((1, 200),), 40) for i in range(2)])


def test_the_documented_rules_are_those_that_take_one() -> None:
    callable_ones = {name for name, values in RULES.items() if all(map(callable, values.values()))}
    assert set(TOLD) == set(NAMED) == callable_ones


@pytest.mark.parametrize("form", ["class", "function"])
@pytest.mark.parametrize("rule", NAMED)
def test_a_plug_in_written_from_the_docs_is_called_so(
    rule: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, module = TOLD[rule], f"written_{rule}_{form}"
    body = f"    SEEN.append(({arguments},))\n    return NAMED({arguments})\n"
    code = f"from stateat.sim.releases.rules import RULES\nSEEN = []\nNAMED = RULES[{rule!r}][{NAMED[rule]!r}]\n"
    if form == "class":
        code += f"class Written:\n  def __call__(self, {arguments}):\n{body}"
    else:
        code += f"def Written({arguments}):\n{body}"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    outcome = ran(**{rule: f"{module}:Written"})
    seen = sys.modules.pop(module).SEEN
    assert seen and outcome.digest == ran().digest and outcome.hit_tokens
