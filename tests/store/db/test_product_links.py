"""Product dependencies: the rows of ProductDependencies follow from the declared links and the products, in any order of events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptui.core.model import Digest, Job, LinkKind, PathKey, Product, ProductLink, RelPath, Source, SourceUuid
from aptui.core.paths import path_link
from aptui.core.rows import ROW_OPERATIONS, product_rows

from ..conftest import BUILDER, DIGEST, Store, job_row, uuid_of

NO_UUID = bytes(16)
SOURCE, PRODUCT = LinkKind.SOURCE_FILE, LinkKind.PRODUCT_FILE


def asset(source: int, sub_id: int = 0, flags: int = 2) -> ProductLink:
    return ProductLink(LinkKind.ASSET, "", flags, uuid_of(source), sub_id)


def source_file(path: str, flags: int = 2) -> ProductLink:
    return path_link(path, SOURCE, flags)


def product_file(path: str, flags: int = 2) -> ProductLink:
    return path_link(path, PRODUCT, flags)


@dataclass
class Project:
    """Sources with one job for each platform; `make` puts the products of a job, as a commit does."""

    store: Store
    platforms: tuple[str, ...] = ("linux", "server")
    sources: dict[str, int] = field(default_factory=dict)
    _ids: int = 0

    def source(self, rel: str, number: int = 0) -> int:
        """Save a source and its jobs; the UUID of the source is derived from its number."""
        number = number or self.sources.get(rel) or max(self.sources.values(), default=0) + 1
        self.sources[rel] = number
        jobs = [job_row(self._job(number, platform), number, platform=platform) for platform in self.platforms]
        self.store.put(put_source=[source_row(number, rel)], put_job=jobs)
        return number

    def _job(self, number: int, platform: str) -> int:
        return number * 10 + self.platforms.index(platform)

    def rows(self, rel: str, products: Iterable[tuple[str, int, tuple[ProductLink, ...]]], platform: str = "linux", flags: int = 1):
        """Return the rows that save `products`; each is (path below the folder of the platform, sub id, links)."""
        number = self.sources[rel]
        source = Source(PathKey(rel), RelPath(rel), 1, SourceUuid(uuid_of(number)), number)
        job = Job(source, BUILDER, platform, "Image", self._job(number, platform))
        found: dict[str, list[tuple[object, ...]]] = {"drop_products": [(job.id,)]}
        for path, sub_id, links in products:
            self._ids += 1
            product = Product(f"{platform}/{path}", sub_id, b"T" * 16, flags, Digest(DIGEST), 1, 10, links)
            for operation, row in product_rows(self._ids, job, product):
                found.setdefault(operation, []).append(row)
        return found

    def make(self, rel: str, *products: tuple[str, int, tuple[ProductLink, ...]], platform: str = "linux", flags: int = 1) -> None:
        if rel not in self.sources:
            self.source(rel)
        self.store.put(**self.rows(rel, products, platform, flags))

    def drop(self, rel: str) -> None:
        self.store.put(drop_source=[(self.sources.pop(rel),)])

    def dependencies(self, name: str) -> list[tuple[object, ...]]:
        """Return a product's rows as (guid, sub id, path, kind, flags, whether the link is by asset id)."""
        sql = """SELECT d.DependencySourceGuid, d.DependencySubID, d.UnresolvedPath, d.UnresolvedDependencyType, d.DependencyFlags,
            d.FromAssetId, d.Platform FROM ProductDependencies d JOIN Products p ON p.ProductID = d.ProductPK
                WHERE p.ProductName = ?"""
        rows = self.store.rows(sql, name)
        assert all(row[6] == name.partition("/")[0] for row in rows)
        return sorted(row[:6] for row in rows)


def source_row(number: int, rel: str) -> tuple[object, ...]:
    row = (number, 1, rel, uuid_of(number), rel.lower(), DIGEST, "", 0, 0)
    return row[: len(ROW_OPERATIONS["put_source"].split(", "))]


def resolved(number: int, sub_id: int = 0, flags: int = 2, by_id: int = 0) -> tuple[object, ...]:
    return (uuid_of(number), sub_id, "", 0, flags, by_id)


def unmet(path: str, kind: LinkKind, flags: int = 2) -> tuple[object, ...]:
    return (NO_UUID, 0, path, int(kind), flags, 0)


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store)


# ------------------------------------------------------------------------------------------------------------- exact links


def test_dependency_on_a_product_path_is_met_while_the_product_exists(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (product_file("meshes/rock.mesh", 1),)))
    assert project.dependencies("linux/level.xml") == [unmet("meshes/rock.mesh", PRODUCT, 1)]

    project.make("meshes/rock.fbx", ("meshes/rock.mesh", 7, ()))
    assert project.dependencies("linux/level.xml") == [resolved(2, 7, 1)]

    project.make("meshes/rock.fbx", ("meshes/stone.mesh", 7, ()))
    assert project.dependencies("linux/level.xml") == [unmet("meshes/rock.mesh", PRODUCT, 1)]


def test_source_dependency_resolves_to_all_its_products_of_the_platform(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (source_file("Rock.fbx"),)))
    project.make("Rock.fbx", ("rock.mesh", 0, ()), ("rock.mat", 1, ()))
    project.make("Rock.fbx", ("rock.mesh", 5, ()), platform="server")

    assert project.dependencies("linux/level.xml") == [resolved(2, 0), resolved(2, 1)]

    project.make("Rock.fbx", ("rock.mat", 1, ()))
    assert project.dependencies("linux/level.xml") == [resolved(2, 1)]

    project.drop("Rock.fbx")
    assert project.dependencies("linux/level.xml") == [unmet("rock.fbx", SOURCE)]


def test_dependency_kind_distinguishes_a_source_and_a_product_of_one_name(project: Project) -> None:
    project.make("a.dat", ("a.out", 1, ()))
    project.make("b.raw", ("a.dat", 2, ()))
    project.make("level.xml", ("x.xml", 0, (source_file("a.dat"),)), ("y.xml", 1, (product_file("a.dat"),)))

    assert project.dependencies("linux/x.xml") == [resolved(1, 1)]
    assert project.dependencies("linux/y.xml") == [resolved(2, 2)]


@pytest.mark.parametrize("path", ["Textures/Rock.DAT", "textures\\\\rock.dat", "textures//rock.dat", "./textures/rock.dat"])
def test_dependency_path_matches_with_any_slashes_and_letter_case(project: Project, path: str) -> None:
    project.make("textures/rock.psd", ("textures/rock.dat", 3, ()))
    project.make("level.xml", ("level.xml", 0, (product_file(path),)))

    assert project.dependencies("linux/level.xml") == [resolved(1, 3)]


def test_product_dependency_on_an_image_path_resolves_to_its_products(project: Project) -> None:
    project.make("textures/rock.png", ("textures/rock.streamingimage", 3, ()))
    project.make("level.xml", ("level.xml", 0, (product_file("textures/rock.PNG"),)))

    assert project.dependencies("linux/level.xml") == [resolved(1, 3)]


def test_dependency_is_not_met_by_a_product_of_another_platform(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (product_file("a.out"), source_file("*.a"))), platform="server")
    project.make("x.a", ("a.out", 0, ()))

    assert project.dependencies("server/level.xml") == [unmet("*.a", SOURCE), unmet("a.out", PRODUCT)]


def test_an_intermediate_is_never_the_target_of_a_product_dependency(project: Project) -> None:
    project.platforms = ("linux", "common")
    project.make(
        "level.xml", ("level.xml", 0, (product_file("a.out"), source_file("x.a"), product_file("*.out"))), platform="common"
    )
    project.make("x.a", ("a.out", 0, ()), platform="common", flags=2)

    assert len([row for row in project.dependencies("common/level.xml") if row[2] == ""]) == 0


def test_absolute_path_below_a_scan_folder_is_a_dependency_on_that_source(project: Project, tmp_path) -> None:
    project.make("meshes/rock.fbx", ("meshes/rock.mesh", 0, ()))
    project.make("level.xml", ("level.xml", 0, (source_file(f"{tmp_path}/Meshes/Rock.fbx"), source_file("/elsewhere/x"))))

    assert project.dependencies("linux/level.xml") == [unmet("/elsewhere/x", SOURCE), resolved(1)]


def test_dependencies_follow_a_source_whose_uuid_changes(project: Project) -> None:
    project.make("a.x", ("a.out", 4, ()))
    project.make("level.xml", ("level.xml", 0, (product_file("a.out"), source_file("*.x"))))

    row = source_row(1, "a.x")
    project.store.put(put_source=[(*row[:3], uuid_of(99), *row[4:])])

    assert project.dependencies("linux/level.xml") == [unmet("*.x", SOURCE), resolved(99, 4)]


def test_dependencies_on_a_deleted_source_are_unmet_until_it_returns(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (source_file("a.psd"), product_file("a.dds"))))
    project.source("a.psd")  # the named file exists, but has no product yet
    project.drop("a.psd")
    assert project.dependencies("linux/level.xml") == [unmet("a.dds", PRODUCT), unmet("a.psd", SOURCE)]

    project.make("a.psd", ("a.dds", 0, ()), ("a.txt", 1, ()))

    assert project.dependencies("linux/level.xml") == [resolved(2), resolved(2, 1)]


# ---------------------------------------------------------------------------------------- links by asset id, several links


def test_dependency_by_asset_id_is_stored_as_declared_and_marked_as_by_id(project: Project) -> None:
    links = (asset(2, 9, 0), product_file("rock.mesh", 1), asset(77, 1))
    project.make("level.xml", ("level.xml", 0, links))
    project.make("rock.fbx", ("rock.mesh", 9, ()))

    assert project.dependencies("linux/level.xml") == [resolved(2, 9, 0, by_id=1), resolved(77, 1, by_id=1)]


def test_dependency_on_an_earlier_uuid_of_a_source_resolves_to_its_present_uuid(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (asset(77, 9),)))
    assert project.dependencies("linux/level.xml") == [resolved(77, 9, by_id=1)]

    number = project.source("rock.fbx")
    project.store.put(put_legacy=[(uuid_of(77), number, 5)])
    assert project.dependencies("linux/level.xml") == [resolved(number, 9, by_id=1)]

    project.make("other.xml", ("other.xml", 0, (asset(77, 9),)))
    assert project.dependencies("linux/other.xml") == [resolved(number, 9, by_id=1)]

    owner = project.source("owner.fbx", 77)  # the present owner of a UUID precedes its earlier owners
    assert project.dependencies("linux/level.xml") == project.dependencies("linux/other.xml") == [resolved(owner, 9, by_id=1)]

    project.drop("owner.fbx")
    project.store.put(drop_legacy=[(number,)])
    assert project.dependencies("linux/level.xml") == [resolved(77, 9, by_id=1)]


def test_wildcard_dependency_has_its_own_row_and_a_row_for_each_match(project: Project) -> None:
    project.make("a/x.psd", ("a/x.dds", 0, ()))
    project.make("level.xml", ("level.xml", 0, (product_file("a/*.dds", 1),)))
    project.make("a/b/y.psd", ("a/b/y.dds", 0, ()), ("a/b/y.txt", 1, ()))
    project.make("c.psd", ("c.dds", 0, ()))

    wildcard = unmet("a/*.dds", PRODUCT, 1)
    assert project.dependencies("linux/level.xml") == [wildcard, resolved(1, 0, 1), resolved(3, 0, 1)]

    project.drop("a/x.psd")
    assert project.dependencies("linux/level.xml") == [wildcard, resolved(3, 0, 1)]


def test_exclusion_affects_only_wildcards_of_its_product(project: Project) -> None:
    project.make("level.xml", ("l.xml", 0, (product_file("*.dds"), product_file("!a/*"), source_file("!c.psd"))))
    project.make("other.xml", ("o.xml", 0, (product_file("*.dds"),)))
    for name in ("a/x", "b", "c"):
        project.make(f"{name}.psd", (f"{name}.dds", 0, ()))

    stays = [unmet("*.dds", PRODUCT), unmet(":a/*", PRODUCT), unmet(":c.psd", SOURCE)]
    assert project.dependencies("linux/l.xml") == [*stays, resolved(4)]
    assert project.dependencies("linux/o.xml") == [stays[0], resolved(3), resolved(4), resolved(5)]


def test_product_does_not_depend_on_itself(project: Project) -> None:
    project.make("a.xml", ("a.out", 0, (product_file("*.out"), source_file("a.xml"))), ("b.out", 1, ()))

    assert project.dependencies("linux/a.out") == [unmet("*.out", PRODUCT), resolved(1, 1)]


def test_first_of_several_dependencies_on_the_same_product_is_stored(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (source_file("*.fbx", 1), product_file("rock.mesh", 0))))
    project.make("rock.fbx", ("rock.mesh", 0, ()))

    assert project.dependencies("linux/level.xml") == [unmet("*.fbx", SOURCE, 1), resolved(2, 0, 1)]


def test_second_run_of_a_job_adds_no_dependency_rows(project: Project) -> None:
    for _run in range(2):
        project.make("level.xml", ("level.xml", 0, (product_file("*.dds"), product_file("gone.x"), asset(9))))
        project.make("a.psd", ("a.dds", 0, ()))

    assert project.dependencies("linux/level.xml") == [
        unmet("*.dds", PRODUCT),
        unmet("gone.x", PRODUCT),
        resolved(2),
        resolved(9, by_id=1),
    ]


def test_changed_dependencies_of_a_product_with_equal_bytes_are_stored(project: Project) -> None:
    project.make("a.psd", ("a.dds", 0, ()))
    project.make("level.xml", ("level.xml", 0, (product_file("a.dds"),)))

    project.make("level.xml", ("level.xml", 0, (product_file("b.dds"),)))

    assert project.dependencies("linux/level.xml") == [unmet("b.dds", PRODUCT)]
    assert project.store.count("aptui_product_links") == 1


def test_product_deleted_and_remade_in_one_transaction_keeps_its_links(project: Project) -> None:
    project.make("a.psd", ("a.dds", 0, ()))
    project.make("level.xml", ("level.xml", 0, (product_file("a.dds"),)))
    before = project.store.rows("SELECT * FROM ProductDependencies")

    project.make("a.psd", ("a.dds", 0, ()))

    assert project.store.rows("SELECT * FROM ProductDependencies") == before


def test_product_made_twice_in_its_first_transaction_resolves_dependencies(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (product_file("a.dds"),)))
    project.source("a.psd")
    batches = [project.rows("a.psd", [("a.dds", 0, ())]) for _run in range(2)]

    project.store.writer._ask(lambda: project.store.writer._transact(batches, durable=False))

    assert project.dependencies("linux/level.xml") == [resolved(2)]


def test_failed_transaction_changes_neither_links_nor_rows(project: Project) -> None:
    project.make("level.xml", ("level.xml", 0, (product_file("a.dds"),)))
    project.source("a.psd")
    rows = project.rows("a.psd", [("a.dds", 0, ())])
    with pytest.raises(Exception, match="refused a row"):
        project.store.put(**rows, put_state=[("too few",)])

    assert project.dependencies("linux/level.xml") == [unmet("a.dds", PRODUCT)]
    project.store.put(**rows)
    assert project.dependencies("linux/level.xml") == [resolved(2)]


def test_legacy_sub_ids_are_deleted_with_their_product(project: Project) -> None:
    project.source("a.psd")
    rows = project.rows("a.psd", [("a.dds", 0, ())])
    project.store.put(**rows, put_legacy_sub_id=[(rows["put_product"][0][0], rows["put_product"][0][1], 44)])
    assert project.store.rows("SELECT SubID FROM LegacySubIDs") == [(44,)]

    project.drop("a.psd")

    assert project.store.count("LegacySubIDs") == 0


def test_archive_returns_each_product_with_its_dependencies(project: Project) -> None:
    links = (asset(5, 6, 1), product_file("*.dds", 0), source_file("!a.psd"))
    project.make("level.xml", ("level.xml", 0, links))
    project.make("plain.xml", ("plain.xml", 0, ()))

    found = project.store.archive().sources([PathKey("level.xml"), PathKey("plain.xml")])

    products = {
        product.name: product.links for source in found.values() for job in source.jobs.values() for product in job.products
    }
    assert products == {"linux/level.xml": links, "linux/plain.xml": ()}


# ---------------------------------------------------------------------------------------- compared with a naive computation

_STEMS = ("a", "d/a", "d/e/b")
_PATHS = st.sampled_from([*(f"{stem}.{end}" for stem in _STEMS for end in ("s", "o")), "*", "*.s", "*.o", "d/*", "d/e/*.s", "*a.*"])
_LINKS = st.lists(
    st.one_of(
        st.builds(lambda path, kind, sign, flags: path_link(sign + path, kind, flags),
                  _PATHS, st.sampled_from([SOURCE, PRODUCT]), st.sampled_from(["", "", "!"]), st.integers(0, 2)),
        st.builds(asset, st.integers(1, 5), st.integers(0, 1), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda link: (link.kind, link.path, link.source_uuid, link.sub_id, link.is_exclusion),
).map(tuple)  # fmt: skip
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.sampled_from(_STEMS), st.sampled_from(["linux", "linux", "linux", "server"]),
                  st.lists(st.tuples(st.sampled_from(_STEMS), _LINKS), min_size=1, max_size=2, unique_by=lambda item: item[0])),
        st.tuples(st.just("drop"), st.sampled_from(_STEMS), st.just(""), st.just(())),
        st.tuples(st.just("rename"), st.sampled_from(_STEMS), st.just(""), st.integers(1, 4)),
    ),
    min_size=3,
    max_size=12,
)  # fmt: skip


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def expected(store: Store) -> set[tuple[object, ...]]:
    """Compute the rows by comparing every link with every product."""
    targets = store.rows("""SELECT p.ProductID, s.SourceGuid, p.SubID, j.Platform, substr(p.ProductName, instr(p.ProductName,
        '/') + 1),
        o.path_key FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
        JOIN aptui_sources o ON o.source_id = s.SourceID WHERE p.Flags & 2 = 0""")
    links = store.rows(
        "SELECT product_id, kind, platform, path, is_exclusion, source_guid, sub_id, flags FROM aptui_product_links ORDER BY at"
    )
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    for owner, kind, platform, _path, _excl, guid, sub_id, flags in links:
        if kind == LinkKind.ASSET:
            found.setdefault((owner, guid, sub_id), (owner, guid, sub_id, platform, flags, "", 0, 1))
    own = {target[0]: target[1:3] for target in targets}
    for owner, kind, platform, path, is_exclusion, _guid, _sub_id, flags in links:
        if kind == LinkKind.ASSET:
            continue
        if is_exclusion:
            found[owner, ":" + path, kind] = (owner, NO_UUID, 0, platform, flags, ":" + path, kind, 0)
            continue
        excluded = [(other[1], _regex(other[3])) for other in links if other[0] == owner and other[4]]
        matches = [target for target in targets if target[3] == platform and _regex(path).fullmatch(target[4 + (kind == SOURCE)])]
        if "*" in path or not matches:
            found[owner, path, kind] = (owner, NO_UUID, 0, platform, flags, path, kind, 0)
        for target in matches:
            is_out = "*" in path and any(regex.fullmatch(target[4 + (of == SOURCE)]) for of, regex in excluded)
            if own[owner] != target[1:3] and not is_out:
                found.setdefault((owner, *target[1:3]), (owner, *target[1:3], platform, flags, "", 0, 0))
    return set(found.values())


def actual(store: Store) -> list[tuple[object, ...]]:
    return store.rows("""SELECT ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags, UnresolvedPath,
        UnresolvedDependencyType, FromAssetId FROM ProductDependencies""")


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS, batch=st.integers(1, 3))
def test_resolved_rows_equal_a_naive_computation_after_any_changes(
    make_store: Callable[[], Store], steps: list[tuple], batch: int
) -> None:
    store = make_store()
    project = Project(store)
    for stem in _STEMS:
        project.source(f"{stem}.s")
    changes = []
    for verb, stem, platform, value in steps:
        rel, number = f"{stem}.s", _STEMS.index(stem) + 1
        if verb == "make":
            products = [(f"{name}.o", sub_id, links) for sub_id, (name, links) in enumerate(value)]
            jobs = [job_row(project._job(number, name), number, platform=name) for name in project.platforms]
            again = {"put_source": [source_row(number, rel)], "put_job": jobs}
            changes.append({**again, **project.rows(rel, products, platform)})
        elif verb == "drop":
            changes.append({"drop_source": [(number,)]})
        else:
            row = source_row(number, rel)
            changes.append({"put_source": [(*row[:3], uuid_of(value), *row[4:])]})
    for at in range(0, len(changes), batch):
        store.writer._ask(lambda part=changes[at : at + batch]: store.writer._transact(part, durable=False))

    rows = actual(store)
    assert len(rows) == len(set(rows))
    assert set(rows) == expected(store)
    store.close()
