"""The worker's own rules about releases, on stand-ins: what may be left out, what is refused, and what is strange."""

from __future__ import annotations

import dataclasses
import io
import json
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stateat.sim.adapters.vllm.process import WORKER

worker = SimpleNamespace(**runpy.run_path(str(WORKER)))


@dataclasses.dataclass
class Older:
    """A release's configuration that lacks what came later."""

    block_size: int = 16


def test_what_a_release_lacks_is_left_out_only_where_that_changes_nothing() -> None:
    accepted = worker.accepted
    told = {"block_size": 32, "prefix_cache_retention_interval": None, "num_hash_lookahead_tokens": 3}
    assert accepted("CacheConfig", ["block_size"], told) == {"block_size": 32}
    told |= {"prefix_cache_retention_interval": 0, "disable_eagle_block_drop": True}
    with pytest.raises(worker.Unsupported, match=r"it has no engine\.prefix_c.*, no engine\.speculative\.bl"):
        accepted("CacheConfig", ["block_size"], told)
    with pytest.raises(worker.Strange, match=r"its CacheConfig has no watermark; known are vLLM 0\.26\.0 to 0\.33\.0"):
        accepted("CacheConfig", [], {"watermark": 0.0})


def test_a_configuration_is_made_of_its_own_fields() -> None:
    assert worker.bare(Older, block_size=8).block_size == 8
    assert worker.bare(Older).block_size == 16
    with pytest.raises(worker.Strange, match="its Older has no watermark"):
        worker.bare(Older, watermark=0.5)

    @dataclasses.dataclass
    class Broken:
        size: int = dataclasses.field(default_factory=lambda: 1 // 0)

    with pytest.raises(worker.Strange, match=r"the default of its Broken\.size cannot be had \(integer division"):
        worker.bare(Broken)


def test_an_attribute_that_all_releases_have_is_missed_by_name() -> None:
    with pytest.raises(worker.Strange, match="its Older has no watermark_blocks"):
        worker.attribute(Older(), "watermark_blocks")


@pytest.mark.parametrize(("fresh", "needed", "told"), [(True, 11, True), (False, 11, False), (True, 3, False)])
def test_a_need_of_more_blocks_than_there_are_is_no_refusal_for_a_hit_of_this_step(
    fresh: bool, needed: int, told: bool
) -> None:
    def need(request_id: str, new_computed_blocks: Sequence[Any]) -> int:
        # As a release may forget what it looked at.
        manager.cached_blocks_this_step.clear()
        return needed

    manager = SimpleNamespace(cached_blocks_this_step={b"hit"} if fresh else {b"other"})
    ears = SimpleNamespace(pool=SimpleNamespace(num_gpu_blocks=10), same_step=False)
    heard = worker.Ears._needing(ears, manager, need)
    assert heard("a", [SimpleNamespace(block_hash=b"hit")]) == needed
    assert ears.same_step is told
    ears.same_step = False
    assert heard("a", new_computed_blocks=[]) == needed and not ears.same_step
    with pytest.raises(worker.Strange, match="has no cached_blocks_this_step"):
        worker.Ears._needing(ears, SimpleNamespace(), need)


def asked(interface: ModuleType, monkeypatch: pytest.MonkeyPatch, **wanted: Any) -> Any:
    """Where a release whose interface this is exports a checkpoint: blocks of 32, hashes of 16."""
    for name in ("vllm", "vllm.v1"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.v1"].kv_cache_interface = interface  # type: ignore[attr-defined]
    monkeypatch.setattr(worker.importlib.util, "find_spec", lambda name: None)
    group = {"block_size": 32, "mamba_cache_mode": "align"}
    coordinator = SimpleNamespace(single_type_managers=[None])
    scheduler = SimpleNamespace(
        hash_block_size=16,
        vllm_config=SimpleNamespace(speculative_config=None),
        kv_cache_manager=SimpleNamespace(coordinator=coordinator),
    )
    told = {"groups": [group], "num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 16, **wanted}
    return worker.Checkpoints(scheduler, told).of


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
    with pytest.raises(worker.Strange, match="it does not say where a chunk exports a checkpoint"):
        asked(unknown, monkeypatch)
    assert asked(unknown, monkeypatch, num_prefill_checkpoint_blocks=0)(0, 120) == 0


def test_what_is_strange_or_lacking_is_answered_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [worker.Unsupported("it has no x"), worker.Strange("its A has no b"), ModuleNotFoundError(name="torch")]

    def answer(state: object, request: object) -> None:
        raise said.pop(0)

    monkeypatch.setitem(worker.serve.__globals__, "answer", answer)
    written = io.StringIO()
    worker.serve(["{}"] * 3, written)
    assert [json.loads(line) for line in written.getvalue().splitlines()] == [
        {"unsupported": "it has no x"},
        {"error": "its A has no b; known are vLLM 0.26.0 to 0.33.0"},
        {"error": "its Python has no module torch"},
    ]
    assert capsys.readouterr().err == ""


def test_the_protocol_is_out_of_the_reach_of_whoever_prints_or_reads(tmp_path: Path) -> None:
    code = (
        f"import os, runpy, subprocess, sys; worker = runpy.run_path({str(WORKER)!r})\n"
        "read, write = worker['streams']()\n"
        "print('printed'); os.write(1, b'written\\n'); subprocess.run(['echo', 'echoed'])\n"
        "print(repr(sys.stdin.read()))\n"
        "write.write(read.readline()); write.flush()\n"
    )
    child = subprocess.run([sys.executable, "-c", code], input="asked\n", capture_output=True, text=True, check=True)
    assert child.stdout == "asked\n"
    assert child.stderr == "printed\nwritten\nechoed\n''\n"
