"""Log floods: a limited number of records of each kind is kept, and the remaining records are counted."""

from aptui.shared.floods import KINDS_LIMIT, FloodGate, more_like_this


def test_flood_gate_rejects_and_counts_records_above_the_limit_per_kind() -> None:
    gate = FloodGate(limit=2, span_s=10)

    assert [gate.admit("a", 0.0) for _ in range(5)] == [True, True, False, False, False]
    assert gate.admit("b", 1.0)
    assert gate.spans_over(9.9) == []
    assert gate.spans_over(11.0) == [("a", 3)]
    assert gate.admit("a", 11.0)


def test_flood_gate_remembers_a_limited_number_of_kinds() -> None:
    gate = FloodGate(limit=1)

    assert sum(gate.admit(str(number), 0.0) for number in range(10 * KINDS_LIMIT)) == KINDS_LIMIT + 1


def test_large_counts_have_thousands_separators() -> None:
    assert more_like_this(1204) == "1,204 more like this"
