"""Model runners: where a server's worker is another one than its preset's rules say.

Read in ``VllmConfig.use_v2_model_runner`` (``config/vllm.py``) of each release, and in the kernels' metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stateat.sim.releases.presets import PRESETS

V1 = {"worker": "v1", "restore_column": "state-block"}
V2 = {"worker": "v2", "restore_column": "scheduler-block"}

V2_ARCHITECTURES: Mapping[str, str] = {
    "vllm-0.27.0": "KimiK3ForConditionalGeneration",
    "vllm-0.28.0": "KimiK3ForConditionalGeneration",
}
"""The hybrid that runs on v2 although others run on v1."""
V1_METHODS: Mapping[str, str] = {"vllm-0.29.0": "ngram"}
"""The draft method that v2 does not know yet, so that v1 runs."""


def rules_of(preset: str, architectures: Collection[str], state: str, method: str) -> dict[str, str]:
    """Return the rules of a server's worker that are not its preset's.

    ``state``: the family of the model's recurrent layers; ``method``: of its drafter, '' without one.
    """
    rules: dict[str, str] = {}
    if V2_ARCHITECTURES.get(preset) in architectures:
        rules |= V2
    if method and V1_METHODS.get(preset) == method:
        rules |= V1
    if method and state == "ssd" and PRESETS[preset]["undrafted_rows"] != "accepted-state":
        rules["undrafted_rows"] = "accepted-state"
    return rules
