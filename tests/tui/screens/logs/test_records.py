"""Records of the lines of the Logs screen: of engine messages, and of a large log."""

from aptui.core.notices import EngineMessage
from aptui.tui.screens.logs.log_reader import LogRecords
from aptui.tui.widgets.log_sources import LogPaneLine, MemoryLines


def test_engine_message_becomes_record_with_level():
    records = LogRecords()
    records.add([EngineMessage(0, 1, "a link is not followed"), EngineMessage(0, 3, "no room")])

    assert records.knows(records.live)
    read, is_for_threads = records.reader(records.live)
    assert not is_for_threads
    assert [(record.level, record.window, record.text) for key in (0, 1) if (record := read(key))] == [
        (1, "aptui", "a link is not followed"),
        (3, "aptui", "no room"),
    ]
    assert records.record(records.live, 2) is None


def test_line_of_large_log_becomes_partial_record():
    records, large = LogRecords(), MemoryLines()
    large.add([LogPaneLine("12:00:00", "E", "Builder", "it failed"), LogPaneLine("12:00:01", "", "", "a line of nobody")])

    assert not records.knows(large)
    assert [(record.level, record.text) for key in (0, 1) if (record := records.record(large, key))] == [
        (3, "it failed"),
        (1, "a line of nobody"),
    ]
    assert records.record(large, None) is None
