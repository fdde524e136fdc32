"""Models by name: the facts of their published config files. The widths of states are those of
``stateat.kernels.families``."""

from __future__ import annotations

from stateat.kernels.families import shape
from stateat.sim.errors import InputError
from stateat.sim.geometry.model import Attention, Model

NAMED = {
    model.name: model
    for model in (
        Model("qwen3-next", "qwen3-next", shape("gated-delta", "qwen3-next"), 36, Attention(12, 16, 2, 256), 262_144),
        Model(
            "qwen3.6-27b",
            "qwen3.5",
            shape("gated-delta", "qwen3.6-27b"),
            48,
            Attention(16, 24, 4, 256),
            262_144,
            state_dtype="float32",
        ),
        # as wide as Qwen3-Next, in fewer layers
        Model(
            "qwen3.6-35b-a3b",
            "qwen3.5",
            shape("gated-delta", "qwen3-next"),
            30,
            Attention(10, 16, 2, 256),
            262_144,
            state_dtype="float32",
        ),
        Model(
            "nemotron-nano-9b-v2",
            "nemotron-h",
            shape("ssd", "nemotron-nano-9b-v2"),
            27,
            Attention(4, 40, 8, 128),
            131_072,
            state_dtype="float32",
            chunk=128,
        ),
        Model("falcon-h1", "falcon-h1", shape("ssd", "falcon-h1"), 44, Attention(44, 12, 2, 128), 262_144, chunk=256),
        Model("jamba-v0.1", "jamba", shape("selective-scan", "jamba-v0.1"), 28, Attention(4, 32, 8, 128), 262_144),
        Model(
            "kimi-linear",
            "kimi-linear",
            shape("kda", "kimi-linear"),
            20,
            Attention(7, 32, 1, 576, latent=True),
            1_048_576,
        ),
        Model("lfm2-1.2b", "lfm2", shape("short-conv", "lfm2-1.2b"), 10, Attention(6, 32, 8, 64), 128_000),
    )
}
"""falcon-h1 is the 7B, kimi-linear the 48B-A3B, qwen3-next the 80B-A3B."""


def named(name: str) -> Model:
    """A model of the list; InputError names those there are."""
    from stateat.sim.schema import choice

    if name not in NAMED:
        raise InputError(f"--model: {choice(name, NAMED)}; any other by its config.json")
    return NAMED[name]
