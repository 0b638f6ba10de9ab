"""The reference pages list exactly the keys, fields and addresses of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.cli import main, manual
from aptui.features.gateway import documents
from aptui.store.jobs.filter import FIELDS

ROOT = Path(main.__file__).parents[1]


@pytest.mark.parametrize(("topic", "page"), [(topic, page.file) for topic, page in manual.pages().items()])
def test_shipped_reference_page_is_up_to_date(topic: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", topic, "--markdown"]) == 0

    said = capsys.readouterr().out
    assert (ROOT / page).read_text(encoding="utf-8") == said, f"aptui docs {topic} --markdown > aptui/{page}"


def test_every_key_is_explained() -> None:
    unexplained = [path for path, part in manual.schema_keys() if not part.get("description") and not part.get("title")]

    assert unexplained == []


def test_every_field_of_the_filter_is_explained() -> None:
    assert tuple(manual.FIELD_TEXTS) == FIELDS


def test_every_address_of_the_gateway_is_listed() -> None:
    page = manual.reference_markdown("http")

    assert all(f" {address.path}` |" in page for address in documents.addresses())


def test_a_topic_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", "keys"]) == 0

    said = capsys.readouterr().out
    assert "serve.rejected" in said
    assert "`" not in said
