"""Links that a builder declares for its products: checked, normalized, and reported if they are invalid."""

from __future__ import annotations

from uuid import UUID

import pytest
from run_harness import made, write

from aptui.core.model import LinkKind, ProductLink
from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.sdk import JobProduct, LoadBehavior, PathDependency, PathDependencyKind, ProductDependency
from aptui.worker.wire import FrameKind, decode, encode

ROCK = UUID(int=7)
PRODUCT = PathDependencyKind.PRODUCT_FILE


def run(harness, handled=True, order=None, **declared):
    def process_job(request):
        write(request.product_path("a.out"))
        return made(JobProduct("a.out", 3, dependencies_handled=handled, **declared))

    return harness.process(process_job, order)


def messages_of(result, level):
    return [record.text for record in result.log if record.level == level]


def test_declared_dependencies_are_sent_to_the_engine_with_their_flags(harness):
    result = run(
        harness,
        dependencies=[ProductDependency(ROCK, 9, LoadBehavior.PRE_LOAD), ProductDependency(ROCK, 10, 0x12)],
        path_dependencies=[PathDependency("Tex\\A.psd"), PathDependency(f"{harness.root}/B.psd"), PathDependency("!x/*", PRODUCT)],
        legacy_sub_ids=(5, 4, 3, 5),
    )

    (product,) = decode(FrameKind.RAN, encode(FrameKind.RAN, result)[5:]).products
    assert product.links == (
        ProductLink(LinkKind.ASSET, "", 0, ROCK.bytes, 9),
        ProductLink(LinkKind.ASSET, "", 0x12, ROCK.bytes, 10),
        ProductLink(LinkKind.SOURCE_FILE, "tex/a.psd"),
        ProductLink(LinkKind.SOURCE_FILE, "b.psd"),
        ProductLink(LinkKind.PRODUCT_FILE, "x/*", is_exclusion=True),
    )
    assert product.legacy_sub_ids == (4, 5)
    assert messages_of(result, LogLevel.WARNING) == []


def test_incomplete_declaration_of_dependencies_warns_once(harness):
    assert (
        len(messages_of(run(harness, False, path_dependencies=[PathDependency("x"), PathDependency("y")]), LogLevel.WARNING)) == 1
    )
    assert messages_of(run(harness, False), LogLevel.WARNING) == []


def test_dependency_of_a_product_on_itself_is_omitted_with_a_warning(harness):
    order = harness.order(source_uuid=ROCK.bytes)
    itself = [PathDependency("A.out", PRODUCT), PathDependency("a.TXT"), PathDependency("other")]
    result = run(
        harness, order=order, dependencies=[ProductDependency(ROCK, 3), ProductDependency(ROCK, 4)], path_dependencies=itself
    )

    (product,) = result.products
    assert [(link.kind, link.path, link.sub_id) for link in product.links] == [
        (LinkKind.ASSET, "", 4), (LinkKind.SOURCE_FILE, "a.txt", 0), (LinkKind.SOURCE_FILE, "other", 0),
    ]  # fmt: skip
    warnings = messages_of(result, LogLevel.WARNING)
    assert sum("depends on itself; this dependency is left out" in text for text in warnings) == 2
    assert sum("depends on its own source; this dependency is kept" in text for text in warnings) == 1


def test_path_that_is_both_needed_and_excluded_causes_an_error(harness):
    result = run(harness, path_dependencies=[PathDependency("a/*"), PathDependency("!A/*"), PathDependency("b")])

    assert result.outcome is Outcome.SUCCEEDED
    assert [link.path for link in result.products[0].links] == ["b"]
    (text,) = messages_of(result, LogLevel.ERROR)
    assert "the dependency 'a/*' is ignored, because the product also excludes it" in text


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"path_dependencies": ["a.psd"]}, "has a str among its path dependencies; expected a PathDependency"),
        ({"path_dependencies": [PathDependency(3)]}, "depends on the path 3, which is not a text"),
        ({"path_dependencies": [PathDependency("a", 5)]}, "whose kind 5 is neither SOURCE_FILE nor PRODUCT_FILE"),
        ({"path_dependencies": [PathDependency("../a")]}, "depends on the path '../a', which leads out of its folder with '..'"),
        ({"path_dependencies": [PathDependency("a", load=-1)]}, "has -1 in place of a load behaviour"),
        ({"dependencies": [PathDependency("a")]}, "has a PathDependency among its dependencies, not a ProductDependency"),
        ({"dependencies": [ProductDependency("7")]}, "depends on '7', which is not a UUID"),
        ({"dependencies": [ProductDependency(UUID(int=0))]}, "which cannot be the UUID of a source"),
        ({"dependencies": [ProductDependency(ROCK, 1 << 32)]}, "has 4294967296 in place of a sub id of 32 bits"),
        ({"legacy_sub_ids": ("x",)}, "has 'x' in place of a legacy sub id of 32 bits"),
    ],
)
def test_invalid_dependency_fails_the_job_and_names_the_product(harness, declared, why):
    result = run(harness, **declared)

    assert result.outcome is Outcome.FAILED
    assert result.error.startswith("product 'a.out' ")
    assert why in result.error
