"""The place where a release tells which state a chunk exports."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import checkpoints
import objects
import pytest


def asked(interface: ModuleType, monkeypatch: pytest.MonkeyPatch, **wanted: Any) -> Any:
    """Where a release whose interface this is exports a checkpoint: blocks of 32, hashes of 16."""
    for name in ("vllm", "vllm.v1"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.v1"].kv_cache_interface = interface  # type: ignore[attr-defined]
    monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda name: None)
    group = {"block_size": 32, "mamba_cache_mode": "align"}
    coordinator = SimpleNamespace(single_type_managers=[None])
    scheduler = SimpleNamespace(
        hash_block_size=16,
        vllm_config=SimpleNamespace(speculative_config=None),
        kv_cache_manager=SimpleNamespace(coordinator=coordinator),
    )
    told = {"groups": [group], "num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 16, **wanted}
    return checkpoints.Checkpoints(scheduler, told).of


def interface_of(*fields: str, **functions: Any) -> ModuleType:
    module = ModuleType("kv_cache_interface")
    module.MambaSpec = dataclasses.make_dataclass("MambaSpec", fields)  # type: ignore[attr-defined]
    vars(module).update(functions)
    return module


def test_a_checkpoint_is_asked_of_the_place_where_a_release_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    older = interface_of("num_prefill_checkpoint_blocks")
    assert asked(older, monkeypatch)(0, 120) == 96
    later = interface_of(
        "num_prefill_checkpoint_blocks",
        "prefill_checkpoint_alignment",
        get_mamba_prefill_checkpoint_position=lambda tokens, unit, drop_eagle_block: (tokens - 1) // unit * unit,
        is_mamba_prefill_checkpoint_valid=lambda **where: where["checkpoint_position"] > where["query_start"],
    )
    assert asked(later, monkeypatch)(0, 120) == 112
    assert asked(later, monkeypatch)(112, 120) == 0
    unknown = interface_of("num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment")
    with pytest.raises(objects.Strange, match="it does not say where a chunk exports a checkpoint"):
        asked(unknown, monkeypatch)
    assert asked(unknown, monkeypatch, num_prefill_checkpoint_blocks=0)(0, 120) == 0
