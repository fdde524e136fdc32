"""Slot memory holds what was written last, whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateat.oracle.slots import Content, Slots
from stateat.sim.events import Write

A = Write(0, "a", 0, 10, "chunk")
COPIED = Write(1, "b", 10, 10, "cow")


def content(state: object, finding: int | None = None, ancestor: int | None = None, write: Write = A) -> Content:
    return Content(state, 10, write, "a", finding, ancestor)


def handed_out() -> Slots:
    """Slots of which all that is written is told."""
    slots = Slots()
    slots.hand(range(10))
    return slots


def test_a_slot_that_was_handed_out_and_not_written_holds_nothing() -> None:
    assert handed_out().get(3) is None


def test_of_a_slot_that_nobody_told_of_nothing_is_known_nor_of_what_is_copied_from_it() -> None:
    slots = Slots()
    slots.copy(3, 4, COPIED)
    for slot in (3, 4):
        found = slots.get(slot)
        assert found is not None and found.state is None and not found.heard
    slots.put(3, content("state"))
    assert slots.get(3) == content("state")
    slots.erase([4, 5])
    assert slots.get(4) is None and slots.get(5) is None


def test_a_copy_of_nothing_is_told_of_and_leaves_nothing() -> None:
    slots = Slots()
    slots.hand([3])
    slots.copy(3, 4, COPIED)
    assert slots.get(4) is None


def test_who_expects_a_slot_hands_it_out_unless_it_was_in_use_before() -> None:
    slots = Slots()
    slots.meet(3)
    for slot in (3, 4):
        slots.expect(slot)
    before = slots.get(3)
    assert before is not None and not before.heard and slots.get(4) is None
    slots.hand([3])
    assert slots.get(3) is None


def test_the_null_block_and_no_slot_at_all_are_not_unheard_of() -> None:
    assert Slots().get(0) is None and Slots().get(-1) is None


def test_the_last_write_wins() -> None:
    slots = Slots()
    slots.put(3, content("old"))
    slots.put(3, content("new"))
    assert slots.get(3) == content("new")


def test_a_copy_keeps_the_state_its_finding_and_its_ancestor_and_has_a_write_of_its_own() -> None:
    slots = Slots()
    slots.put(3, content("state", 5, 2))
    slots.copy(3, 4, COPIED)
    assert slots.get(4) == content("state", 5, 2, COPIED)
    assert slots.get(3) == content("state", 5, 2)


def test_a_copy_of_nothing_leaves_nothing() -> None:
    slots = handed_out()
    slots.put(4, content("state"))
    slots.copy(3, 4, COPIED)
    assert slots.get(4) is None
    slots.copy(3, 5, COPIED)
    assert slots.get(5) is None


def test_the_first_finding_of_a_content_stays_and_a_new_content_has_none() -> None:
    slots = handed_out()
    slots.blame(3, 0)
    assert slots.get(3) is None
    slots.put(3, content("state"))
    slots.blame(3, 7)
    slots.blame(3, 8)
    assert slots.get(3) == content("state", 7)
    slots.put(3, content("other"))
    assert slots.get(3) == content("other")


ACTS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 4), st.integers()),
    st.tuples(st.just("copy"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("erase"), st.lists(st.integers(0, 4)), st.just(0)),
)


@given(st.lists(ACTS))
def test_is_a_dictionary_of_slots(acts: list[tuple[str, object, object]]) -> None:
    slots, model = Slots(), dict[int, object]()
    for name, one, other in acts:
        if name == "put":
            slots.put(one, content(other))  # type: ignore[arg-type]
            model[one] = other  # type: ignore[index]
        elif name == "copy":
            slots.copy(one, other, COPIED)  # type: ignore[arg-type]
            model[other] = model.get(one)  # type: ignore[index, arg-type]
        else:
            slots.erase(one)  # type: ignore[arg-type]
            model.update(dict.fromkeys(one))  # type: ignore[call-overload]
        for slot in range(5):
            held = slots.get(slot)
            assert (None if held is None else held.state) == model.get(slot)
