"""A sweep whose runs take a twentieth of a second each; with one budget the old gate poisons."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

BASE: dict[str, Any] = {
    "schema": "stateat/1",
    "name": "small",
    "engine": {
        "max_num_batched_tokens": 800,
        "num_blocks": 4000,
        "groups": [
            {"name": "attention", "kind": "full-attention", "block_size": 16, "eagle": True},
            {"name": "gdn", "kind": "recurrent", "block_size": 160},
        ],
        "speculative": {"method": "mtp", "num_speculative_tokens": 3, "accepted_drafts": [2, 0, 3]},
    },
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 60},
        "count": 40,
        "prompt": {"kind": "uniform", "low": 100, "high": 600},
        "prefixes": {"kind": "repeat", "distinct": 8},
    },
    "variants": {"old": {"preset": "vllm-0.26.0"}, "new": {"preset": "vllm-0.27.0"}},
}


def base(**changes: Any) -> dict[str, Any]:
    """The scenario, with other values at the top."""
    return {**deepcopy(BASE), **changes}


def sweep(**changes: Any) -> dict[str, Any]:
    """Two budgets, two seeds, two variants: eight runs."""
    whole = {
        "schema": "stateat-sweep/1",
        "name": "small",
        "base": base(),
        "grid": {"engine.max_num_batched_tokens": [400, 800]},
        "seeds": [3, 4],
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}
