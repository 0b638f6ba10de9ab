"""Facts that a builder reports about its products: checked, and passed to the engine."""

from __future__ import annotations

import math

import pytest
from run_harness import made, write

from aptui.core.orders import Outcome
from aptui.core.run_report import ContentFacts, fault_of_others
from aptui.sdk import JobProduct
from aptui.worker.wire import FrameKind, decode, encode


def run(harness, facts):
    def process_job(request):
        write(request.product_path("a.out"))
        return made(JobProduct("a.out", 3, facts=facts))

    return harness.process(process_job, None)


def test_facts_of_a_product_are_sent_to_the_engine(harness):
    result = run(harness, {"width": 4096, "seconds": 2, "format": "png"})

    (product,) = decode(FrameKind.RAN, encode(FrameKind.RAN, result)[5:]).products
    assert product.facts == ContentFacts(width=4096, seconds=2.0, format="png")


def test_facts_may_have_any_name_and_a_number_or_a_text_as_value(harness):
    facts = {"width": 8, "offset": -1.5, "bones": 12, "rig": "Humanoid ä"}

    (product,) = decode(FrameKind.RAN, encode(FrameKind.RAN, run(harness, facts))[5:]).products

    assert product.facts.all == facts
    assert fault_of_others(product.facts.more) == ""


def test_product_without_facts_has_no_facts_record(harness):
    assert [product.facts for product in run(harness, {}).products] == [None]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"Bones": 1}, "its Bones is 1, which is a fact whose name has other characters than lower-case letters, digits and _"),
        ({"bones": True}, "its bones is True, which is not a number or a text"),
        ({"bones": [1]}, "its bones is [1], which is not a number or a text"),
        ({"bones": math.inf}, "its bones is inf, which is not a number from -2"),
        ({"note": "x" * 257}, "which is not a text of at most 256 characters"),
        ({f"n{at}": at for at in range(65)}, "has 65 facts, more than 64"),
        ({"width": -1}, "its width is -1, which is not a whole number"),
        ({"width": 1.5}, "its width is 1.5, which is not a whole number"),
        ({"width": True}, "its width is True, which is not a number"),
        ({"width": 1 << 53}, "which is not a whole number from 0 to"),
        ({"seconds": math.nan}, "its seconds is nan, which is not a number from 0 to"),
        ({"seconds": "long"}, "its seconds is 'long', which is not a number"),
        ({"format": "PNG"}, "its format is 'PNG', which is not a lower-case word"),
        ({"format": "x" * 33}, "of at most 32 characters"),
        (["width"], "has a list as its facts, not a dict"),
    ],
)
def test_job_fails_and_names_the_invalid_fact(harness, facts, message):
    result = run(harness, facts)

    assert result.outcome == Outcome.FAILED
    assert "product 'a.out'" in result.error
    assert message in result.error
