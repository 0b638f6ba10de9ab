"""The facts of a job are the combined facts of its products."""

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
def test_maximum_of_each_fact_is_returned_and_none_without_facts(
    products: list[ContentFacts | None], told: ContentFacts | None
) -> None:
    assert together(products) == told
