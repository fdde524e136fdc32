"""Numbers of answers are held against the configuration."""

from __future__ import annotations

import pytest

from stateat.sim.adapters.vllm.answers import AnswerCheck
from stateat.sim.engine.request import Request
from stateat.sim.errors import EngineError
from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.workload import Arrival

WIDE = Group("wide", "recurrent", 64, mamba_cache_mode="all")


@pytest.mark.parametrize(("aligned", "fits"), [(32, True), (64, False)])
def test_an_exported_state_lies_before_the_last_column_of_the_aligned_groups(aligned: int, fits: bool) -> None:
    """A group in all mode, whatever its block, exports nothing."""
    options = Options((WIDE, Group("aligned", "recurrent", aligned)))
    request = Request(Arrival("a", 0, 0, ((1, 48),)), options, 0)
    request.worker.pages = [[1, 2], [3, 4]]
    check = AnswerCheck("vllm:0.29.0", options)
    if fits:
        check.chunk(request, 0, 48, 0, 32)
    else:
        with pytest.raises(EngineError, match="exporting a state@32"):
            check.chunk(request, 0, 48, 0, 32)
