import io
import json
import random
import re
import struct

import numpy as np
import pytest
import soundfile

from aptui.builders import audio_builder
from aptui.builders.audio_builder import AUDIO_ASSET_TYPE, SERIAL, AudioBuilder, checksum
from aptui.builders.files.loudness import SoundMeter
from aptui.sdk import Result

BUILDER = AudioBuilder
RATE = 44100


def sine(frames=RATE // 2, level=0.8, channels=1, hertz=440.0):
    wave = level * np.sin(2 * np.pi * hertz * np.arange(frames) / RATE)
    return np.stack([wave * (1 - 0.5 * channel) for channel in range(channels)], axis=1)


def encoded(samples, kind="WAV", subtype="PCM_16", rate=RATE):
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, subtype, format=kind)
    return stream.getvalue()


def opened(products):
    ((_, data),) = products.items()
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        return file.format, file.subtype, file.samplerate, file.read(dtype="float64", always_2d=True)


@pytest.mark.parametrize(("requested", "bits"), [("wav", 16), ("wav", 24), ("flac", 16), ("flac", 24)])
def test_samples_stay_exact_if_the_product_has_at_least_their_bit_depth(bench, requested, bits):
    every = np.arange(-32768, 32768, dtype=np.int16)
    source = bench.write("snd/a.b.wav", encoded(every))

    response = bench.process(source, format=requested, bits=bits)

    assert [(each.path, each.sub_id, each.asset_type) for each in response.products] == [(f"a.b.{requested}", 0, AUDIO_ASSET_TYPE)]
    kind, subtype, rate, samples = opened({"": (bench.products_dir / f"a.b.{requested}").read_bytes()})
    assert (kind, subtype, rate) == (requested.upper(), f"PCM_{bits}", RATE)
    assert (samples[:, 0] * 32768 == every).all()


def test_samples_of_24_bits_stay_exact_unless_the_product_has_16_bits(bench):
    values = np.array([-(1 << 23), -129, -127, 0, 127, 129, 383, 385, (1 << 23) - 1], dtype=np.int32)
    source = bench.write("a.wav", encoded(values << 8, subtype="PCM_24"))

    *_, exact = opened(bench.build(source, bits=24))
    *_, rounded = opened(bench.build(source, bits=16))

    assert (exact[:, 0] * (1 << 23)).tolist() == values.tolist()
    assert (rounded[:, 0] * 32768).tolist() == [-32768, -1, 0, 0, 0, 1, 1, 2, 32767]
    assert not bench.warnings


@pytest.mark.parametrize(
    ("kind", "subtype", "source"),
    [
        ("WAV", "FLOAT", "a.wav"),
        ("WAV", "PCM_U8", "a.wav"),
        ("FLAC", "PCM_24", "a.flac"),
        ("OGG", "VORBIS", "a.ogg"),
        ("MP3", "MPEG_LAYER_III", "a.mp3"),
        ("AIFF", "PCM_16", "a.aiff"),
    ],
)
def test_sound_of_every_source_format_is_read(bench, kind, subtype, source):
    kind_made, _, rate, samples = opened(bench.build(bench.write(source, encoded(sine(), kind, subtype)), format="flac"))

    assert (kind_made, rate) == ("FLAC", RATE)
    assert abs(np.abs(samples).max() - 0.8) < 0.05
    assert not bench.warnings


@pytest.mark.parametrize(
    ("present", "requested", "count"), [(1, "stereo", 2), (2, "mono", 1), (6, "mono", 1), (6, "keep", 6), (2, "stereo", 2)]
)
def test_channels_parameter_sets_the_number_of_channels(bench, present, requested, count):
    *_, samples = opened(bench.build(bench.write("a.wav", encoded(sine(channels=present, level=0.2))), channels=requested))

    assert samples.shape == (RATE // 2, count)


def test_mono_is_the_mean_of_the_channels_and_stereo_repeats_one_channel(bench):
    *_, mono = opened(bench.build(bench.write("a.wav", encoded(np.full((9, 2), [0.5, 0.25]))), channels="mono"))
    *_, stereo = opened(bench.build(bench.write("b.wav", encoded(np.full((9, 1), 0.5))), channels="stereo"))

    assert mono[:, 0].tolist() == [0.375] * 9
    assert stereo.tolist() == [[0.5, 0.5]] * 9


def test_sound_with_six_channels_cannot_become_stereo(bench):
    source = bench.write("a.wav", encoded(sine(channels=6)))

    assert bench.fail(source, channels="stereo").startswith("a.wav: 6 channels cannot become stereo")


def test_flac_product_of_more_than_eight_channels_is_refused(bench):
    source = bench.write("a.wav", encoded(np.zeros((9, 9)), "WAV"))

    assert (
        bench.fail(source, format="flac")
        == "a.wav: flac supports 8 channels, but the sound has 9; set format: wav, or channels: mono"
    )


@pytest.mark.parametrize("rate", [8000, 11025, 48000, 96000])
@pytest.mark.parametrize("channels", [1, 2])
def test_resampling_keeps_length_pitch_and_level(bench, rate, channels):
    source = bench.write("a.wav", encoded(sine(RATE, channels=channels)))

    _, _, made_rate, samples = opened(bench.build(source, sample_rate=rate))

    assert made_rate == rate
    assert abs(len(samples) - rate) <= 1
    spectrum = np.abs(np.fft.rfft(samples[:, 0]))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert abs(np.abs(samples[rate // 4 : rate // 2, 0]).max() - 0.8) < 0.01


def test_block_size_does_not_change_a_conversion_without_resampling(bench, monkeypatch):
    source = bench.write("a.wav", encoded(sine()))
    whole = bench.build(source, channels="stereo")

    monkeypatch.setattr(audio_builder, "BLOCK_FRAMES", 1000)

    assert bench.build(source, channels="stereo") == whole


PARAMS = [
    {"format": "wav"},
    {"format": "flac", "bits": 24},
    {"format": "flac", "channels": "mono", "sample_rate": 11025},
    {"format": "wav", "sample_rate": 48000, "bits": 24},
]


@pytest.mark.real
@pytest.mark.parametrize("params", PARAMS)
def test_equal_sources_give_equal_bytes_across_processes(bench, made_elsewhere, digests_of, params):
    source = bench.write("a.ogg", encoded(sine(channels=2), "OGG", "VORBIS"))

    first = bench.build(source, **params)

    assert bench.build(source, **params) == first
    assert made_elsewhere(bench, source, **params) == digests_of(first)


def test_error_for_an_unknown_format_lists_the_known_formats(bench):
    error = bench.analyse("a.x", {"format": "ogg"}).error

    assert error == "builder 'mine' (audio): parameter 'format' must be one of adpcm, flac, mp3, opus, vorbis, wav, not 'ogg'"


@pytest.mark.parametrize(
    ("form", "name", "kind", "subtype", "rate"),
    [
        ("vorbis", "a.ogg", "OGG", "VORBIS", 44100), ("opus", "a.opus", "OGG", "OPUS", 48000),
        ("mp3", "a.mp3", "MP3", "MPEG_LAYER_III", 44100), ("adpcm", "a.wav", "WAV", "IMA_ADPCM", 44100),
    ],
)  # fmt: skip
def test_lossy_formats_keep_pitch_and_level(bench, form, name, kind, subtype, rate):
    source = bench.write("a.flac", encoded(sine(channels=2), "FLAC"))

    products = bench.build(source, format=form)

    assert list(products) == [name]
    assert opened(products)[:3] == (kind, subtype, rate)
    samples = opened(products)[3]
    spectrum = np.abs(np.fft.rfft(samples[2000 : rate // 3, 0]))
    assert abs(spectrum.argmax() * rate / len(samples[2000 : rate // 3]) - 440) < 5
    assert 0.7 < np.abs(samples[:, 0]).max() < 1
    assert bench.build(source, format=form) == products


@pytest.mark.parametrize("channels", [1, 2])
def test_stored_length_of_an_adpcm_excludes_the_silence_in_its_last_block(bench, channels):
    data = bench.build(bench.write("a.flac", encoded(sine(channels=channels), "FLAC")), format="adpcm")["a.wav"]

    at = data.index(b"fact") + 8
    assert int.from_bytes(data[at : at + 4], "little") == len(sine(channels=channels))


@pytest.mark.parametrize(("quality", "kilobits"), [(1, 26), (30, 35), (60, 63), (100, 130)])
@pytest.mark.parametrize("channels", [1, 2])
def test_opus_and_vorbis_have_similar_bit_rates_for_music_at_equal_quality(bench, quality, kilobits, channels):
    """The expected rates (kbit/s for each channel) are close to the rates of Vorbis for music."""
    times = np.arange(4 * RATE) / RATE
    music = 0.2 * sum(np.sin(2 * np.pi * 110 * number * times + number) / number for number in range(1, 40))
    noise = np.random.default_rng(3).normal(0, 0.02, (len(times), channels))
    source = bench.write("music.wav", encoded(music[:, None] + noise))

    (data,) = bench.build(source, format="opus", quality=quality).values()

    assert 0.6 < len(data) * 8 / 4000 / channels / kilobits < 1.5


@pytest.mark.parametrize("form", ["vorbis", "opus", "mp3"])
def test_higher_quality_gives_more_bytes(bench, form):
    noise = np.random.default_rng(1).normal(0, 0.1, (RATE, 1))
    source = bench.write("a.wav", encoded(noise))

    (low,), (high,) = (bench.build(source, format=form, quality=quality).values() for quality in (20, 90))

    assert len(low) < len(high)


def test_ogg_pages_have_one_serial_number_and_correct_checksums(bench):
    (data,) = bench.build(bench.write("a.wav", encoded(sine())), format="vorbis").values()

    at, serials = 0, set()
    while at < len(data):
        size = 27 + data[at + 26] + sum(data[at + 27 : at + 27 + data[at + 26]])
        page = bytearray(data[at : at + size])
        serials.add(struct.unpack_from("<I", page, 14)[0])
        found = struct.unpack_from("<I", page, 22)[0]
        page[22:26] = bytes(4)
        assert checksum(page) == found
        at += size
    assert serials == {SERIAL}


@pytest.mark.parametrize(
    ("params", "channels", "message"),
    [
        (
            {"format": "opus", "sample_rate": 44100},
            1,
            "opus does not support a sample rate of 44100 Hz; set sample_rate to one of 8000, 12000, 16000, 24000, 48000",
        ),
        (
            {"format": "vorbis", "sample_rate": 384000},
            1,
            "vorbis does not support a sample rate of 384000 Hz; set sample_rate to at most 192000",
        ),
        ({"format": "mp3"}, 3, "mp3 supports 2 channels, but the sound has 3; set format: wav, or channels: mono"),
    ],
)
def test_sound_is_refused_if_the_product_format_cannot_store_it(bench, params, channels, message):
    source = bench.write("a.wav", encoded(sine(channels=channels)))

    assert bench.fail(source, **params) == f"a.wav: {message}"


@pytest.mark.parametrize("params", [{}, {"format": "vorbis"}])
def test_product_that_cannot_be_written_is_not_reported_as_a_damaged_source(bench, monkeypatch, params):
    source = bench.write("a.wav", encoded(sine()))
    monkeypatch.setattr(soundfile.SoundFile, "write", lambda *_: soundfile.SoundFile("/no/folder/a.wav", "w", RATE, 1))

    error = bench.fail(source, **params)

    assert error == "cannot write the product: System error; check the free space on the disk of the cache"


def test_product_whose_name_is_too_long_fails_with_this_reason(bench):
    error = bench.fail(bench.write(f"{'s' * 251}.wav", encoded(sine())), format="opus")

    assert error.startswith("the name of the product is too long: 256 bytes, but at most 255 are allowed: 'sss")


def test_audio_parameters_may_differ_by_platform(bench):
    response = bench.analyse("a.x", {"format": "flac"}, {"server": {"format": "wav", "sample_rate": 11025}})

    assert response.result is Result.SUCCESS
    assert all("soundfile" in job.additional_fingerprint and "soxr" in job.additional_fingerprint for job in response.jobs)


def test_clipping_caused_by_resampling_warns(bench):
    square = np.sign(sine(level=1.0)) * 0.999
    bench.build(bench.write("a.wav", encoded(square)), sample_rate=22050)

    (warning,) = bench.warnings
    assert warning.startswith("a.wav: ")
    assert "samples; the highest is 1." in warning
    assert warning.endswith("of full scale, after resampling")


def test_a_float_source_that_is_too_loud_is_clipped_and_warns(bench):
    *_, samples = opened(bench.build(bench.write("a.wav", encoded(np.array([0.5, 2.0, -3.0, 1.0]), subtype="FLOAT"))))

    assert (samples[:, 0] * 32768).tolist() == [16384, 32767, -32768, 32767]
    assert bench.warnings == ["a.wav: clipped 2 samples; the highest is 3.000 of full scale"]


def test_overshoot_of_a_lossy_decoder_is_logged_without_a_warning(bench):
    noise = np.clip(np.random.default_rng(1).normal(0, 0.8, 20000), -1, 1)
    bench.build(bench.write("a.ogg", encoded(noise, "OGG", "VORBIS")))

    assert not bench.warnings
    assert any("a.ogg: clipped " in text for severity, text in bench.lines if severity == 1)


def test_nan_sample_becomes_silence_and_infinite_sample_becomes_full_scale(bench):
    *_, samples = opened(bench.build(bench.write("a.wav", encoded(np.array([np.nan, np.inf, -np.inf]), subtype="FLOAT"))))

    assert (samples[:, 0] * 32768).tolist() == [0, 32767, -32768]


def test_a_source_without_samples_fails(bench):
    assert bench.fail(bench.write("a.wav", encoded(np.zeros(0)))) == "a.wav: the sound has no samples"


SUPPORTED = "the supported formats are WAV, FLAC, Ogg (Vorbis, Opus), MP3 and AIFF"
UNREADABLE = "the header or the samples cannot be read; save the sound again, or get the original file"
DAMAGED = [
    ("empty", "a.wav", b"", "the file is empty"),
    ("text", "a.wav", b"hello" * 100, f"the file is a text file; {SUPPORTED}"),
    ("unknown", "a.wav", b"\x07\x01" * 100, f"the file is not a sound in a supported format; {SUPPORTED}"),
    ("m4a", "a.mp3", b"\0\0\0\x1cftypM4A \0\0\0\0", f"the file is an M4A sound (AAC); {SUPPORTED}"),
    ("picture", "a.ogg", b"\x89PNG\r\n\x1a\n" + bytes(99), f"the file is a PNG picture; {SUPPORTED}"),
    ("midi", "a.wav", b"MThd\0\0\0\6" + bytes(99), f"the file is a MIDI file; {SUPPORTED}"),
    ("half flac", "a.flac", encoded(sine(), "FLAC")[:5000], f"damaged FLAC sound: {UNREADABLE}"),
    (
        "flac bits",
        "a.flac",
        encoded(sine(), "FLAC")[:5000] + b"\xff" * 2000 + encoded(sine(), "FLAC")[7000:],
        f"damaged FLAC sound: {UNREADABLE}",
    ),
    ("half ogg", "a.ogg", encoded(sine(), "OGG", "VORBIS")[:3000], f"damaged Ogg file: {UNREADABLE}"),
    ("header of ogg", "a.ogg", encoded(sine(), "OGG", "VORBIS")[:40], f"damaged Ogg file: {UNREADABLE}"),
    ("header of flac", "a.flac", encoded(sine(), "FLAC")[:20], f"damaged FLAC sound: {UNREADABLE}"),
    ("header only", "a.wav", encoded(sine())[:20], "damaged WAV sound: the description of the samples is missing (chunk fmt)"),
    ("header of mp3", "a.mp3", b"ID3\4\0\0\0\0\0\0" + bytes(99), f"damaged MP3 sound: {UNREADABLE}"),
    ("header of aiff", "a.aiff", encoded(sine(), "AIFF")[:30], f"damaged AIFF sound: {UNREADABLE}"),
]


@pytest.mark.parametrize(("source", "data", "reason"), [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED])
def test_damaged_sound_fails_with_a_plain_reason(bench, source, data, reason):
    assert bench.fail(bench.write(source, data)) == f"{source}: {reason}"


def wav_header(encoding=1, channels=1, rate=8000, bits=16):
    width = channels * bits // 8 % 65536
    return struct.pack("<HHIIHH", encoding, channels, rate, rate * width % (1 << 32), width, bits)


def wav(*chunks, is_padded=True):
    body = b""
    for kind, content in chunks:
        body += kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2 if is_padded else 0)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


SAMPLES = np.arange(1000, dtype="<i2").tobytes()
IMPOSSIBLE = [
    (
        wav((b"fmt ", wav_header(rate=0)), (b"data", SAMPLES)),
        "damaged WAV sound: the header gives a sample rate of 0 Hz",
    ),
    (wav((b"fmt ", wav_header(channels=0)), (b"data", SAMPLES)), "damaged WAV sound: the header gives 0 channels"),
    (
        wav((b"fmt ", wav_header(channels=65535)), (b"data", SAMPLES)),
        "unsupported WAV sound: the header gives 65535 channels, but at most 1024 are supported",
    ),
    (
        wav((b"fmt ", wav_header(0x161)), (b"data", SAMPLES)),
        "unsupported WAV sound: the samples are encoded as WMA; save the sound as PCM",
    ),
    (
        wav((b"fmt ", wav_header(77)), (b"data", SAMPLES)),
        "unsupported WAV sound: the samples are encoded as number 77; save the sound as PCM",
    ),
    (wav((b"fmt ", wav_header())), "damaged WAV sound: the file has no samples (chunk data)"),
    (wav((b"data", SAMPLES)), "damaged WAV sound: the description of the samples is missing (chunk fmt)"),
    (wav((b"fmt ", wav_header(channels=1024)), (b"data", SAMPLES)), "the sound has no samples"),
]


@pytest.mark.parametrize(("data", "reason"), IMPOSSIBLE)
def test_wav_with_impossible_header_fails_with_the_reason(bench, data, reason):
    assert bench.fail(bench.write("a.wav", data)) == f"a.wav: {reason}"


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "AIFF", "CAF", "AU"])
def test_randomly_damaged_file_is_read_or_fails_in_plain_words(bench, kind):
    stream = io.BytesIO()
    soundfile.write(stream, sine(3000), RATE, format=kind)
    data = stream.getvalue()
    chance = random.Random(kind)
    for _ in range(60):
        bad = bytearray(data)
        for _ in range(chance.choice((1, 3, 20))):
            bad[chance.randrange(min(len(bad), chance.choice((60, len(bad)))))] = chance.randrange(256)
        response = bench.process(bench.write("a.wav", bytes(bad[: chance.choice((len(bad), chance.randrange(1, len(bad))))])))
        assert not INNER_WORDS.search(response.error), response.error
    for _, text in bench.lines:
        assert not INNER_WORDS.search(text), text


INNER_WORDS = re.compile(
    r"SF_|libsnd|Error|error|Malformed|malformed|chunk marker|unimplemented|recognised|should be|struct|b'|<_|object|\[Err"
)


@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("text", [b"INFOINAM\3\0\0\0abc", b"INFOabcd"])
def test_wav_with_a_list_chunk_of_odd_size_is_read_with_or_without_padding(bench, is_padded, text):
    source = bench.write("a.wav", wav((b"fmt ", wav_header()), (b"LIST", text), (b"data", SAMPLES), is_padded=is_padded))

    *_, samples = opened(bench.build(source))

    assert (samples[:, 0] * 32768).tolist() == list(range(1000))


def test_wav_whose_header_states_zero_bytes_of_sound_is_read_to_its_end(bench):
    *_, samples = opened(bench.build(bench.write("a.wav", wav((b"fmt ", wav_header()), (b"data", b"")) + SAMPLES)))

    assert (samples[:, 0] * 32768).tolist() == list(range(1000))
    assert bench.warnings == ["a.wav: the header gives 0 bytes of sound; the rest of the file (2,000 bytes) is used"]


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFF0])
def test_wav_of_unknown_length_is_read_to_its_end(bench, size):
    data = wav((b"fmt ", wav_header()), (b"data", SAMPLES))
    at = data.index(b"data") + 4

    *_, samples = opened(bench.build(bench.write("a.wav", data[:at] + struct.pack("<I", size) + data[at + 4 :])))

    assert len(samples) == 1000
    assert not bench.warnings


def test_sound_that_would_become_too_large_is_refused(bench):
    source = bench.write("a.wav", encoded(sine(200_000)))

    assert len(bench.build(source, max_mib=0.4)) == 1
    reason = "the sound is too long: as a WAV it would have more than 0.3 MiB, which is the limit (max_mib)"
    assert bench.fail(source, max_mib=0.3) == f"a.wav: {reason}"
    assert (
        bench.fail(source, max_mib=0.4, sample_rate=96000)
        == "a.wav: the sound is too long: as a WAV it would have more than 0.4 MiB, which is the limit (max_mib)"
    )
    assert bench.fail(source, max_mib=0.3, format="flac") == f"a.wav: {reason}"


def test_sound_without_a_length_in_its_header_has_a_size_limit(bench, monkeypatch):
    monkeypatch.setattr(audio_builder, "_UNKNOWN_FRAMES", 1)

    assert bench.fail(bench.write("a.wav", encoded(sine(200_000))), max_mib=0.3).startswith("a.wav: the sound is too long: ")


def test_conversion_between_very_different_sample_rates_is_refused(bench):
    source = bench.write("a.wav", wav((b"fmt ", wav_header(rate=1)), (b"data", SAMPLES)))

    assert (
        bench.fail(source, sample_rate=48000)
        == "a.wav: a sample rate of 1 Hz cannot be converted to 48000 Hz; set sample_rate: keep"
    )
    assert len(bench.build(source)) == 1


@pytest.mark.parametrize("params", [{}, {"sample_rate": 48000}, {"channels": "mono"}])
def test_nan_and_infinite_samples_warn_and_do_not_affect_their_neighbours(bench, params):
    samples = np.full((RATE, 2), 0.25)
    samples[1000, 0], samples[2000, 1], samples[3000, 0] = np.nan, np.inf, -np.inf

    *_, made = opened(bench.build(bench.write("a.wav", encoded(samples, subtype="FLOAT")), **params))

    assert "a.wav: replaced 3 infinite or invalid samples (infinite: by full scale, invalid: by silence)" in bench.warnings
    assert abs(made[-2000:-1000] - 0.25).max() < 0.01


def test_wav_that_is_shorter_than_its_header_declares_warns(bench):
    data = encoded(sine())
    *_, samples = opened(bench.build(bench.write("a.wav", data[:10044])))

    assert len(samples) == 5000
    assert bench.warnings == [f"a.wav: the header gives {len(data) - 44:,} bytes of sound, but the file has 10,000"]


def test_mp3_that_ends_too_early_warns(bench):
    data = encoded(sine(RATE), "MP3", "MPEG_LAYER_III")
    bench.build(bench.write("a.mp3", data[: len(data) // 2]))

    (warning,) = bench.warnings
    assert warning.startswith("a.mp3: the sound ends after ")
    assert warning.endswith(" of 44100 samples")


def test_a_missing_source_fails(bench):
    response = bench.process("gone.wav")

    assert response.result is Result.FAILED
    assert "gone.wav" in response.error


def test_progress_of_an_audio_job_rises_to_one(bench):
    bench.build(bench.write("a.wav", encoded(np.zeros(200_000))))

    assert bench.progress == sorted(bench.progress)
    assert len(bench.progress) == 4
    assert bench.progress[-1] == 1.0


def test_source_name_that_is_not_utf8_is_accepted(bench):
    source = bench.write("caf\udce9.wav", encoded(sine()))

    assert list(bench.build(source, format="flac")) == ["caf\udce9.flac"]


GROWTH = """
import resource, sys, tempfile
from aptui.sdk import JobLog, PlatformInfo, ProcessJobRequest
from uuid import UUID
from aptui.builders.audio_builder import AudioBuilder
scan_folder = sys.argv[1]
def process(source):
    with tempfile.TemporaryDirectory(dir=scan_folder) as folder:
        response = AudioBuilder().process_job(ProcessJobRequest(
            "mine", scan_folder, source, UUID(int=1), PlatformInfo("linux"), "mine", {"sample_rate": 22050}, {}, "",
            folder, folder, JobLog(lambda *_: None), params_schema=AudioBuilder.params_schema))
        assert not response.error, response.error
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
short = process("short.wav")
print(process("long.wav") - short)
"""


@pytest.mark.real
def test_memory_does_not_grow_with_the_length_of_a_sound(bench):
    import subprocess
    import sys

    bench.write("short.wav", encoded(np.zeros(3 * audio_builder.BLOCK_FRAMES, dtype=np.int16)))
    long_frames = 160 * audio_builder.BLOCK_FRAMES
    bench.write("long.wav", encoded(np.zeros(long_frames, dtype=np.int16)))

    done = subprocess.run([sys.executable, "-c", GROWTH, str(bench.folder / "assets")], check=True, capture_output=True, text=True)

    assert int(done.stdout) * 1024 < long_frames


def test_duration_of_a_sound_is_recorded_with_its_product(bench):
    source = bench.write("a.wav", encoded(sine()))
    seconds = len(sine()) / RATE

    (product,) = bench.process(source, sample_rate=8000, format="flac").products

    assert product.facts == {"seconds": pytest.approx(seconds, abs=0.01), "rate": 8000, "format": "flac"}


def tone(level, seconds, hertz=1000, rate=48000, channels=2):
    """Return a sine whose peak is `level` dB below full scale."""
    wave = 10 ** (level / 20) * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    return np.repeat(wave[:, None], channels, axis=1)


def loudness_of(samples, rate=48000, block=65536):
    meter = SoundMeter(rate, samples.shape[1])
    for start in range(0, len(samples), block):
        meter.add(samples[start : start + block])
    return meter.loudness


SURROUND = np.concatenate([tone(level, 5, channels=1) for level in (-28, -28, -24, -200, -30, -30)], axis=1)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (tone(-23, 5), -23),
        (tone(-33, 5), -33),
        (np.concatenate([tone(-36, 2), tone(-23, 12), tone(-36, 2)]), -23),
        (np.concatenate([tone(-72, 2), tone(-36, 2), tone(-23, 12), tone(-36, 2), tone(-72, 2)]), -23),
        (np.concatenate([tone(-26, 4), tone(-20, 4.02), tone(-26, 4)]), -23),
        (SURROUND, -23),
        (tone(0, 5, hertz=997, channels=1), -3.01),
        (tone(-23, 0.2), -23),
        (tone(-200, 1), -np.inf),
    ],
    ids=["3341-1", "3341-2", "3341-3", "3341-4", "3341-5", "3341-6", "BS.1770 calibration", "short", "silence"],
)
def test_loudness_of_published_reference_signals_is_measured_correctly(samples, expected):
    """The reference signals are shortened signals of EBU Tech 3341, table 1, and the calibration tone of BS.1770, annex 1.

    The standard allows errors of 0.1.
    """
    assert loudness_of(samples) == pytest.approx(expected, abs=0.1)
    assert loudness_of(samples) == pytest.approx(loudness_of(samples, block=1000), abs=1e-9)


@pytest.mark.parametrize("rate", [11025, 22050, 44100, 96000])
def test_loudness_does_not_depend_on_the_sample_rate(rate):
    assert loudness_of(tone(-23, 3, rate=rate), rate) == pytest.approx(-23, abs=0.1)


@pytest.mark.parametrize(("params", "expected"), [({"loudness": -30}, -30), ({"loudness": -8, "peak": -10}, -10)])
def test_loudness_is_reached_unless_the_peak_limit_is_reached_first(bench, params, expected):
    source = bench.write("a.wav", encoded(tone(-20, 3), rate=48000))

    _, _, rate, samples = opened(bench.build(source, **params))

    assert loudness_of(samples, rate) == pytest.approx(expected, abs=0.1)
    assert np.abs(samples).max() <= 10 ** (params.get("peak", -1) / 20)


def test_peak_limit_changes_only_sounds_that_exceed_the_limit(bench):
    loud, quiet = bench.write("loud.wav", encoded(sine(level=0.9))), bench.write("quiet.wav", encoded(sine(level=0.1)))

    assert np.abs(opened(bench.build(loud, peak=-6))[3]).max() == pytest.approx(10 ** (-6 / 20), abs=0.002)
    assert np.abs(opened(bench.build(quiet, peak=-6))[3]).max() == pytest.approx(0.1, abs=0.001)


def test_trim_removes_silence_and_moves_the_loop_points(bench):
    samples = np.concatenate([np.zeros((1000, 1)), sine(frames=5000), np.zeros((700, 1))])
    data = encoded(samples) + loop_chunk(1500, 2999)
    data = data[:4] + struct.pack("<I", len(data) - 8) + data[8:]

    products = bench.build(bench.write("a.wav", data), trim=-60, format="flac")

    assert json.loads(products.pop("a.marks.json")) | {"frames": 0} == {
        "rate": RATE, "frames": 0, "loops": [{"start": 499, "end": 1999, "kind": "forward"}], "markers": [],
    }  # fmt: skip
    assert 4997 <= len(opened(products)[3]) <= 5000


def loop_chunk(first, last):
    return (
        b"smpl"
        + struct.pack("<I", 60)
        + struct.pack("<9I", 0, 0, 22675, 60, 0, 0, 0, 1, 0)
        + struct.pack("<6I", 0, 0, first, last, 0, 0)
    )


def test_silent_sound_is_not_trimmed_and_warns(bench):
    source = bench.write("a.wav", encoded(np.zeros((500, 1))))

    assert len(opened(bench.build(source, trim=-60, loudness=-20))[3]) == 500
    assert bench.warnings == ["a.wav: the whole sound is quieter than -60 dB (trim), so nothing is cut off"]


def test_fade_in_starts_at_silence_and_fade_out_ends_in_silence(bench):
    source = bench.write("a.wav", encoded(np.full((1000, 1), 0.5), rate=1000))

    *_, samples = opened(bench.build(source, fade_in=0.1, fade_out=0.2))

    assert samples[[0, 50, 100, 799, 899, 999], 0].tolist() == pytest.approx([0, 0.25, 0.5, 0.5, 0.25, 0], abs=0.003)


def test_dither_adds_noise_only_if_the_bit_depth_is_reduced(bench):
    exact = bench.write("exact.wav", encoded(sine()))
    fine = bench.write("fine.wav", encoded(np.full((20000, 1), 100.3 / 32768), subtype="FLOAT"))

    assert bench.build(exact, dither=True) == bench.build(exact)
    *_, plain = opened(bench.build(fine))
    *_, dithered = opened(bench.build(fine, dither=True))
    assert set(plain[:, 0] * 32768) == {100}
    assert set(dithered[:, 0] * 32768) <= {99, 100, 101, 102}
    assert dithered.mean() * 32768 == pytest.approx(100.3, abs=0.05)
    assert bench.build(fine, dither=True) == bench.build(fine, dither=True)


def test_loudness_of_more_than_eight_channels_is_refused(bench):
    source = bench.write("a.wav", encoded(np.zeros((10, 9))))

    assert (
        bench.fail(source, loudness=-20)
        == "a.wav: loudness cannot be measured for 9 channels, only for up to 8; set channels: mono"
    )


@pytest.mark.parametrize("rate", [1, 2, 3000])
def test_loudness_at_a_rate_below_its_filters_is_refused(bench, rate):
    source = bench.write("a.wav", encoded(np.full(100, 0.5), rate=rate))

    assert bench.fail(source, loudness=-20) == (
        f"a.wav: loudness cannot be measured at {rate} Hz, only at 4000 Hz or more; set sample_rate, or remove loudness"
    )


@pytest.mark.parametrize("frames", [1, 2])
def test_sound_without_a_sample_after_resampling_is_refused(bench, frames):
    source = bench.write("a.wav", encoded(np.full(frames, 0.5)))

    assert bench.fail(source, sample_rate=8000) == (
        "a.wav: the sound is too short: it has no sample left at 8000 Hz; set sample_rate: keep"
    )


@pytest.mark.parametrize("requested", ["vorbis", "opus"])
@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3), (0, 2, 1), (0, 2, 1, 3, 4), (0, 2, 1, 4, 5, 3), (0, 2, 1, 5, 6, 4, 3), (0, 2, 1, 6, 7, 4, 5, 3)]
)
def test_speakers_of_an_ogg_file_have_the_order_of_its_format(bench, requested, order):
    """Each channel has its own tone; the fourth is the low-frequency channel, in which Opus keeps only low tones."""
    tones = [400, 600, 800, 60, 1000, 1200, 1400, 1600][: len(order)]
    samples = 0.3 * np.sin(2 * np.pi * np.outer(np.arange(48000) / 48000, tones))

    def tones_of(products):
        *_, found = opened(products)
        return [int(np.abs(np.fft.rfft(found[:48000, channel])).argmax()) for channel in range(len(order))]

    made = bench.build(bench.write("a.wav", encoded(samples, rate=48000)), format=requested)
    ((_, data),) = made.items()

    assert tones_of(made) == [tones[place] for place in order]
    assert tones_of(bench.build(bench.write("b.ogg", data))) == tones
