"""One record a family: what it says is enough for every library, and no library keeps a list of families of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stateat.kernels import numpy_states, reference
from stateat.kernels.families import CHUNKED, FAMILIES, Family, Update, shape
from stateat.kernels.shapes import BYTES

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
each = pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)


@each
def test_a_family_has_a_formula_inputs_and_a_step_if_it_has_a_matrix(family: Family) -> None:
    matrix = "recurrent" in shape(family.name).components
    assert (family.update is not None) is bool(family.streams) is (family.name in reference.STEPS) is matrix
    assert not matrix or family.update in numpy_states.STEPS


@each
def test_every_stream_has_entries_and_every_width_is_of_the_family(family: Family) -> None:
    for found in family.widths.values():
        assert found.family == family.name and found.layers == 1
        assert all(entries(found) > 0 for entries in family.streams.values())
    assert family.dtype in BYTES and "small" in family.widths


def test_the_chunked_families_are_those_whose_updates_have_a_chunked_form() -> None:
    pytest.importorskip("torch")
    from stateat.kernels.torch_chunked import _FORMS

    assert CHUNKED == ("gated-delta", "kda", "ssd")
    assert {(FAMILIES[name].update, FAMILIES[name].channel_decay) for name in CHUNKED} == set(_FORMS)


def test_every_update_is_of_some_family() -> None:
    assert {family.update for family in FAMILIES.values()} == {*Update, None}


def test_no_library_asks_for_a_family_by_name() -> None:
    branch = re.compile(rf"""(==|!=|\bin) \(?"({"|".join(FAMILIES)})\"""")
    assert [path.name for path in KERNELS.glob("*.py") if branch.search(path.read_text())] == []
    assert branch.search('if shape.family == "kda":') and branch.search('if family in ("ring", "kda"):')
