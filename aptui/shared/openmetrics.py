"""Writes metrics in the text format of OpenMetrics 1.0. The callers choose the metrics.

Tests: `tests/features/insight/test_figures.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Sample(Struct, frozen=True):
    """One line of a metric family; the name in the line is the family's name followed by `suffix`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


class Family(Struct, frozen=True):
    """A metric family: all samples of one metric. `kind` is its type: gauge, counter, gaugehistogram or stateset."""

    name: str
    kind: str
    help_text: str
    samples: Sequence[Sample]


def gauge(name: str, help_text: str, value: float, **labels: str) -> Family:
    """Return a metric family of type gauge that has one sample."""
    return Family(name, "gauge", help_text, (Sample(value, labels),))


def text(families: Iterable[Family]) -> str:
    """Return metric families in the text format of OpenMetrics, with `# EOF` at the end."""
    return "".join(f"{line}\n" for family in families for line in _lines(family)) + "# EOF\n"


def _lines(family: Family) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    yield f"# HELP {family.name} {_escape(family.help_text)}"
    for sample in family.samples:
        labels = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels.items())
        yield f"{family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}"


def _escape(value: str) -> str:
    """Return an escaped text; UTF-8 cannot encode a lone surrogate."""
    whole = value.encode("utf-8", "replace").decode()
    return whole.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
