"""The truth is one record: a file's keys, a log's and JSON's, and what the oracle takes."""

from __future__ import annotations

from typing import Any

import pytest

from stateat.sim.errors import InputError
from stateat.sim.scenario.load import load, runs
from stateat.sim.scenario.truth import DIGEST, Truth, changed, told

GROUP = {"name": "kda", "kind": "recurrent", "block_size": 16}
WORKLOAD = {"requests": [{"id": "a", "prompt": [[1, 32]], "max_tokens": 1}]}


def scenario(**oracle: str) -> dict[str, Any]:
    """A file with these keys of ``oracle``."""
    return {"schema": "stateat/1", "name": "x", "engine": {"groups": [GROUP]}, "workload": WORKLOAD, "oracle": oracle}


def test_a_file_calls_the_form_kernel_and_knows_no_key_form() -> None:
    (run,) = runs(load(scenario(state="kda", kernel="chunked")))
    assert run.truth == Truth("kda", form="chunked")
    with pytest.raises(InputError, match=r"oracle\.form: unknown key, allowed state, dtype, kernel"):
        load(scenario(state="kda", form="chunked"))


def test_logs_and_json_call_the_form_kernel() -> None:
    truth = changed(DIGEST, {"state": "kda", "kernel": "chunked"})
    assert truth == Truth("kda", form="chunked")
    assert told(truth) == {"state": "kda", "kernel": "chunked"}
    assert list(truth.keyed) == ["state", "dtype", "kernel", "rounding", "backend", "device"]


def test_what_another_family_lacks_becomes_the_default() -> None:
    chunked = Truth("kda", "bfloat16", "chunked", "stochastic")
    assert changed(chunked, {"state": "ring"}) == Truth("ring")
    assert changed(chunked, {"state": "short-conv"}) == Truth("short-conv", "bfloat16", rounding="stochastic")
    assert changed(chunked, {"dtype": "float16"}).form == "chunked"


def test_an_exact_family_has_a_dtype_of_its_own() -> None:
    assert Truth("ring").stored == "uint64"
    assert Truth("kda:kimi-linear", "float16").stored == "float16"
