"""The history of a job, stored as differences between runs: the inputs and products of each run can be restored."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from aptui.core import rows
from aptui.core.model import Digest, Product
from aptui.core.rows import BEGINNING, RunStep

NAMES = st.sampled_from(["a", "b.png", "Ärger", "x/y"])
INPUTS = st.dictionaries(st.tuples(st.sampled_from(["source", "dependency", "rule"]), NAMES), st.sampled_from(["1", "2", "3"]))
PRODUCTS = st.dictionaries(NAMES, st.tuples(st.sampled_from(["aa", "bb"]), st.integers(0, 3)))


def moment(inputs: dict[tuple[str, str], str], products: dict[str, tuple[str, int]]) -> RunStep:
    return RunStep(
        tuple((kind, name, value) for (kind, name), value in inputs.items()),
        tuple((name, digest, size) for name, (digest, size) in products.items()),
    )


MOMENTS = st.builds(moment, INPUTS, PRODUCTS)


def plain(state: RunStep) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, int]]]:
    return set(state.inputs), set(state.products)


@given(MOMENTS, MOMENTS)
def test_stored_difference_of_two_runs_restores_the_second_run(known: RunStep, wanted: RunStep) -> None:
    assert plain(rows.apply_step(known, rows.make_step(known, wanted))) == plain(wanted)


@given(st.lists(st.tuples(st.booleans(), MOMENTS), max_size=6))
def test_earlier_runs_are_restored_from_the_latest_run_and_the_differences(runs: list[tuple[bool, RunStep]]) -> None:
    committed, states = RunStep(), []
    for succeeds, state in runs:
        if succeeds and not state.inputs:
            continue  # a manifest is never empty
        if succeeds:
            states.append((True, rows.make_committed_step(committed, state)))
            committed = state
        else:
            states.append((False, rows.make_step(committed, RunStep(state.inputs, committed.products))))

    found = rows.moments(committed, reversed(states))

    expected = [state if succeeds else RunStep(state.inputs) for succeeds, state in runs if not succeeds or state.inputs]
    assert [plain(state) for state in found] == [plain(state) for state in reversed(expected)]


def test_first_run_is_stored_as_a_marker_and_unchanged_run_as_empty_text() -> None:
    state = RunStep((("source", "a.png", "00"),), (("linux/a.png", "00", 3),))

    assert rows.make_committed_step(RunStep(), state) == BEGINNING
    assert rows.make_committed_step(state, state) == ""


@given(st.text())
def test_stored_difference_of_two_runs_has_a_fixed_json_form(text: str) -> None:
    known, wanted = RunStep((("source", text, "00"),), (("old", "00", 1),)), RunStep((("rule", text, text),), ((text, "11", 2),))

    parts = [[["rule", text, text]], [["source", text]], [[text, "11", 2]], ["old"] if text != "old" else []]
    assert rows.make_step(known, wanted) == json.dumps(parts, separators=(",", ":"), ensure_ascii=False)


def test_product_of_a_run_is_stored_with_half_its_digest() -> None:
    made = Product("linux/a", 0, bytes(16), 1, Digest(bytes(range(32))), 0, 3)

    assert rows.moment((), (made,)).products == (("linux/a", bytes(range(16)).hex(), 3),)


def test_digest_of_products_does_not_depend_on_their_order() -> None:
    one = Product("linux/a", 0, bytes(16), 1, Digest(b"D" * 32), 0, 3)
    two = Product("linux/b", 1, bytes(16), 1, Digest(b"D" * 32), 0, 3)

    assert len(rows.digest_of_products((one,))) == 16
    assert rows.digest_of_products(()) == b""
    assert rows.digest_of_products((one, two)) == rows.digest_of_products((two, one)) != rows.digest_of_products((one,))
