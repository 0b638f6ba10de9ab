"""The entries of a list are replaced, and nothing else in the file changes."""

import pytest

from aptui.config.edit import with_entries
from aptui.config.yaml.nodes import read_yaml
from aptui.shared.errors import UserError

BLOCK = """\
# who may come in
serve:
  enabled: true
  rejected:   # never these
    - 1.2.3.4   # the printer
    # the office
    - 10.0.0.0/8
  port: 1
"""
FLOW = "serve: {rejected: [1.2.3.4, 10.0.0.0/8], port: 1}  # end\n"
LINES = "serve:\n  rejected: [\n    1.2.3.4,  # the printer\n    10.0.0.0/8,  # the office\n  ]\n"
DIALS = """\
serve:
  connections:
    - {id: phone, address: 1.2.3.4, port: 5}   # Anna's
    - id: tablet   # on the wall
      address: 1.2.3.5
      port: 6
"""
PHONE = {"id": "phone", "address": "1.2.3.4", "port": 5}
TABLET = {"id": "tablet", "address": "1.2.3.5", "port": 6}


@pytest.mark.parametrize(
    ("text", "entries", "after"),
    [
        (BLOCK, ["1.2.3.4", "10.0.0.0/8"], BLOCK),
        (BLOCK, ["10.0.0.0/8"], BLOCK.replace("    - 1.2.3.4   # the printer\n", "")),
        (BLOCK, ["1.2.3.4"], BLOCK.replace("    - 10.0.0.0/8\n", "")),
        (BLOCK, ["1.2.3.4", "10.0.0.0/8", "::1"], BLOCK.replace("10.0.0.0/8\n", '10.0.0.0/8\n    - "::1"\n')),
        (BLOCK, ["1.2.3.4", "10.0.0.0/9"], BLOCK.replace("10.0.0.0/8\n", '"10.0.0.0/9"\n')),
        (
            BLOCK, [],
            BLOCK.replace("rejected:", "rejected: []").replace("    - 1.2.3.4   # the printer\n    # the", "    # the")
            .replace("    - 10.0.0.0/8\n", ""),
        ),
        (FLOW, ["10.0.0.0/8"], FLOW.replace("1.2.3.4, ", "")),
        (FLOW, ["1.2.3.4"], FLOW.replace(", 10.0.0.0/8", "")),
        (FLOW, [], FLOW.replace("1.2.3.4, 10.0.0.0/8", "")),
        (FLOW, ["1.2.3.4", "10.0.0.0/8", "a.b"], FLOW.replace("0.0/8", "0.0/8, a.b")),
        (LINES, ["10.0.0.0/8"], LINES.replace("1.2.3.4,  ", "")),
        (LINES, ["1.2.3.4"], LINES.replace("10.0.0.0/8,  ", "")),
        (DIALS, [TABLET], DIALS.replace("    - {id: phone, address: 1.2.3.4, port: 5}   # Anna's\n", "")),
        (DIALS, [PHONE, {**TABLET, "port": 7}], DIALS.replace("port: 6", "port: 7")),
        (DIALS, [{**PHONE, "auto": False}, TABLET], DIALS.replace("port: 5}", "port: 5, auto: false}")),
        (DIALS, [PHONE, {**TABLET, "auto": False}], DIALS.replace("port: 6\n", "port: 6\n      auto: false\n")),
        (DIALS, [PHONE, {**TABLET, "id": "wall"}], DIALS.replace("id: tablet", "id: wall")),
        ("serve: {port: 1}\n", ["ab"], "serve: {port: 1, rejected: [ab]}\n"),
        ("serve:\n  port: 1\n", ["ab"], "serve:\n  port: 1\n  rejected: [ab]\n"),
        ("workers: 1\n", ["ab"], "workers: 1\nserve:\n  rejected: [ab]\n"),
    ],
)  # fmt: skip
def test_edit_of_a_list_changes_only_entries_that_differ(text, entries, after):
    key = "serve.connections" if text is DIALS else "serve.rejected"

    changed = with_entries(text, "x", key, entries)

    assert changed == after
    assert read_yaml(changed.encode(), "x").plain()["serve"][key.partition(".")[2]] == entries


def test_list_with_reordered_entries_is_written_as_a_whole():
    assert read_yaml(with_entries(FLOW, "x", "serve.rejected", ["10.0.0.0/8", "1.2.3.4"]).encode(), "x").plain() == {
        "serve": {"rejected": ["10.0.0.0/8", "1.2.3.4"], "port": 1}
    }


def test_value_that_is_not_a_list_is_refused():
    with pytest.raises(UserError, match="change the key by hand"):
        with_entries("serve: 3\n", "x", "serve.rejected", ["a"])
