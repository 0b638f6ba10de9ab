"""Product dependencies that the configuration defines: found in text by regular expressions, or listed in a file by a command."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from aptui.core.model import LinkKind, ProductLink
from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.core.project import Builder, BuilderKind, CommandRule, ReferenceRule
from aptui.worker.outputs import declared_dependencies

TEXTURE = ReferenceRule(r'"texture": "([^"]*)"')
SOURCE, PRODUCT = LinkKind.SOURCE_FILE, LinkKind.PRODUCT_FILE


def copied(harness, text, *rules, rel="Levels/a.lvl"):
    """Copy a source with this text, and return the run's result."""
    harness.source(rel, text.encode() if isinstance(text, str) else text)
    builder = Builder(b"b" * 16, "copies", BuilderKind.COPY, references=rules or (TEXTURE,), asset_type=b"t" * 16)
    return harness.run(builder, harness.order(rel))


def links(result):
    assert result.outcome == Outcome.SUCCEEDED, result.error
    return [item.links for item in result.products]


def messages_of(result, level=LogLevel.WARNING):
    return [record.text for record in result.log if record.level == level]


def commanded(harness, command, links_file="", **more):
    return harness.run(Builder(b"b" * 16, "tool", BuilderKind.COMMAND, command=CommandRule(command, links_file=links_file), **more))


# --------------------------------------------------------------------------------------------------------------- references


def test_paths_in_the_text_of_a_copy_become_dependencies(harness):
    result = copied(harness, '{"texture": "Tex\\\\Rock.PNG"}\n{"texture": "sky.dds"}{"texture": "sky.dds"}')

    assert links(result) == [(ProductLink(SOURCE, "tex/rock.png", 1), ProductLink(SOURCE, "sky.dds", 1))]
    (product,) = result.products
    assert (product.name, product.sub_id, product.asset_type) == ("levels/a.lvl", 0, b"t" * 16)
    assert messages_of(result) == []


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ReferenceRule(r"use (?P<what>\w+) of (?P<path>\w+)"), ProductLink(SOURCE, "forest", 1)),
        (
            ReferenceRule(r"use (?P<what>\w+) of (?P<where>\w+)", "{where}/{what}/*.png"),
            ProductLink(SOURCE, "forest/tree/*.png", 1),
        ),
        (ReferenceRule(r"use (\w+)", "", 1, 0), ProductLink(PRODUCT, "tree", 0)),
        (ReferenceRule(r"use (\w+)", is_beside=True), ProductLink(SOURCE, "levels/tree", 1)),
        (ReferenceRule(r"^use (?P<x>\w+)", "!skins/{x}"), ProductLink(SOURCE, "skins/tree", 1, is_exclusion=True)),
    ],
    ids=["group", "template", "product", "beside", "exclusion"],
)
def test_reference_rule_sets_the_path_and_the_kind_of_a_dependency(harness, rule, expected):
    assert links(copied(harness, "first\nuse tree of forest", rule)) == [(expected,)]


def test_invalid_path_gets_a_warning_and_is_left_out(harness):
    result = copied(harness, '"texture": "../../../up.png" "texture": "fine.png" "texture": " "')

    assert links(result) == [(ProductLink(SOURCE, "fine.png", 1),)]
    assert messages_of(result) == ["the reference '../../../up.png' leads out of its folder with '..'; it is left out"]


def test_warnings_about_missing_targets_are_limited(harness):
    result = copied(harness, "\n".join(f'"texture": "../{number}"' for number in range(30)))

    assert len(messages_of(result)) == 21
    assert messages_of(result)[-1] == "10 more references are invalid"


def test_a_file_that_contains_its_own_name_has_no_dependency(harness):
    result = copied(harness, '"texture": "levels/A.lvl"', TEXTURE, ReferenceRule(TEXTURE.regex, kind=1))

    assert links(result) == [()]
    assert messages_of(result) == []


def test_references_are_found_in_text_with_undecodable_bytes(harness):
    assert links(copied(harness, '"texture": "é.png" \udcff'.encode("utf-8", "surrogateescape"))) == [
        (ProductLink(SOURCE, "é.png", 1),)
    ]


def test_text_that_is_too_large_to_search_for_references_causes_a_warning(harness, monkeypatch):
    monkeypatch.setattr(declared_dependencies, "LARGEST_TEXT_BYTES", 1 << 20)

    result = copied(harness, b" " * (2 << 20))

    assert links(result) == [()]
    assert messages_of(result) == ["'levels/a.lvl' is not searched for references, because it has 2 MiB; the limit is 1 MiB"]


@pytest.mark.real
def test_references_in_a_source_apply_to_all_products(harness):
    harness.source("a.txt", b"all sky.png")
    rules = (ReferenceRule(r"one (\S+)"), ReferenceRule(r"all (\S+)", is_in_source=True))

    result = commanded(harness, "cd {products_dir}; echo one a.png > 1; echo one b.png > 2; echo none > 3", references=rules)

    assert [[link.path for link in found] for found in links(result)] == [["sky.png", "a.png"], ["sky.png", "b.png"], ["sky.png"]]


def test_copy_of_a_source_that_changed_before_the_run_is_stale(harness):
    order = harness.order("a.txt")
    harness.source("a.txt", b"longer than before")

    assert harness.run(Builder(b"b" * 16, "c", BuilderKind.COPY, references=(TEXTURE,)), order).outcome == Outcome.STALE


# ------------------------------------------------------------------------------------------------- dependencies listed in a file


@pytest.mark.real
def test_command_declares_dependencies_of_its_products(harness):
    lines = [
        "# a comment",
        "",
        "Rock.obj",
        json.dumps({"path": "sky/*", "kind": "product", "load": "pre", "product": "2"}),
        json.dumps({"uuid": str(UUID(int=7)), "sub_id": 3, "load": "none", "product": "1"}),
    ]
    harness.source("a.txt", "\n".join(lines).encode())

    result = commanded(harness, "cd {products_dir}; echo x > 1; echo y > 2; cp {source} {product_dependencies}")

    rock = ProductLink(SOURCE, "rock.obj", 1)
    asset = ProductLink(LinkKind.ASSET, "", 2, UUID(int=7).bytes, 3)
    assert links(result) == [(asset, rock), (rock, ProductLink(PRODUCT, "sky/*", 0))]
    assert messages_of(result) == []


@pytest.mark.real
def test_line_separator_of_unicode_does_not_end_a_line_of_the_dependency_file(harness):
    harness.source("a.txt", "rock\u2028wall.obj".encode())

    result = commanded(harness, "cp {source} {products_dir}/x; cp {source} {product_dependencies}")

    assert links(result) == [(ProductLink(SOURCE, "rock\u2028wall.obj", 1),)]


@pytest.mark.real
def test_dependency_file_has_the_configured_name(harness):
    result = commanded(harness, "cp {source} {products_dir}/x; echo rock.obj > {temp_dir}/{stem}.needs", "{stem}.needs")

    assert links(result) == [(ProductLink(SOURCE, "rock.obj", 1),)]


@pytest.mark.real
def test_dependency_file_that_the_command_did_not_write_causes_a_warning(harness):
    result = commanded(harness, "cp {source} {products_dir}/x", "x.needs")

    assert links(result) == [()]
    assert messages_of(result) == ["the command wrote no file 'x.needs', so the run-time dependencies of its products are unknown"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"paht": "x"}', "unknown key 'paht'; the known keys are path, uuid, sub_id, kind, load, product, facts"),
        ('{"path": "x", "uuid": "y"}', "a line must have either 'path' or 'uuid'"),
        ('{"path": "x", "load": "soon"}', "'load' must be one of pre, queue, none, not 'soon'"),
        ('{"path": "x", "kind": 1}', "'kind' must be one of source, product, not 1"),
        ('{"path": "x", "product": "y"}', "the command made no product 'y'"),
        ('{"path": "x", "product": []}', "the command made no product []"),
        ('{"uuid": "y"}', "badly formed hexadecimal UUID string"),
        ('{"path":', "Expecting value: line 1 column 9 (char 8)"),
    ],
)
def test_dependency_file_with_an_invalid_line_fails_the_job(harness, line, reason):
    harness.source("a.txt", f"fine.png\n{line}".encode())

    result = commanded(harness, "cp {source} {products_dir}/x; cp {source} {product_dependencies}")

    assert (result.outcome, result.error) == (Outcome.FAILED, f"product_dependencies.txt:2: {reason}")


@pytest.mark.real
def test_job_fails_if_a_dependency_has_an_invalid_path(harness):
    harness.source("a.txt", b"../up")

    result = commanded(harness, "cp {source} {products_dir}/x; cp {source} {product_dependencies}")

    assert result.outcome == Outcome.FAILED
    assert "leads out of its folder with '..'" in result.error


@pytest.mark.real
def test_command_reports_facts_of_its_products(harness):
    harness.source("a.txt", b'{"facts": {"seconds": 1.5}, "product": "x"}')

    result = commanded(harness, "cp {source} {products_dir}/x; cp {source} {products_dir}/y; cp {source} {product_dependencies}")

    assert [product.facts and product.facts.seconds for product in result.products] == [1.5, None]
