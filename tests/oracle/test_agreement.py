"""I5: a hit is held against the cache as the decision found it, whatever the rules then do with its claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateat.sim.releases.rules import RULES
from stateat.sim.rules.tail_copy import TAIL_COPY
from stateat.sim.run.simulate import replay
from stateat.sim.scenario.load import load

FOLLOWED = """
schema: stateat/1
name: followed
title: The one follower of a tail
engine:
  preset: vllm-0.27.0
  groups:
    - {{name: attention, kind: full-attention, block_size: 2}}
    - {{name: gdn, kind: recurrent, block_size: 4}}
  rules: {{tail_copy: {tail_copy}, publish: {publish}}}
  clock: steps
workload:
  requests:
    - {{id: owner, prompt: [[1, 6]]}}
    - {{id: follower, after: owner, prompt: [[1, 6], [2, 2]]}}
    - {{id: again, after: follower, prompt: [[1, 6], [2, 2], [3, 3]]}}
"""


@pytest.mark.parametrize("publish", RULES["publish"])
@pytest.mark.parametrize("tail_copy", TAIL_COPY)
def test_a_hit_on_what_is_published_is_never_called_unpublished(tail_copy: str, publish: str, tmp_path: Path) -> None:
    path = tmp_path / "followed.yaml"
    path.write_text(FOLLOWED.format(tail_copy=tail_copy, publish=publish))
    (outcome,) = replay(load(path)).variants.values()
    assert "I5" not in {finding.invariant for finding in outcome.findings}


def test_the_follower_in_place_hits_and_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "followed.yaml"
    path.write_text(FOLLOWED.format(tail_copy="follower-in-place", publish="at-schedule"))
    (outcome,) = replay(load(path)).variants.values()
    assert outcome.hits["follower"] == 6
    assert outcome.findings == ()
