"""The facts of a job combine the facts of its products."""

from __future__ import annotations

import pytest

from aptui.core.run_report import ContentFacts, together

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
