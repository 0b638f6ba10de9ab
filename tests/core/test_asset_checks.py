"""Checks on assets, tested without files: findings about names and products, and skipped checks."""

from __future__ import annotations

import pytest

from aptui.core.asset_checks import Check, CheckedProduct, Limit, between, find_block, flaws_of_name, flaws_of_product
from aptui.core.run_report import ContentFacts, content_facts


def limit(field: str, text: str) -> Limit:
    return Limit(field, text, *between(text))


RIGS = Limit("facts.rig", "a, b", words="a\nb")


def product(facts: ContentFacts | None = None, size: int = 100) -> CheckedProduct:
    return CheckedProduct("linux/a/rock.png", size, facts)


@pytest.mark.parametrize(
    ("check", "facts", "flaws"),
    [
        (Check("x", limits=(limit("width", "<= 64"),)), ContentFacts(65), ["width is 65, wanted: <= 64"]),
        (Check("x", limits=(limit("width", "<= 64"),)), ContentFacts(64), []),
        (Check("x", limits=(limit("width", "<= 64"),)), ContentFacts(seconds=1.0), []),
        (Check("x", limits=(limit("width", "> 64"),)), None, []),
        (Check("x", limits=(limit("facts.bones", "<= 64"),)), content_facts({"bones": 65}), ["bones is 65, wanted: <= 64"]),
        (Check("x", limits=(limit("facts.bones", "<= 64"),)), content_facts({"bones": "many"}), ["bones is many, wanted: <= 64"]),
        (Check("x", limits=(limit("facts.bones", "<= 64"),)), content_facts({"rig": "x"}), []),
        (Check("x", limits=(limit("facts.offset", "<= 64"),)), content_facts({"offset": -3}), []),
        (Check("x", limits=(limit("facts.offset", "< 64"),)), content_facts({"offset": -3}), []),
        (Check("x", limits=(limit("facts.offset", "..64"),)), content_facts({"offset": -3.5}), []),
        (
            Check("x", limits=(Limit("facts.rig", "a, b", words="a\nb"),)),
            content_facts({"rig": "c"}),
            ["rig is c, wanted: a, b"],
        ),
        (Check("x", limits=(RIGS,)), content_facts({"rig": "b"}), []),
        (Check("x", limits=(limit("pixels", "< 4096"),)), ContentFacts(64, 64), ["pixels is 4,096, wanted: < 4096"]),
        (Check("x", limits=(limit("bytes", "<= 99"),)), None, ["bytes is 100, wanted: <= 99"]),
        (Check("x", formats=("webp",)), ContentFacts(format="png"), ["format is png, wanted: webp"]),
        (Check("x", formats=("webp",)), ContentFacts(1), []),
        (Check("x", power_of_two=True), ContentFacts(64, 48), ["width and height must be powers of two, but are 64x48"]),
        (Check("x", power_of_two=True), ContentFacts(64, 1), []),
        (Check("x", power_of_two=True), ContentFacts(63), []),
    ],
)
def test_check_reports_each_condition_that_a_product_violates(check: Check, facts: ContentFacts | None, flaws: list[str]) -> None:
    assert list(flaws_of_product(check, product(facts))) == flaws


def test_check_of_a_source_name_is_case_sensitive() -> None:
    check = Check("names", file_name="[a-z_.]+")

    assert list(flaws_of_name(check, "Textures/rock.png")) == []
    assert list(flaws_of_name(check, "textures/Rock.png")) == ["the name 'Rock.png' does not match '[a-z_.]+'"]


def test_blocking_check_is_named_in_the_error_of_the_job() -> None:
    checks = (Check("other", files=("b/.*",), file_name="x"), Check("wide", files=("A/.*",), limits=(limit("width", "<= 64"),)))

    assert find_block(checks, "a/rock.png", [product(ContentFacts(99))]) == "check 'wide': rock.png: width is 99, wanted: <= 64"
    assert find_block(checks, "a/rock.png", [product(ContentFacts(9))]) == ""
    assert find_block(checks, "c/rock.png", [product(ContentFacts(99))]) == ""
    assert find_block(checks, "b/rock.png", []) == "check 'other': the name 'rock.png' does not match 'x'"
