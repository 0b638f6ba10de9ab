"""So many records of a kind, and a count of the rest."""

from aptui.shared.floods import KINDS_LIMIT, FloodGate, more_like_this


def test_of_each_kind_some_are_let_through_and_the_rest_is_counted() -> None:
    gate = FloodGate(limit=2, span_s=10)

    assert [gate.admit("a", 0.0) for _ in range(5)] == [True, True, False, False, False]
    assert gate.admit("b", 1.0)
    assert gate.spans_over(9.9) == []
    assert gate.spans_over(11.0) == [("a", 3)]
    assert gate.admit("a", 11.0)


def test_whoever_invents_kinds_fills_no_memory() -> None:
    gate = FloodGate(limit=1)

    assert sum(gate.admit(str(number), 0.0) for number in range(10 * KINDS_LIMIT)) == KINDS_LIMIT + 1


def test_large_counts_can_be_read() -> None:
    assert more_like_this(1204) == "1,204 more like this"
