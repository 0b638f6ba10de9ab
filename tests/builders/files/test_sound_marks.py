"""Loop points and markers in every format, and their place in the product."""

import io
import json
import struct

import numpy as np
import pytest
import soundfile

from aptui.builders.audio_builder import AudioBuilder
from aptui.builders.files.sound_marks import read_marks

BUILDER = AudioBuilder
RATE = 8000
FRAMES = 4000


def encoded(kind="WAV", subtype="PCM_16", frames=FRAMES):
    stream = io.BytesIO()
    soundfile.write(stream, np.linspace(-0.5, 0.5, frames), RATE, subtype, format=kind)
    return stream.getvalue()


def chunk(kind, content, order="<"):
    return kind + struct.pack(f"{order}I", len(content)) + content + bytes(len(content) % 2)


def smpl(*loops, note=60, extra=b""):
    rows = b"".join(struct.pack("<6I", number, kind, first, last, 0, 0) for number, (kind, first, last) in enumerate(loops))
    return struct.pack("<9I", 0, 0, 125_000, note, 0, 0, 0, len(loops), len(extra)) + rows + extra


def cue(*places):
    rows = b"".join(struct.pack("<II4sIII", number, place, b"data", 0, 0, place) for number, place in enumerate(places, 1))
    return struct.pack("<I", len(places)) + rows


LABELS = b"adtl" + chunk(b"labl", b"\1\0\0\0verse\0") + chunk(b"ltxt", struct.pack("<II4sHHHH", 2, 800, b"rgn ", 0, 0, 0, 0))
INSTRUMENT = bytes((62, 0, 0, 0, 127, 1, 127))


def wav(*chunks, is_before=False):
    data = encoded()
    added = b"".join(chunks)
    data = data[:36] + added + data[36:] if is_before else data + added  # the first 36 bytes end with the format chunk
    return data[:4] + struct.pack("<I", len(data) - 8) + data[8:]


def chunks_of(products):
    """Return {name: content} of the chunks of the one product, and check its sizes."""
    ((_, data),) = products.items()
    assert data[:4] == b"RIFF"
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    found, at = {}, 12
    while at < len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        found[kind] = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    assert at == len(data)
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        assert len(sound.read()) == sound.frames
    return found


def loops_of(products):
    content = chunks_of(products)[b"smpl"]
    return [struct.unpack_from("<III", content, 36 + 24 * each + 4) for each in range(struct.unpack_from("<I", content, 28)[0])]


def cues_of(products):
    content = chunks_of(products)[b"cue "]
    return [struct.unpack_from("<I", content, 4 + 24 * each + 20)[0] for each in range(struct.unpack_from("<I", content)[0])]


@pytest.mark.parametrize("number", [-1, -(1 << 31)])
def test_negative_marker_of_an_aiff_is_moved_to_the_end_with_a_warning(bench, number):
    products = bench.build(bench.write("a.aiff", aiff(bytes(20), [(1, number & 0xFFFFFFFF, b"begin")])))

    assert cues_of(products) == [FRAMES]
    assert bench.warnings == [f"a.aiff: 1 marker behind the last of {FRAMES:,} samples: moved to the end"]


@pytest.mark.parametrize("is_before", [False, True])
@pytest.mark.parametrize("params", [{}, {"bits": 24}, {"channels": "stereo"}])
def test_loop_points_and_markers_of_a_wav_stay_unchanged(bench, is_before, params):
    parts = [chunk(b"smpl", smpl((0, 100, 2999), (1, 5, 9), extra=b"own")), chunk(b"cue ", cue(100, 3000))]
    parts += [chunk(b"LIST", LABELS), chunk(b"inst", INSTRUMENT)]

    made = chunks_of(bench.build(bench.write("a.wav", wav(*parts, is_before=is_before)), **params))

    assert made[b"smpl"] == smpl((0, 100, 2999), (1, 5, 9), extra=b"own")
    assert (made[b"cue "], made[b"LIST"], made[b"inst"]) == (cue(100, 3000), LABELS, INSTRUMENT)
    assert not bench.warnings


def test_loop_points_and_markers_are_moved_when_the_sample_rate_changes(bench):
    source = bench.write("a.wav", wav(chunk(b"smpl", smpl((0, 100, 1999))), chunk(b"cue ", cue(400)), chunk(b"LIST", LABELS)))

    products = bench.build(source, sample_rate=16000)

    assert loops_of(products) == [(0, 200, 3999)]
    assert cues_of(products) == [800]
    made = chunks_of(products)
    assert struct.unpack_from("<I", made[b"smpl"], 8)[0] == 62_500
    assert struct.pack("<II", 2, 1600) in made[b"LIST"]
    assert b"verse" in made[b"LIST"]


def test_loop_over_the_whole_sound_still_covers_it_after_resampling(bench):
    ((_, first, last),) = loops_of(
        bench.build(bench.write("a.wav", wav(chunk(b"smpl", smpl((0, 0, FRAMES - 1))))), sample_rate=11025)
    )

    assert first == 0
    assert abs(last + 1 - FRAMES * 11025 / RATE) <= 1


def aiff(instrument, markers):
    data = encoded("AIFF")
    body = struct.pack(">H", len(markers))
    for number, place, name in markers:
        body += struct.pack(">hIB", number, place, len(name)) + name + bytes((len(name) + 1) % 2)
    data += chunk(b"MARK", body, ">") + chunk(b"INST", instrument, ">")
    return data[:4] + struct.pack(">I", len(data) - 8) + data[8:]


MARKERS = [(1, 100, b"begin"), (2, 2000, b"end of it"), (3, 3000, b"")]


@pytest.mark.parametrize(("mode", "kind"), [(1, 0), (2, 1)])
def test_loops_and_markers_of_an_aiff_are_written_into_the_wav(bench, mode, kind):
    instrument = struct.pack(">BbBBBBh6h", 64, 0, 0, 127, 1, 127, -3, mode, 1, 2, 0, 0, 0)

    products = bench.build(bench.write("a.aiff", aiff(instrument, MARKERS)))

    assert loops_of(products) == [(kind, 100, 1999)]
    assert cues_of(products) == [100, 2000, 3000]
    made = chunks_of(products)
    assert b"begin\0" in made[b"LIST"]
    assert struct.unpack_from("<I", made[b"smpl"], 12)[0] == 64
    assert not bench.warnings


def test_aiff_without_a_loop_has_only_its_markers(bench):
    made = chunks_of(bench.build(bench.write("a.aiff", aiff(bytes(20), MARKERS))))

    assert b"smpl" not in made
    assert b"cue " in made


def with_comments(kind, *comments):
    """Return an Ogg or FLAC file with `comments`. They replace a long comment, so the size of the file does not change."""
    stream = io.BytesIO()
    text = b"".join(struct.pack("<I", len(each)) + each for each in comments)
    with soundfile.SoundFile(stream, "w", RATE, 1, format=kind) as sound:
        sound.comment = "x" * 150
        sound.write(np.linspace(-0.5, 0.5, FRAMES))
    data = stream.getvalue()
    at = data.lower().index(b"comment=" + b"x" * 150) - 4
    rest = 4 + 8 + 150 - len(text) - 4
    count = int.from_bytes(data[at - 4 : at], "little") + len(comments)
    return (
        data[: at - 4]
        + struct.pack("<I", count)
        + text
        + struct.pack("<I", rest)
        + b"PAD="
        + b"y" * (rest - 4)
        + data[at + 4 + 8 + 150 :]
    )


def test_flac_with_loop_tags_has_a_loop(bench):
    data = with_comments("FLAC", b"LOOPSTART=500", b"LOOPLENGTH=1000")

    assert loops_of(bench.build(bench.write("a.flac", data))) == [(0, 500, 1499)]


def test_ogg_with_loop_tags_has_a_loop():
    tags = b"".join(struct.pack("<I", len(each)) + each for each in (b"loopstart=500", b"LOOP_END=1500"))

    marks = read_marks(io.BytesIO(b"OggS" + bytes(60) + b"\3vorbis" + tags), RATE)

    assert struct.unpack_from("<III", marks.loops, 40) == (0, 500, 1499)


def id3(*texts):
    frames = b""
    for name, value, encoding, codec in texts:
        content = bytes([encoding]) + f"{name}\0{value}".encode(codec)
        frames += b"TXXX" + struct.pack(">I", len(content)) + b"\0\0" + content
    return b"ID3\3\0\0" + bytes((0, 0, len(frames) >> 7, len(frames) & 127)) + frames


@pytest.mark.parametrize(("encoding", "codec"), [(0, "latin-1"), (1, "utf-16"), (3, "utf-8")])
def test_loop_tags_of_an_mp3_set_the_first_and_last_sample(bench, encoding, codec):
    tags = id3(("LOOPSTART", "500", encoding, codec), ("LOOPLENGTH", "1000", encoding, codec))

    products = bench.build(bench.write("a.mp3", tags + encoded("MP3", "MPEG_LAYER_III")))

    assert loops_of(products) == [(0, 500, 1499)]


def test_vorbis_comment_ends_before_a_length_byte_that_looks_like_a_digit(bench):
    # The length of the second comment is 48, and the byte 48 is the character "0", which must not become a digit of LOOPSTART.
    data = with_comments("FLAC", b"LOOPSTART=5", b"A=" + b"z" * 46)

    ((_, first, last),) = loops_of(bench.build(bench.write("a.flac", data)))

    assert (first, last) == (5, FRAMES - 1)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ((b"LOOPSTART=0:05", b"LOOPLENGTH=1"), "are not numbers of samples"),
        ((b"LOOPSTART=100", b"LOOPEND=50"), "contradict each other"),
        ((b"LOOPSTART=-5",), "contradict each other"),
        ((b"LOOPSTART=99999",), "a loop begins at sample 99,999, but the sound has only 4,000 samples"),
    ],
)
def test_loop_tags_with_impossible_values_warn(bench, tags, words):
    bench.build(bench.write("a.flac", with_comments("FLAC", *tags)))

    (warning,) = bench.warnings
    assert words in warning


def test_loop_points_and_markers_of_a_flac_product_are_written_to_a_json_product(bench):
    labels = b"adtl" + chunk(b"labl", struct.pack("<I", 2) + b"chorus\0")
    source = bench.write("a.wav", wav(chunk(b"smpl", smpl((1, 1, 9))), chunk(b"cue ", cue(1, 2, 3)), chunk(b"LIST", labels)))

    marks = json.loads(bench.build(source, format="flac")["a.marks.json"])

    assert marks["loops"] == [{"start": 1, "end": 10, "kind": "alternating"}]
    assert [each.get("name") for each in marks["markers"]] == [None, "chorus", None]
    assert [(each.path, each.sub_id) for each in bench.products] == [("a.flac", 0), ("a.marks.json", 1)]
    assert bench.warnings == []


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        (b"smpl", smpl((0, 1, 9))[:40], "loop points (smpl)"),
        (b"smpl", b"", "loop points (smpl)"),
        (b"smpl", smpl()[:28] + b"\xff" * 8, "loop points (smpl)"),
        (b"cue ", b"\xff\xff\xff\xff", "markers (cue)"),
        (b"cue ", b"\1", "markers (cue)"),
    ],
)
def test_damaged_loops_or_markers_of_a_wav_are_dropped_with_a_warning(bench, kind, content, words):
    made = chunks_of(bench.build(bench.write("a.wav", wav(chunk(kind, content)))))

    assert kind not in made
    assert bench.warnings == [f"a.wav: the {words} are damaged and are left out"]


def test_damaged_markers_of_an_aiff_cause_a_warning(bench):
    instrument = struct.pack(">BbBBBBh6h", 64, 0, 0, 127, 1, 127, 0, 1, 7, 8, 0, 0, 0)

    bench.build(bench.write("a.aiff", aiff(instrument, MARKERS)))

    assert bench.warnings == ["a.aiff: the loop points or markers (INST, MARK) are damaged and are left out"]


def test_wav_without_loops_or_markers_has_only_format_and_sample_chunks(bench):
    assert set(chunks_of(bench.build(bench.write("a.wav", encoded())))) == {b"fmt ", b"data"}


def test_randomly_damaged_chunk_of_loops_or_markers_does_not_fail_the_build(bench):
    import random

    chance = random.Random(2)
    for _ in range(60):
        kind = chance.choice((b"smpl", b"cue ", b"LIST", b"inst"))
        content = chance.choice((smpl((0, 1, 9)), cue(1), LABELS, INSTRUMENT))
        bad = bytearray(content)
        bad[chance.randrange(len(bad))] = chance.randrange(256)
        chunks_of(bench.build(bench.write("a.wav", wav(chunk(kind, bytes(bad)))), sample_rate=chance.choice((RATE, 11025))))
