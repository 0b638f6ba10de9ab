"""What a job is said to have made: the facts of its products together."""

from __future__ import annotations

import pytest

from aptui.core.results.facts import ProductFacts, together

IMAGE, SOUND = ProductFacts(width=8, height=4, format="rgb"), ProductFacts(width=2, rate=44100, seconds=1.5)


@pytest.mark.parametrize(
    ("products", "told"),
    [
        ([], None),
        ([None, None], None),
        ([None, IMAGE], IMAGE),
        ([IMAGE, None, SOUND], ProductFacts(width=8, height=4, format="rgb", rate=44100, seconds=1.5)),
    ],
)
def test_the_most_of_each_fact_is_told_and_nothing_where_nothing_is_said(
    products: list[ProductFacts | None], told: ProductFacts | None
) -> None:
    assert together(products) == told
