"""What a job is said to have made: the facts of its products together."""

from __future__ import annotations

import pytest

from aptui.core.run_report import ContentFacts, together

IMAGE, SOUND = ContentFacts(width=8, height=4, format="rgb"), ContentFacts(width=2, rate=44100, seconds=1.5)


@pytest.mark.parametrize(
    ("products", "told"),
    [
        ([], None),
        ([None, None], None),
        ([None, IMAGE], IMAGE),
        ([IMAGE, None, SOUND], ContentFacts(width=8, height=4, format="rgb", rate=44100, seconds=1.5)),
    ],
)
def test_the_most_of_each_fact_is_told_and_nothing_where_nothing_is_said(
    products: list[ContentFacts | None], told: ContentFacts | None
) -> None:
    assert together(products) == told
