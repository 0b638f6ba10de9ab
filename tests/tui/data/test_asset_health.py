"""A folder in a tree shows how many of the files below it have problems, according to the database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.store.queries.checks import UNWELL, unwell_sources
from aptui.store.queries.reader import open_reader
from aptui.tui.data.assets_store import (
    AssetModel,
    AssetsStore,
    AssetTree,
    Kind,
    TreeHealth,
    UnwellSources,
    health_cell,
    health_text,
    read_unwell,
)
from tests.store.conftest import analysis_row, job_row, source_row

from ..database import database
from .test_assets_store import tree_of

PATHS = ["a.txt", "b/c.txt", "b/d/e.txt", "b/d/f.txt", "g/h.txt"]


def health_of(tree: AssetTree, rows: list[tuple[int, str, int]]) -> TreeHealth:
    listed = [(source, UNWELL.index(word), count) for source, word, count in rows]
    array = np.array(listed, np.int64).reshape(-1, 3)
    return TreeHealth(tree.end, tree.nodes_of(array[:, 0]), UnwellSources(array, (0, 0)))


def test_folder_shows_problem_counts_of_all_files_below_it() -> None:
    tree = tree_of(PATHS)
    health = health_of(tree, [(2, "pending", 2), (3, "warnings", 1), (4, "failed", 1), (99, "failed", 5)])

    shown = {tree.path(node): health.counts(node) for node in range(len(tree)) if health.counts(node)}
    assert shown == {
        "b": {"failed": 1, "warnings": 1, "pending": 2},
        "b/d": {"failed": 1, "warnings": 1},
        "b/c.txt": {"pending": 2},
        "b/d/e.txt": {"warnings": 1},
        "b/d/f.txt": {"failed": 1},
    }
    assert list(health.counts(tree.node_at("b") or 0)) == ["failed", "warnings", "pending"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(UNWELL), st.integers(1, 9)), unique_by=lambda row: row[:2]))
def test_problem_counts_of_a_node_equal_the_sum_over_its_files(rows: list[tuple[int, str, int]]) -> None:
    tree = tree_of(PATHS)
    health = health_of(tree, rows)

    for node in range(len(tree)):
        below = {int(key) for key in tree.keys[node : int(tree.end[node])]}
        plain = {word: sum(count for source, of, count in rows if of == word and source in below) for word in UNWELL}
        assert health.counts(node) == {word: count for word, count in plain.items() if count}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(UNWELL), st.integers(1, 12_000)), unique_by=lambda row: row[:2]))
def test_no_health_cell_is_wider_than_the_calculated_width(rows: list[tuple[int, str, int]]) -> None:
    tree = tree_of(PATHS)
    health = health_of(tree, rows)

    shown = [len(health_cell(health.counts(node)).text) for node in range(len(tree))]
    assert max(shown) <= health.most_cells()
    assert bool(rows) == bool(health.most_cells())


def test_search_for_the_next_file_with_a_problem_wraps_around() -> None:
    tree = tree_of(PATHS)
    first, second = tree.node_of(4), tree.node_of(1)
    assert first is not None
    assert second is not None
    health = health_of(tree, [(4, "failed", 1), (1, "errors", 1), (5, "warnings", 1)])

    assert health.next_bad(0, 1) == first
    assert health.next_bad(first, 1) == second
    assert health.next_bad(second, 1) == first
    assert health.next_bad(first, -1) == second
    assert health_of(tree, [(4, "failed", 1)]).next_bad(first, 1) is None
    assert health_of(tree, []).next_bad(first, -1) is None


@pytest.mark.parametrize(
    ("counts", "cell", "text"),
    [
        ({}, "", ""),
        ({"pending": 1200}, "· 1,200 waiting", "1,200 waiting"),
        ({"failed": 2, "warnings": 3, "pending": 12}, "✗ 2 failed  ! 3  · 12", "2 failed, 3 with warnings, 12 waiting"),
        ({"failed": 2, "warnings": 96, "pending": 1797}, "✗ 2 failed  ! 96", "2 failed, 96 with warnings, 1,797 waiting"),
        ({"warnings": 96, "pending": 1797}, "! 96 with warnings", "96 with warnings, 1,797 waiting"),
        ({"failed": 1, "errors": 4}, "✗ 1 failed", "1 failed, 4 with errors"),
        ({"errors": 4, "cancelled": 1}, "✗ 4 with errors  – 1", "4 with errors, 1 cancelled"),
    ],
)
def test_health_cell_names_the_worst_problem_and_shows_the_others_as_signs(counts: dict[str, int], cell: str, text: str) -> None:
    assert (health_cell(counts).text, health_text(counts)) == (cell, text)


def test_sources_with_problems_are_read_from_the_database(tmp_path: Path) -> None:
    with database(tmp_path) as store:
        store.put(
            put_source=[source_row(number, f"x/{number}.txt") for number in range(1, 8)],
            put_job=[
                job_row(1, 1, warnings=0), job_row(2, 2, warnings=3), job_row(3, 2, platform="server", errors=1),
                job_row(4, 3, state="failed", status=2, warnings=2), job_row(5, 4, state="waiting", status=0, warnings=0),
                job_row(6, 4, platform="server", state="running", status=1, warnings=0),
                job_row(7, 5, state="cancelled", status=2, warnings=0),
            ],
            put_analysis=[analysis_row(6, state="failed"), analysis_row(1)],
        )  # fmt: skip
        with closing(open_reader(store.path)) as reader:
            found = {(source, UNWELL[code]): count for source, code, count in unwell_sources(reader)}

    assert found == {
        (2, "warnings"): 1, (2, "errors"): 1, (3, "failed"): 1, (4, "pending"): 2, (5, "cancelled"): 1, (6, "failed"): 1
    }  # fmt: skip


def test_query_for_asset_problems_reads_no_job_without_a_problem(tmp_path: Path) -> None:
    with database(tmp_path) as store, closing(open_reader(store.path)) as reader:
        asked: list[str] = []
        reader._database.set_trace_callback(asked.append)
        read_unwell(reader)
        sql = next(each for each in asked if "aptui_analyses" in each)
        plan = " ".join(row[3] for row in reader.ask(f"EXPLAIN QUERY PLAN {sql}"))

    assert "aptui_jobs_unfinished" in plan
    assert "aptui_jobs_logged" in plan
    assert "aptui_analyses_unfinished" in plan


def test_tree_model_applies_new_problem_counts_to_the_same_tree(tmp_path: Path) -> None:
    with database(tmp_path) as made:
        made.put(put_source=[source_row(1, "x/1.txt")], put_job=[job_row(1, 1, warnings=0)])
        with closing(AssetsStore(made.path)) as store:
            model = AssetModel(store, Kind.SOURCES)
            model.refresh()
            store.wait_until_idle()
            model.refresh()
            tree = model.tree
            assert model.cell(0, "health").text == ""
            made.put(put_job=[job_row(1, 1, state="failed", status=2, warnings=0)])
            store.mark_health_stale()
            store.wait_until_idle()

            assert model.refresh_health()
            assert model.tree is tree
            assert model.cell(0, "health").text == "✗ 1 failed"
            assert model.cell(1, "health").role == "failed"
            assert not model.refresh_health()
