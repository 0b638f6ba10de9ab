"""A job's facts combine the facts of its products. A file's stamp shows whether the file changed."""

from __future__ import annotations

import pytest

from aptui.core.run_report import ContentFacts, Stamp, is_other, together

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
