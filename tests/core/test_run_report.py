"""A job's facts combine the facts of its products. A file's stamp shows whether the file changed."""

from __future__ import annotations

import math

import pytest

from aptui.core.run_report import ContentFacts, Stamp, content_facts, fault_of, fault_of_others, is_other, together

IMAGE, SOUND = ContentFacts(width=8, height=4, format="rgb"), ContentFacts(width=2, rate=44100, seconds=1.5)


@pytest.mark.parametrize(
    ("products", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([None, IMAGE], IMAGE),
        ([IMAGE, None, SOUND], ContentFacts(width=8, height=4, format="rgb", rate=44100, seconds=1.5)),
    ],
)
def test_facts_of_a_job_are_the_maxima_of_the_facts_of_its_products(
    products: list[ContentFacts | None], expected: ContentFacts | None
) -> None:
    assert together(products) == expected


def test_additional_fact_of_a_job_is_the_largest_value_of_its_products() -> None:
    products = [
        content_facts(each) for each in ({"bones": 9, "rig": "a"}, {"bones": 12, "lod": 1}, {"rig": "b", "width": 4}, {"lod": "x"})
    ]

    facts = together(products)

    assert facts is not None
    assert facts.all == {"width": 4, "bones": 12, "rig": "b", "lod": "x"}


@pytest.mark.parametrize("text", ["x", "[]", '{"bones": 1}', '{"width":1}', '{"B":1}', '{"b":true}', '{"b":1,"a":1}'])
def test_additional_facts_from_another_program_are_checked(text: str) -> None:
    assert fault_of_others(text)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("width", 8, ""),
        ("width", 1 << 53, "not a whole number from 0 to 2⁵³"),
        ("seconds", 1.5, ""),
        ("seconds", math.nan, "not a number from 0 to 2⁵³"),
        ("seconds", "long", "not a number"),
        ("offset", -1.5, ""),
        ("offset", math.inf, "not a number from -2⁵³ to 2⁵³"),
        ("offset", [1], "not a number or a text"),
        ("rig", "Humanoid ä", ""),
        ("rig", "x" * 257, "not a text of at most 256 characters"),
        ("Rig", "x", "a fact whose name has other characters than lower-case letters, digits and _"),
        ("format", "png", ""),
        ("format", "PNG", "not a lower-case word of at most 32 characters"),
    ],
)
def test_fact_is_refused_with_a_reason(name: str, value: object, fault: str) -> None:
    assert fault_of(name, value) == fault


@pytest.mark.parametrize(
    ("known", "found", "is_changed"),
    [
        ((5, 10, 10, 7), (5, 10, 10, 7), False),
        ((5, 10, 10, 7), (6, 10, 10, 7), True),
        ((0, 10, 10, 7), (0, 10, 10, 7), False),
        ((0, 10, 10, 7), (0, 11, 11, 7), True),
        ((5, 10, 10, 7), (0, 10, 10, 7), True),
        ((0, 10, 10, 7), (5, 10, 10, 7), True),
        ((0, 0, 0, 0), (5, 10, 10, 7), True),
        ((5, 0, 0, 0), (5, 10, 10, 7), False),
        ((), (0, 10, 10, 7), True),
        ((), (), False),
    ],
)
def test_size_is_always_compared_but_times_only_if_they_are_known(known: Stamp, found: Stamp, is_changed: bool) -> None:
    assert is_other(known, found) is is_changed
