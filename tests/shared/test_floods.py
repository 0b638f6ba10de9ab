"""Log floods: a limited number of records of each kind is kept, and the remaining records are counted."""

from aptui.shared.floods import KINDS_LIMIT, LIMIT, SPAN_S, FloodGate, more_like_this


def test_flood_gate_rejects_and_counts_records_above_the_limit_per_kind() -> None:
    gate = FloodGate()

    assert [gate.admit("a", 0.0) for _ in range(LIMIT + 3)] == [True] * LIMIT + [False] * 3
    assert gate.admit("b", 1.0)
    assert gate.spans_over(SPAN_S - 0.1) == []
    assert gate.spans_over(SPAN_S + 1.0) == [("a", 3)]
    assert gate.admit("a", SPAN_S + 1.0)


def test_flood_gate_remembers_a_limited_number_of_kinds() -> None:
    gate = FloodGate()

    assert sum(gate.admit(str(number), 0.0) for number in range(10 * KINDS_LIMIT)) == KINDS_LIMIT + LIMIT


def test_large_counts_have_thousands_separators() -> None:
    assert more_like_this(1204) == "1,204 more like this"
