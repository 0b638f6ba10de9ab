"""Facts that a builder gives with a product, checked: known names, numbers that a database can hold.

Tests: `tests/worker/test_facts.py`.
"""

from __future__ import annotations

from typing import Any

from aptui.core.results.facts import FACTS, ContentFacts, fault_of
from aptui.sdk import JobProduct
from aptui.worker.answers import AnswerRefused


def facts_of(product: JobProduct) -> ContentFacts | None:
    """Return what the builder says of its product, None when it says nothing.

    Raises:
        Refused: a fact that there is none, or a value that it cannot have; the text names product and fact.
    """
    if not product.facts:
        return None
    if not isinstance(product.facts, dict):
        raise AnswerRefused(f"product {product.path!r} has a {type(product.facts).__name__} as its facts, not a dict")
    for name, value in product.facts.items():
        if name not in FACTS:
            raise AnswerRefused(f"product {product.path!r} has the fact {name!r}, known are {', '.join(FACTS)}")
        if problem := fault_of(name, value):
            raise AnswerRefused(f"product {product.path!r}: its {name} is {value!r}, which is {problem}")
    given_facts: dict[str, Any] = {name: float(value) if name == "seconds" else value for name, value in product.facts.items()}
    return ContentFacts(**given_facts)
