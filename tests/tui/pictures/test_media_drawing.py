"""The process that decodes hostile files also draws sounds and fonts; a damaged file is reported in one sentence."""

from __future__ import annotations

import struct
import threading
import wave
from pathlib import Path

import pytest

from aptui.demo.demo_project import EXTRAS
from aptui.tui.pictures import decoder
from aptui.tui.pictures.decoder import CHANNELS, MOST_HIGH, MOST_WIDE, PictureView, Pixels
from aptui.tui.pictures.decoding import Facts, decode, image_facts

LOUD = 400
"""Number of silent frames at the start of the test sound, and of frames at full scale at its end."""


def sound(path: Path, size: int = 2, channels: int = 1) -> Path:
    """Write a WAV file of one second: its first half is silent, its second half is at full scale."""
    value = {1: b"\xff", 2: struct.pack("<h", 32_767), 3: b"\xff\xff\x7f", 4: struct.pack("<i", 2**31 - 1)}[size]
    silence = b"\x80" if size == 1 else bytes(size)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(size)
        file.setframerate(800)
        file.writeframes(silence * channels * LOUD + value * channels * LOUD)
    return path


def columns(picture: Pixels) -> list[set[bytes]]:
    """Return the colours of each column."""
    rows = [picture.data[at : at + picture.width * CHANNELS] for at in range(0, len(picture.data), picture.width * CHANNELS)]
    return [{row[at * CHANNELS : (at + 1) * CHANNELS] for row in rows} for at in range(picture.width)]


@pytest.mark.real
@pytest.mark.parametrize("channels", [1, 2])
def test_waveform_is_low_in_silence_and_red_at_full_scale(tmp_path: Path, channels: int) -> None:
    picture = decode(str(sound(tmp_path / "a.wav", channels=channels)), PictureView("WAV"), threading.Event())

    assert isinstance(picture, Pixels), picture
    assert (picture.width, picture.height) == (MOST_WIDE, 80 * channels)
    found = columns(picture)
    assert bytes(decoder._LOUD) not in set().union(*found[: MOST_WIDE // 2 - 1])
    assert all(bytes(decoder._LOUD) in each for each in found[MOST_WIDE // 2 + 1 :])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_samples_of_wav_are_read_without_soundfile(tmp_path: Path, size: int) -> None:
    with sound(tmp_path / "a.wav", size, channels=2).open("rb") as stream:
        frames, channels, read = decoder._open_wave(stream)
        silent, loud = read(0, 2), read(frames - 2, 2)

    assert (frames, channels) == (2 * LOUD, 2)
    assert (list(silent), min(loud) > 32_000, len(loud)) == ([0, 0, 0, 0], True, 4)


@pytest.mark.real
def test_glyphs_of_a_font_are_drawn(tmp_path: Path) -> None:
    font = next(extra for extra in EXTRAS if extra.name == "font").files["fonts/lantern.ttf"]
    (tmp_path / "a.ttf").write_bytes(font())  # type: ignore[operator]

    picture = decode(str(tmp_path / "a.ttf"), PictureView("TrueType"), threading.Event())

    assert isinstance(picture, Pixels), picture
    assert picture.height == MOST_HIGH
    inked = sum(len(each) > 1 for each in columns(picture))
    assert inked > picture.width // 2


@pytest.mark.real
@pytest.mark.parametrize(("form", "head"), [("WAV", b"RIFF\0\0\0\0WAVEfmt "), ("TrueType", b"\0\1\0\0")])
def test_damaged_file_is_reported(tmp_path: Path, form: str, head: bytes) -> None:
    (tmp_path / "a").write_bytes(head + bytes(100))

    why = decode(str(tmp_path / "a"), PictureView(form), threading.Event())

    assert isinstance(why, str)
    assert why.startswith(("the file cannot be decoded", "the file ends too early"))


def test_sound_header_contains_channels_sample_rate_and_duration(tmp_path: Path) -> None:
    head = sound(tmp_path / "a.wav", channels=2).read_bytes()[:100]

    assert image_facts(head, "a.wav") == Facts("WAV", 0, 0, "2 channels, 800 Hz, 16 bits, 1.0 s")
