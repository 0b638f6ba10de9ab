"""Queries about product dependencies: dependencies, dependents, unmet dependencies, and preloading."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aptui.engine.cache import catalog
from aptui.engine.cache.catalog import Catalogs, path_of
from aptui.store.queries import dependencies
from aptui.store.queries.dependencies import AssetDependency, UnmetPath
from tests.store.conftest import Store, uuid_of
from tests.store.db.test_product_links import PRODUCT, SOURCE, Project, asset, product_file, source_file, source_row


@pytest.fixture
def project(store: Store) -> Project:
    """`rock.mesh` preloads `level.out`, which needs both products of `rock.fbx`, an unknown asset and three paths without files."""
    made = Project(store)
    links = (source_file("rock.fbx", 1), asset(77, 3), product_file("gone.x"), product_file("*.y"), source_file("!z.y"))
    made.make("level.xml", ("level.out", 0, links))
    made.make("rock.fbx", ("rock.mesh", 5, (source_file("level.xml", 0),)), ("rock.mat", 6, ()))
    made.make("rock.fbx", ("rock.mesh", 5, (source_file("level.xml", 0),)), platform="server")
    return made


def ids(store: Store) -> dict[str, int]:
    return dict(store.rows("SELECT ProductName, ProductID FROM Products"))


def test_product_lists_dependencies_and_dependents(project: Project) -> None:
    number = ids(project.store)
    level, mesh, mat = (number[f"linux/{name}"] for name in ("level.out", "rock.mesh", "rock.mat"))
    reader = project.store.reader()

    assert dependencies.outgoing(reader, level) == [
        AssetDependency(0, "", uuid_of(77), 3, 2),
        AssetDependency(mat, "linux/rock.mat", uuid_of(2), 6, 1),
        AssetDependency(mesh, "linux/rock.mesh", uuid_of(2), 5, 1, has_more=1),
    ]
    assert dependencies.incoming(reader, mat) == [AssetDependency(level, "linux/level.out", uuid_of(1), 0, 1, has_more=1)]
    assert dependencies.incoming(reader, level) == [AssetDependency(mesh, "linux/rock.mesh", uuid_of(2), 5, 0, has_more=1)]
    assert dependencies.outgoing(reader, number["server/rock.mesh"]) == []


def test_unmet_paths_are_listed_and_wildcards_are_not_counted_as_unmet(project: Project) -> None:
    level = ids(project.store)["linux/level.out"]
    reader = project.store.reader()

    assert dependencies.unmet_paths(reader, level) == [
        UnmetPath("*.y", PRODUCT, 2, False),
        UnmetPath("z.y", SOURCE, 2, True),
        UnmetPath("gone.x", PRODUCT, 2, False),
    ]
    assert dependencies.unmet_counts(reader, level) == (1, 1)


def test_only_targets_of_preload_dependencies_are_preloaded(project: Project) -> None:
    number = ids(project.store)
    reader = project.store.reader()

    assert dependencies.preloading(reader) == {number["linux/rock.mesh"]}
    assert dependencies.find_preloaded(reader, number.values()) == {number["linux/rock.mesh"]: [number["linux/level.out"]]}
    assert dependencies.names_of(reader, [number["linux/level.out"]]) == {number["linux/level.out"]: "linux/level.out"}


def test_changed_preloaders_are_returned_once(project: Project) -> None:
    writer = project.store.writer
    number = ids(project.store)["linux/rock.mesh"]
    assert number in (writer.pop_preloaders() or ())
    assert writer.pop_preloaders() == set()

    project.make("other.fbx", ("other.mesh", 0, (source_file("rock.fbx", 1),)))
    assert writer.pop_preloaders() == set()
    project.make("other.fbx", ("other.mesh", 0, (source_file("rock.fbx", 0),)))
    assert writer.pop_preloaders() == {ids(project.store)["linux/other.mesh"]}


def test_changed_product_makes_catalogs_out_of_date(project: Project) -> None:
    writer, archive = project.store.writer, project.store.archive()
    changes, _names = writer.product_changes()
    project.store.put(put_state=[("other", "1")])
    assert writer.mark_catalogs(changes, "these")
    assert archive.state("catalogs") == "these"

    project.source("rock.fbx")  # the source is saved again without a change
    assert archive.state("catalogs") == "these"
    project.source("rock.fbx", 2)
    project.make("rock.fbx", ("rock.mesh", 5, ()))

    assert archive.state("catalogs") is None
    assert not writer.mark_catalogs(changes, "those")
    assert archive.state("catalogs") is None


def test_changed_uuid_of_a_source_makes_catalogs_out_of_date(project: Project) -> None:
    writer = project.store.writer
    assert writer.mark_catalogs(writer.product_changes()[0], "these")

    row = source_row(2, "rock.fbx")
    project.store.put(put_source=[(*row[:3], uuid_of(99), *row[4:])])

    assert project.store.archive().state("catalogs") is None


# ----------------------------------------------------------------------------------------------------------------- catalogs

_NAMES = ("a.out", "d/a.out", "d/ä.out", "d.out")
_NEEDED = (*(f"{source}/{name}" for source in "abc" for name in _NAMES), "a/*", "*d.out")
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("a.src", "b.src", "c.src")),
        st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_NEEDED)), max_size=3, unique_by=lambda item: item[0]),
    ),
    min_size=2,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=_CHANGES)
@example(
    changes=[
        ("c.src", [("d.out", "a/a.out"), ("a.out", "a/a.out"), ("d/a.out", "a/a.out")]),
        ("a.src", [("d/a.out", "a/*"), ("d/ä.out", "a/a.out"), ("a.out", "a/a.out")]),
        ("c.src", []),
        ("b.src", [("a.out", "a/a.out"), ("d.out", "a/a.out"), ("d/ä.out", "a/d/a.out")]),
        ("a.src", [("d/a.out", "a/*"), ("a.out", "b/d.out")]),
        ("a.src", []),
        ("b.src", [("a.out", "a/*"), ("d.out", "c/d.out"), ("d/a.out", "a/a.out")]),
    ]
)
def test_updated_catalogs_equal_catalogs_that_are_written_whole(
    make_store: Callable[[], Store], changes: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    project = Project(make_store())
    store, folder = project.store, project.store.path.parent
    (folder / ".aptui").mkdir()
    catalogs = Catalogs(store.writer, store.path, "demo", ("linux", "server"), None)
    for rel, products in changes:
        if products:
            project.make(
                rel, *((f"{rel[0]}/{name}", sub_id, (product_file(needed),)) for sub_id, (name, needed) in enumerate(products))
            )
        elif rel in project.sources:
            project.drop(rel)
        catalogs.save()

    followed = path_of(folder, "linux").read_bytes()
    assert store.writer.product_changes()[1] == frozenset()
    Catalogs(store.writer, store.path, "demo", ("linux", "server"), None).save()
    assert path_of(folder, "linux").read_bytes() == followed
    store.close()


def test_catalog_with_few_changes_rewrites_only_the_changed_lines(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store = project.store
    (store.path.parent / ".aptui").mkdir()
    catalogs = Catalogs(store.writer, store.path, "demo", ("linux",), None)
    catalogs.save()
    monkeypatch.setattr(catalog, "_parts", None)  # writing a complete catalog would now raise an error

    project.make("rock.fbx", ("rock.mesh", 5, ()))
    catalogs.save()

    lines = path_of(store.path.parent, "linux").read_text().splitlines()
    assert [line.partition('"path":"')[2].partition('"')[0] for line in lines] == ["", "level.out", "rock.mesh"]
    assert lines[1].count("],[") == 1  # the dependency on the removed product is gone
