"""Random servers draw every option that a release can express, and a preset runs each of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from servers import INERT, UNSAID, Server, servers

from stateat.sim.engine.request import Request
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.support import lacks


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=60)
@given(data=st.data())
def test_a_server_asks_for_what_its_release_has_and_ends_or_stands_still(preset: str, data: st.DataObject) -> None:
    server = data.draw(servers(preset))
    assert not list(lacks(server.options, table(preset, {})))
    assert server.facts() == server.facts()


def test_every_option_is_drawn_or_said_to_be_left_out() -> None:
    drawn: dict[str, set[Any]] = {}

    @settings(max_examples=600, phases=[Phase.generate])
    @given(st.sampled_from(list(PRESETS)).flatmap(servers))
    def draw(server: Server) -> None:
        for part in (server.options, server.options.speculative):
            for field in fields(part):
                drawn.setdefault(field.name, set()).add(repr(getattr(part, field.name)))
        for group in server.options.groups:
            for field in fields(group):
                drawn.setdefault(f"groups.{field.name}", set()).add(getattr(group, field.name))

    draw()
    names = {f.name for f in (*fields(Options), *fields(Speculative))} - UNSAID - INERT
    assert [name for name in sorted(names) if len(drawn[name]) < 2] == []
    assert drawn["groups.mamba_cache_mode"] == {"align", "all"} and drawn["groups.eagle"] == {True, False}
    assert {len(drawn[f"groups.{name}"]) > 1 for name in ("kind", "block_size", "sliding_window")} == {True}


def test_some_server_shows_whether_a_replay_is_charged_for_its_encoded_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a scheduler that charges them for a first prefill alone decides otherwise."""
    charge = Scheduler._encode

    def first_alone(scheduler: Scheduler, request: Request) -> None:
        if not request.outputs:
            charge(scheduler, request)

    def differs(server: Server) -> bool:
        if not any(arrival.encoder for arrival in server.arrivals):
            return False
        right = server.facts()
        with monkeypatch.context() as patched:
            patched.setattr(Scheduler, "_encode", first_alone)
            return server.facts() != right

    first = settings(max_examples=1000, derandomize=True, database=None, phases=[Phase.generate])
    assert find(servers("vllm-0.33.0"), differs, settings=first).options.encoder_cache_size
