"""Keys, replies and pastes are decoded correctly from any pieces."""

import codecs

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

from aptui.tui.terminal.driver import InputDecoder, as_meant, input_decoder
from aptui.tui.terminal.pixels import PixelQuestion


def messages_of(*chunks: bytes, waits: bool = True, is_asked: bool = False) -> list[Message]:
    """Return the messages that an app gets for chunks of input. With `waits`, Textual's timeout expires after each chunk."""
    parser, found, now_s = XTermParser(), list[Message](), 0.0
    decode = InputDecoder(codecs.getincrementaldecoder("utf-8")("replace"), lambda: is_asked, lambda: now_s).decode
    for chunk in chunks:
        if text := decode(chunk):
            found += parser.feed(text)
        if waits:
            now_s += 1.0
            with pytest.MonkeyPatch.context() as later:
                later.setattr("textual._parser.get_time", lambda: 1e12)
                found += parser.tick()
    return found


def keys_of(messages: list[Message]) -> list[str]:
    """Return the characters or names of the pressed keys. Messages other than `events.Key` are ignored."""
    keys = [message for message in messages if isinstance(message, events.Key)]
    return [each.character or each.key for key in keys for each in as_meant(key)]


def typed(*chunks: bytes, waits: bool = True) -> list[str]:
    """Return the pressed keys that an app gets for chunks of input."""
    return keys_of(messages_of(*chunks, waits=waits))


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b/bad\r", ["\x1b", "/", "b", "a", "d", "\r"]),
        (b"?\x1bx\x1b", ["?", "\x1b", "x", "\x1b"]),
        (b"\x1b2", ["\x1b", "2"]),
        (b"\x1b\r", ["\x1b", "\r"]),
        (b"\x1b\x1bq", ["\x1b", "\x1b", "q"]),
        (b"\x1b[A\x1bOBj", ["up", "down", "j"]),
        (b"\x1b:q", ["\x1b", ":", "q"]),
        (b"\x1b\x10x", ["\x1b", "ctrl+p", "x"]),
        (b"\x1b\x0c", ["\x1b", "ctrl+l"]),
    ],
)
def test_esc_and_a_key_in_one_read_are_two_keys(data: bytes, keys: list[str]) -> None:
    assert typed(data) == keys


@pytest.mark.parametrize("waits", [False, True])
def test_esc_and_a_key_in_two_reads_are_two_keys(waits: bool) -> None:
    assert typed(b"\x1b", b"/", b"a", waits=waits) == ["\x1b", "/", "a"]
    assert typed(b"s\x1b", b".", b"a", waits=waits) == ["s", "\x1b", ".", "a"]
    assert typed(b"\x1b", b"\x10a", waits=waits) == ["\x1b", "ctrl+p", "a"]


def test_pasted_text_is_unchanged() -> None:
    decode = input_decoder("utf-8")().decode

    assert decode(b"\x1b[200~\x1b/x") + decode(b"\x1b/\x1b[201~") == "\x1b[200~\x1b/x\x1b/\x1b[201~"
    assert decode(b"\x1b/") == "\x1b[47;3u"


ANSWER = b"\x1b[12;140R"


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("at", range(2, len(ANSWER)))
def test_reply_that_arrives_in_two_reads_is_not_a_key(at: int, waits: bool) -> None:
    messages = messages_of(b"j" + ANSWER[:at], ANSWER[at:] + b"k", waits=waits, is_asked=True)

    assert keys_of(messages) == ["j", "k"]
    assert [(each.x, each.y) for each in messages if isinstance(each, events.CursorPosition)] == [(139, 11)]


def test_reply_that_is_split_after_esc_gives_one_key() -> None:
    assert keys_of(messages_of(b"j\x1b", ANSWER[1:] + b"k", is_asked=True)) == ["j", "\x1b", "k"]
    assert keys_of(messages_of(b"j\x1b", ANSWER[1:4], ANSWER[4:] + b"k", is_asked=True)) == ["j", "\x1b", "k"]
    assert keys_of(messages_of(b"j\x1b", ANSWER[1:] + b"k", waits=False, is_asked=True)) == ["j", "k"]


@pytest.mark.parametrize("is_asked", [False, True])
def test_esc_and_typed_text_are_not_a_reply_of_the_terminal(is_asked: bool) -> None:
    assert keys_of(messages_of(b"\x1b", b"[", b"1", is_asked=is_asked)) == ["\x1b", "[", "1"]


@pytest.mark.parametrize("at", range(3, 11))
def test_mouse_report_that_arrives_in_two_reads_is_not_a_key(at: int) -> None:
    report = b"\x1b[<0;12;30M"

    messages = messages_of(report[:at], report[at:] + b"k")

    assert keys_of(messages) == ["k"]
    assert sum(isinstance(each, events.MouseEvent) for each in messages) == 1


@pytest.mark.parametrize("at", range(1, 6))
def test_paste_ends_if_its_end_sequence_arrives_in_two_reads(at: int) -> None:
    text, end = "x" * 100 + "[2/", b"\x1b[201~"

    messages = messages_of(b"\x1b[200~", text.encode(), end[:at], end[at:], b"\x1b/j")

    assert [each.text for each in messages if isinstance(each, events.Paste)] == [text]
    assert keys_of(messages) == ["\x1b", "/", "j"]


def test_incomplete_sequence_is_returned_at_the_end_of_input() -> None:
    decoder = input_decoder("utf-8")()

    assert decoder.decode(b"\x1b[1") == ""
    assert decoder.decode(b"", final=True) == "\x1b[1"


def test_terminal_replies_about_pixels_are_removed_from_input() -> None:
    question = PixelQuestion({"TERM": "xterm"})
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decode = InputDecoder(decoder, lambda: True, take_answers=question.take_answers).decode

    texts = [decode(each) for each in (b"\x1bj\x1b_Gi=31;O", b"K\x1b\\k\x1b[6;18;9t\x1b[200~x", b"y\x1b[201~", b"\x1b[?62;4c")]

    assert texts == ["\x1b[106;3u", "k\x1b[200~x", "y\x1b[201~", ""]
    assert question.is_answered
