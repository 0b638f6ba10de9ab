"""The `audio` builder: any sound that libsndfile reads becomes WAV, FLAC, Vorbis, Opus, MP3 or ADPCM.

Sounds are read, mixed, resampled and written in blocks, so that memory does not grow with their length; the product has at most
`max_mib`, whatever the header of the source says. This module converts floats to integers, because libsndfile's conversion would
truncate samples instead of rounding them, and would wrap samples above 1 around. libsndfile draws a random serial number for each
Ogg file; `set_serial` replaces it.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, SourceError, one_job_per_platform, show_count
from aptui.builders.files.json_text import write_json
from aptui.builders.files.kinds import describe_kind
from aptui.builders.files.loudness import LEAST_RATE, SoundMeter
from aptui.builders.files.sound_marks import UNKNOWN_SIZE, Marks, PlainWav, WavLayout, read_layout, read_marks, set_frame_count
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobError,
    ProcessJobRequest,
    library_versions,
    same_for_all_sources,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float64]


class SoundFormat(Struct, frozen=True):
    """How a product is written. `rates` are the possible sample rates (Hz); () means every rate up to `most_rate`."""

    container: str
    subtype: str
    extension: str
    most_channels: int
    rates: tuple[int, ...] = ()
    most_rate: int = 384_000


_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
FORMATS = {
    "wav": SoundFormat("WAV", "", "wav", 1024),
    "flac": SoundFormat("FLAC", "", "flac", 8),
    "vorbis": SoundFormat("OGG", "VORBIS", "ogg", 8, most_rate=192_000),  # libsndfile crashes at 384 kHz
    "opus": SoundFormat("OGG", "OPUS", "opus", 8, rates=(8000, 12000, 16000, 24000, 48000)),
    "mp3": SoundFormat("MP3", "MPEG_LAYER_III", "mp3", 2, rates=_MP3_RATES),
    "adpcm": SoundFormat("WAV", "IMA_ADPCM", "wav", 2, most_rate=192_000),
}
"""{value of the parameter `format`: how the product is written}.

If the second field, libsndfile's subtype, is empty, the product is PCM; the parameter `bits` sets the bits of a sample.
"""
_BITS_OF = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "ALAW": 16, "ULAW": 16, "IMA_ADPCM": 16, "MS_ADPCM": 16}
"""{libsndfile's subtype of a source: bits of a sample}; samples of all other subtypes are not integers."""
_LOSSY_BITS = 24
"""Bits of the integer samples that are passed to lossy encoders."""
_OPUS_LEAST, _OPUS_MOST = 26, 130
"""Bit rates of Opus for each channel at quality 0 and at quality 100 (kbit/s)."""

AUDIO_ASSET_TYPE = UUID("b1a7e3d4-9c52-5f38-a6d1-4e8b0c6f1e03")
"""Asset type of every product of this builder: a sound; the extension names its container."""

MARKS_ASSET_TYPE = UUID("b1a7e3d4-9c52-5f38-a6d1-4e8b0c6f1e04")
"""Asset type of a JSON file with the loop points and markers of a sound, if the format of the sound cannot store markers."""

BLOCK_FRAMES, _BLOCK_CHANNELS = 65536, 8
"""Number of frames in a block of up to `_BLOCK_CHANNELS` channels. A block with more channels has fewer frames."""

_UNKNOWN_FRAMES = 1 << 62
"""A frame count of at least this means "unknown": libsndfile returns nearly 2**63 for a stream whose header has no length."""

MOST_MIB = 1024
"""Default maximum size of a product (MiB): 100 minutes of stereo."""

MOST_CHANNELS = 1024
"""Maximum number of channels that libsndfile reads."""

_OGG_ORDERS = {3: (0, 2, 1), 5: (0, 2, 1, 3, 4), 6: (0, 2, 1, 4, 5, 3), 7: (0, 2, 1, 5, 6, 4, 3), 8: (0, 2, 1, 6, 7, 4, 5, 3)}
"""{number of channels: order of the channels in an Ogg file, as their numbers in a WAV} (Vorbis I, section 4.3.9; RFC 7845, 5.1.1).

All other containers have the order of WAV; libsndfile keeps the order of the file.
"""

MOST_RATE_FACTOR = 256
"""Maximum ratio of two sample rates: with a larger ratio, a small source could become an enormous product."""

_SHORT_DATA = re.compile(r"^\s*(?:data|SSND)\s*:\s*(\d+).*should be\s*(\d+)", re.MULTILINE)
"""Matches a line of libsndfile's parse log that reports a wrong size in the header."""

_UNRECOGNISED, _UNSUPPORTED_ENCODINGS = 1, (4, 34)
"""Error numbers of libsndfile (src/common.h) for an unknown file format and for unsupported encodings of samples. All other
errors are reported as damage."""

_SUPPORTED = "the supported formats are WAV, FLAC, Ogg (Vorbis, Opus), MP3 and AIFF"
_READABLE = ("a WAV", "a FLAC", "an Ogg", "an MP3", "an AIFF", "a Wave64", "a Core", "a Sun")
_WAV_ENCODINGS = {
    0x01: "PCM", 0x02: "ADPCM", 0x03: "float", 0x06: "A-law", 0x07: "µ-law", 0x11: "ADPCM", 0x31: "GSM", 0x40: "G.721",
    0x55: "MP3", 0x92: "AC-3", 0xFF: "AAC", 0x160: "WMA", 0x161: "WMA", 0x162: "WMA", 0x163: "WMA", 0x2000: "AC-3",
    0x566F: "Vorbis", 0xFFFE: "PCM",
}  # fmt: skip
"""{code of a sample encoding in a WAV: its name (mmreg.h)}."""
_READ_WAV_ENCODINGS = frozenset((0x01, 0x02, 0x03, 0x06, 0x07, 0x11, 0x31, 0x40, 0x55, 0xFFFE))


class _Clipping(Struct):
    """The number of samples above full scale, and the highest absolute value of a sample (1 = full scale)."""

    sample_count: int = 0
    peak: float = 0.0


class _Shape(Struct):
    """The result of a first pass over the sound: a gain factor, and the range of frames to keep (`end` 0 = to the last)."""

    gain: float = 1.0
    start: int = 0
    end: int = 0


class AudioParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    format: Literal["wav", "flac", "vorbis", "opus", "mp3", "adpcm"] = "wav"
    quality: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="quality of vorbis, opus and mp3; the same value gives about the same bit rate in each format",
        ),
    ] = 60
    channels: Annotated[
        Literal["keep", "mono", "stereo"],
        Meta(description="number of channels of the product; mono is the mean of all channels"),
    ] = "keep"
    sample_rate: Annotated[Annotated[int, Meta(ge=1000, le=384000)] | Literal["keep"], Meta(description="in Hz")] = "keep"
    bits: Annotated[Literal[16, 24], Meta(description="number of bits of a sample in wav and flac")] = 16
    dither: Annotated[
        bool,
        Meta(
            description="add noise of one bit before the samples of wav and flac are rounded; samples that need no rounding get "
            "no noise"
        ),
    ] = False
    loudness: Annotated[
        Annotated[float, Meta(ge=-60, le=0)] | None,
        Meta(description="change the volume so that the whole sound has this loudness in LUFS (ITU-R BS.1770)"),
    ] = None
    peak: Annotated[
        Annotated[float, Meta(ge=-30, le=0)] | None,
        Meta(
            description="make the sound quieter if a sample exceeds this level (dB of full scale); by default -1 if loudness is set"
        ),
    ] = None
    trim: Annotated[
        Annotated[float, Meta(ge=-100, le=-20)] | None,
        Meta(description="cut off the parts at both ends that are quieter than this level (dB of full scale)"),
    ] = None
    fade_in: Annotated[float, Meta(ge=0, le=60, description="seconds")] = 0
    fade_out: Annotated[float, Meta(ge=0, le=60, description="seconds")] = 0
    max_mib: Annotated[
        float,
        Meta(
            ge=0.001,
            le=4000,
            description="maximum size of the sound as a WAV in MiB; if a sound is larger, its job fails",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = MOST_MIB


class AudioBuilder(SourceBuilder):
    """Makes `<stem>.<format>` of a sound."""

    name: ClassVar[str] = "audio"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.wav", "*.flac", "*.ogg", "*.mp3", "*.aif", "*.aiff")
    # The versions enter the fingerprint, because the packages contain libsndfile, libFLAC and libsoxr, which make the bytes of
    # products.
    analysis_fingerprint: ClassVar[str] = library_versions("soundfile", "soxr")
    params_schema: ClassVar[Any] = AudioParams

    @same_for_all_sources
    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.analysis_fingerprint)

    def build(self, request: ProcessJobRequest) -> None:
        """Convert the source block by block.

        A source without samples fails, because a file without samples is usually damaged.
        """
        import soundfile

        options: AudioParams = request.options
        name = f"{request.stem}.{FORMATS[options.format].extension}"
        with open(request.full_path, "rb") as file:
            try:
                layout = read_layout(file)
                with _open_sound(file, layout, request) as source:
                    facts = _convert(source, file, request.product_path(name), options, request)
            except soundfile.SoundFileError as error:
                file.seek(0)
                raise SourceError(_reason(getattr(error, "code", 0), file)) from None
        request.add_product(name, sub_id=0, asset_type=AUDIO_ASSET_TYPE, facts=facts)
        if os.path.exists(request.product_path(_name_marks(name))):
            request.add_product(_name_marks(name), sub_id=1, asset_type=MARKS_ASSET_TYPE)


@contextmanager
def _open_sound(file: IO[bytes], layout: WavLayout | None, request: ProcessJobRequest) -> Iterator[Any]:
    """Open a sound for libsndfile: by its path, or as a `PlainWav` if libsndfile would not find the samples in the file."""
    import soundfile

    if layout is not None:
        _check_wav(layout, request)
    # The path is passed as bytes, because soundfile cannot encode a file name that is not valid UTF-8.
    source = PlainWav(file, layout) if layout is not None and layout.is_misread else os.fsencode(request.full_path)
    file.seek(0)
    with _quiet(describe_kind(file.read(16)) in ("", "an MP3 sound")), soundfile.SoundFile(source) as sound:
        yield sound


def _check_wav(layout: WavLayout, request: ProcessJobRequest) -> None:
    """Reject a WAV with an impossible header, and warn of a wrong size in the header."""
    if len(layout.format) < 16:
        raise SourceError("damaged WAV sound: the description of the samples is missing (chunk fmt)")
    encoding, channels = (int.from_bytes(layout.format[at : at + 2], "little") for at in (0, 2))
    if encoding not in _READ_WAV_ENCODINGS:
        name = _WAV_ENCODINGS.get(encoding, f"number {encoding}")
        raise SourceError(f"unsupported WAV sound: the samples are encoded as {name}; save the sound as PCM")
    if channels == 0 or not any(layout.format[4:8]):
        what = "0 channels" if channels == 0 else "a sample rate of 0 Hz"
        raise SourceError(f"damaged WAV sound: the header gives {what}")
    if channels > MOST_CHANNELS:
        raise SourceError(f"unsupported WAV sound: the header gives {channels} channels, but at most {MOST_CHANNELS} are supported")
    if not layout.data_start:
        raise SourceError("damaged WAV sound: the file has no samples (chunk data)")
    if layout.is_unfinished:
        rest = show_count(layout.data_bytes, "byte")
        request.log.warning(f"{request.source}: the header gives 0 bytes of sound; the rest of the file ({rest}) is used")


@contextmanager
def _quiet(is_needed: bool) -> Iterator[None]:
    """Discard the standard error output of the MP3 decoder, which would appear in the job's log."""
    if not is_needed:
        yield
        return
    usual, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)
        os.close(nowhere)


def _reason(code: int, file: IO[bytes]) -> str:
    """Return the cause of an error of libsndfile in plain words, because the text of libsndfile is meant for programmers."""
    head = file.read(4096)
    kind = describe_kind(head)
    noun = kind.split(" ", 1)[-1] if kind.startswith(_READABLE) else "sound"
    if not head:
        return "the file is empty"
    if kind and not kind.startswith(_READABLE):
        return f"the file is {kind}; {_SUPPORTED}"
    if code == _UNRECOGNISED and noun == "sound":
        return f"the file is not a sound in a supported format; {_SUPPORTED}"
    has_known_codec = any(mark in head for mark in (b"\x01vorbis", b"OpusHead", b"fLaC", b"FLAC"))
    if code in _UNSUPPORTED_ENCODINGS or (noun == "Ogg file" and len(head) > 100 and not has_known_codec):
        return f"unsupported {noun}: the encoding of the samples is not supported; save the sound as WAV or FLAC"
    return f"damaged {noun}: the header or the samples cannot be read; save the sound again, or get the original file"


def _convert(source: Any, file: IO[bytes], product_path: str, options: AudioParams, request: ProcessJobRequest) -> dict[str, Any]:
    """Write the product, and return its properties."""
    if source.frames == 0:
        raise SourceError("the sound has no samples")
    if short := _SHORT_DATA.search(source.extra_info):
        promised, present = int(short[1]), int(short[2])
        text = f"{request.source}: the header gives {show_count(promised, 'byte')} of sound, but the file has {present:,}"
        (request.log.info if promised >= UNKNOWN_SIZE else request.log.warning)(text)
    channel_count = _choose_channels(source.channels, options)
    form = FORMATS[options.format]
    rate = _choose_rate(source.samplerate, options, request)
    bits = _LOSSY_BITS if form.subtype else options.bits
    if max(rate, source.samplerate) > MOST_RATE_FACTOR * min(rate, source.samplerate):
        raise SourceError(f"a sample rate of {source.samplerate} Hz cannot be converted to {rate} Hz; set sample_rate: keep")
    most_frames = int(options.max_mib * (1 << 20)) // (channel_count * bits // 8)
    if source.frames < _UNKNOWN_FRAMES:
        _check_length(source.frames * rate // source.samplerate, most_frames, options)

    def read(*, warns: bool) -> Iterator[Samples]:
        blocks = (_mix(block, channel_count) for block in _blocks(source, request, warns=warns))
        return blocks if rate == source.samplerate else _resample(blocks, source.samplerate, rate, channel_count)

    shape = _Shape()
    if any(getattr(options, name) is not None for name in ("loudness", "peak", "trim")) or options.fade_out:
        shape = _measure(read(warns=False), rate, channel_count, most_frames, options, request)
        source.seek(0)
    blocks = _reshape(read(warns=True), shape, rate, options)
    is_exact = _BITS_OF.get(source.subtype, 99) <= bits and shape.gain == 1.0 and not options.fade_in + options.fade_out
    is_exact &= rate == source.samplerate and channel_count == source.channels
    noise = _Noise() if options.dither and not form.subtype and not is_exact else None
    clipping, frames = _Clipping(), 0
    lossy: dict[str, Any] = {}
    if form.container in ("OGG", "MP3"):
        lossy = {"compression_level": 1 - _scale_quality(options.quality, options.format)}
    if form.container == "MP3":
        lossy["bitrate_mode"] = "VARIABLE"
    subtype = form.subtype or f"PCM_{bits}"
    with _create_sound(product_path, rate, channel_count, subtype, format=form.container, **lossy) as product:
        for block in blocks:
            frames += len(block)
            _check_length(frames, most_frames, options)
            samples = _round_samples(block, bits, clipping, noise)
            with _saving():
                product.write(_order_channels(samples, form.container, is_read=False))
    if form.container == "OGG":
        set_serial(product_path)
    elif form.subtype == "IMA_ADPCM":
        set_frame_count(product_path, frames)
    _report_clipping(clipping, source, request, is_resampled=rate != source.samplerate)
    marks = read_marks(file, source.samplerate)
    marks = marks if rate == source.samplerate else marks.resample(source.samplerate, rate)
    _write_marks(marks.cut_start(shape.start) if shape.start else marks, frames, rate, product_path, request)
    return {"seconds": round(frames / rate, 3), "rate": int(rate), "format": options.format}


@contextmanager
def _create_sound(path: str, *shape: Any, **options: Any) -> Iterator[Any]:
    """Create a sound for writing; `shape` and `options` are the arguments of `soundfile.SoundFile` after the mode."""
    import soundfile

    with _saving():
        product = soundfile.SoundFile(os.fsencode(path), "w", *shape, **options)
    try:
        yield product
    finally:
        with _saving():
            product.close()


@contextmanager
def _saving() -> Iterator[None]:
    """Report an error of libsndfile as an error of the product; outside this block such an error means a damaged source.

    Raises:
        JobError: the product cannot be written.
    """
    import soundfile

    try:
        yield
    except (soundfile.SoundFileError, AssertionError) as error:  # soundfile asserts that all samples were written
        reason = getattr(error, "error_string", "") or "not all samples were written"
        raise JobError(f"cannot write the product: {reason.rstrip('.')}; check the free space on the disk of the cache") from None


def _scale_quality(quality: int, form: str) -> float:
    """Return libsndfile's quality (0 to 1) for a value of the parameter `quality`, so that all formats have about equal bit rates.

    For Vorbis and MP3 the result is `quality` / 100. For Opus it is computed from a bit rate, because libsndfile's scale of Opus is
    linear, from 6 to 256 kbit/s for each channel. Three pieces of stereo music at 44,100 Hz took these bit rates (kbit/s):

    - quality 1: Vorbis 57, MP3 62 to 66, Opus 53;
    - quality 60: Vorbis 129 to 189, MP3 136 to 175, Opus 128;
    - quality 100: Vorbis 327 to 418, MP3 229 to 281, Opus 262.
    """
    share = quality / 100
    return (_OPUS_LEAST + (_OPUS_MOST - _OPUS_LEAST) * share**2 - 6) / 250 if form == "opus" else share


def _choose_rate(present: int, options: AudioParams, request: ProcessJobRequest) -> int:
    """Return the sample rate of the product; with `keep`, the nearest rate of the format that is not below the source's rate."""
    form, wanted = FORMATS[options.format], options.sample_rate
    rate = present if wanted == "keep" else int(wanted)
    if (form.rates and rate not in form.rates) or rate > form.most_rate:
        choice = f"one of {', '.join(map(str, form.rates))}" if form.rates else f"at most {form.most_rate}"
        if wanted != "keep":
            raise SourceError(f"{options.format} does not support a sample rate of {rate} Hz; set sample_rate to {choice}")
        rate = min((each for each in form.rates if each >= present), default=max(form.rates, default=form.most_rate))
        request.log.info(
            f"{request.source}: the sound was converted from {present} to {rate} Hz, because {options.format} does not "
            f"support {present} Hz"
        )
    return rate


def _check_length(frames: int, most_frames: int, options: AudioParams) -> None:
    if frames > most_frames:
        raise SourceError(
            f"the sound is too long: as a WAV it would have more than {options.max_mib:g} MiB, which is the limit (max_mib)"
        )


def _measure(
    blocks: Iterator[Samples],
    rate: int,
    channel_count: int,
    most_frames: int,
    options: AudioParams,
    request: ProcessJobRequest,
) -> _Shape:
    """Measure a sound, and return the gain and the range of frames that the parameters `loudness`, `peak` and `trim` request."""
    target, threshold = options.loudness, options.trim
    if target is not None and channel_count > _BLOCK_CHANNELS:
        raise SourceError(
            f"loudness cannot be measured for {channel_count} channels, only for up to {_BLOCK_CHANNELS}; set channels: mono"
        )
    if target is not None and rate < LEAST_RATE:
        raise SourceError(
            f"loudness cannot be measured at {rate} Hz, only at {LEAST_RATE} Hz or more; set sample_rate, or remove loudness"
        )
    silence = 0.0 if threshold is None else 10 ** (threshold / 20)
    meter = SoundMeter(rate, channel_count, threshold=silence, measures_loudness=target is not None)
    for block in blocks:
        meter.add(block)
        _check_length(meter.frames, most_frames, options)
    shape = _Shape(end=meter.frames)
    if threshold is not None and meter.last >= 0:
        shape.start, shape.end = meter.first, meter.last + 1
    elif threshold is not None:
        request.log.warning(f"{request.source}: the whole sound is quieter than {threshold:g} dB (trim), so nothing is cut off")
    shape.gain = _choose_gain(meter, options, request)
    return shape


def _choose_gain(meter: SoundMeter, options: AudioParams, request: ProcessJobRequest) -> float:
    """Return the gain factor for all samples.

    The gain is rounded to 0.01 dB, because processors may differ in the last bits of a measured loudness.
    """
    target, peak = options.loudness, options.peak
    if not meter.peak or (target is None and peak is None):
        return 1.0
    limit = (-1.0 if peak is None else peak) - 20 * math.log10(meter.peak)
    gain = limit
    if target is None:
        gain = min(0.0, limit)
    elif math.isfinite(meter.loudness):
        wanted = target - meter.loudness
        gain = min(wanted, limit)
        request.log.info(f"{request.source}: the source has {meter.loudness:.1f} LUFS; the volume was changed by {gain:+.1f} dB")
        if gain < wanted:
            request.log.info(
                f"{request.source}: the product is {wanted - gain:.1f} dB below {target:g} LUFS, because its peaks would "
                "exceed the limit (peak)"
            )
    return float(10 ** (math.floor(gain * 100) / 2000)) if gain else 1.0


def _reshape(blocks: Iterator[Samples], shape: _Shape, rate: int, options: AudioParams) -> Iterator[Samples]:
    """Yield the frames that are kept, with gain and fades applied."""
    import numpy as np

    fade_in, fade_out = (round(getattr(options, name) * rate) for name in ("fade_in", "fade_out"))
    at = 0
    for block in blocks:
        begin, end = max(0, shape.start - at), shape.end - at if shape.end else len(block)
        part = block[begin : max(begin, end)]
        if fade_in or fade_out or shape.gain != 1.0:
            places = np.arange(at + begin, at + begin + len(part)) - shape.start
            factors = np.full(len(part), shape.gain)
            if fade_in:
                factors *= np.minimum(1.0, places / fade_in)
            if fade_out:
                factors *= np.minimum(1.0, (shape.end - shape.start - 1 - places) / fade_out)
            part = part * factors[:, None]
        at += len(block)
        if len(part):
            yield part


def _name_marks(product_name: str) -> str:
    return f"{product_name.rpartition('.')[0]}.marks.json"


def _write_marks(marks: Marks, frames: int, rate: int, product_path: str, request: ProcessJobRequest) -> None:
    """Add loop points and markers to a WAV; for other formats, write them into a separate product."""
    marks.end_within(frames)
    for text in marks.remarks:
        request.log.warning(f"{request.source}: {text}")
    if product_path.endswith(".wav"):
        marks.append_to(product_path)
    elif text := marks.describe():
        path = _name_marks(product_path)
        with open(path, "wb") as file:
            file.write(write_json({"rate": rate, "frames": frames, **marks.list_all()}))
        request.log.info(f"{request.source}: wrote its {text} to {os.path.basename(path)}")


def _choose_channels(present: int, options: AudioParams) -> int:
    requested_channels = {"keep": present, "mono": 1, "stereo": 2}[options.channels]
    if requested_channels == 2 and present > 2:
        raise SourceError(
            f"{present} channels cannot become stereo, because the positions of their speakers are unknown; set channels: "
            "mono or keep"
        )
    most = FORMATS[options.format].most_channels
    if requested_channels > most:
        raise SourceError(
            f"{options.format} supports {most} channels, but the sound has {requested_channels}; set format: wav, or channels: mono"
        )
    return requested_channels


def _blocks(source: Any, request: ProcessJobRequest, *, warns: bool) -> Iterator[Samples]:
    """Yield the frames of `source`. A source that ends earlier than its header states is damaged."""
    read_count = odd_count = 0
    block_frames = max(1, BLOCK_FRAMES * _BLOCK_CHANNELS // max(_BLOCK_CHANNELS, source.channels))
    while len(block := source.read(block_frames, dtype="float64", always_2d=True)):
        read_count += len(block)
        request.progress(min(1.0, read_count / source.frames))
        odd_count += _replace_odd(block) if source.subtype in ("FLOAT", "DOUBLE") else 0
        yield _order_channels(block, source.format, is_read=True)
    if odd_count and warns:
        text = f"replaced {show_count(odd_count, 'infinite or invalid sample')} (infinite: by full scale, invalid: by silence)"
        request.log.warning(f"{request.source}: {text}")
    if read_count >= source.frames or source.frames >= _UNKNOWN_FRAMES:
        return
    text = f"the sound ends after {read_count} of {source.frames} samples"
    if source.format != "MP3":
        raise SourceError(f"damaged {source.format} file: {text}")
    # A short MP3 gives only a warning, because libsndfile estimates the length if the header does not contain one.
    if warns:
        request.log.warning(f"{request.source}: {text}")


def _order_channels(block: NDArray[Any], container: str, *, is_read: bool) -> NDArray[Any]:
    """Change the order of channels from that of a container to that of WAV (`is_read`), or from WAV to that of the container."""
    import numpy as np

    order = _OGG_ORDERS.get(block.shape[1]) if container == "OGG" else None
    return block if order is None else block.take(np.argsort(order) if is_read else order, axis=1)


def _replace_odd(block: Samples) -> int:
    """Replace samples that are NaN or infinite, because resampling would spread them to other samples.

    Return the number of replaced samples.
    """
    import numpy as np

    is_odd = ~np.isfinite(block)
    block[is_odd] = np.nan_to_num(block[is_odd], nan=0.0, posinf=1.0, neginf=-1.0)
    return int(is_odd.sum())


def _mix(block: Samples, channel_count: int) -> Samples:
    present = block.shape[1]
    if channel_count == present:
        return block
    return block.mean(axis=1, keepdims=True) if channel_count == 1 else block.repeat(channel_count, axis=1)


def _resample(blocks: Iterator[Samples], rate: int, target_rate: int, channel_count: int) -> Iterator[Samples]:
    import numpy as np
    import soxr

    stream = soxr.ResampleStream(rate, target_rate, channel_count, dtype="float64", quality="HQ")
    frames = 0
    for block in itertools.chain(blocks, [np.zeros((0, channel_count))]):
        made = stream.resample_chunk(np.ascontiguousarray(block), last=not len(block))
        frames += len(made)
        yield made
    if not frames:
        raise SourceError(f"the sound is too short: it has no sample left at {target_rate} Hz; set sample_rate: keep")


class _Noise:
    """Triangular noise of one bit, the same for every sound.

    PCG64 gives equal numbers on every machine and in every version of numpy.
    """

    def __init__(self) -> None:
        import numpy as np

        self._random = np.random.PCG64(1)

    def draw(self, shape: tuple[int, ...]) -> Samples:
        raw = self._random.random_raw((2, *shape)) >> 11
        drawn: Samples = (raw[0].astype(float) + raw[1].astype(float)) * 2.0**-53 - 1.0
        return drawn


def _round_samples(block: Samples, bits: int, clipping: _Clipping, noise: _Noise | None = None) -> NDArray[np.int32]:
    """Return `block` as 32-bit integers; the upper `bits` bits of each integer contain the sample, and the other bits are 0.

    Samples up to half a step above full scale do not count as clipped.
    """
    import numpy as np

    full_scale = 1 << (bits - 1)
    scaled = block * full_scale
    steps = np.rint(scaled if noise is None else scaled + noise.draw(block.shape))
    over = np.abs(steps) > full_scale
    if over.any():
        clipping.sample_count += int(over.sum())
        clipping.peak = max(clipping.peak, float(np.abs(steps).max()) / full_scale)
    return np.clip(steps, -full_scale, full_scale - 1).astype(np.int32) << (32 - bits)


def _report_clipping(clipping: _Clipping, source: Any, request: ProcessJobRequest, *, is_resampled: bool) -> None:
    """Log the number of clipped samples, as a warning if this job resampled the sound or the source stores floats.

    In other cases the source is usually lossy, and its decoder returned samples above full scale. This is usual for loud music, so
    it is only logged as information. The noise of `dither` can also lift samples of other sources above full scale.
    """
    if not clipping.sample_count:
        return
    clipped = show_count(clipping.sample_count, "sample")
    text = f"{request.source}: clipped {clipped}; the highest is {clipping.peak:.3f} of full scale"
    if is_resampled:
        request.log.warning(f"{text}, after resampling")
    elif source.subtype in ("FLOAT", "DOUBLE"):
        request.log.warning(text)
    else:
        request.log.info(text)


# ---------------------------------------------------------------------------------------------- serial numbers of Ogg files

# An Ogg file gets the same bytes each time: `set_serial` replaces the random serial number of its stream, and the checksum of
# each page.
# Source: RFC 3533, section 6.

SERIAL = 1
_HEADER = struct.Struct("<4sBBqIIIB")
"""Capture pattern, version, type, granule position, serial number, page number, checksum, number of segments."""
_SERIAL_AT, _CHECKSUM_AT = 14, 22
_POLYNOMIAL = 0x04C11DB7


def set_serial(path: str) -> None:
    """Write the serial number `SERIAL` into all pages of a file with one logical stream.

    Raises:
        ValueError: the file does not consist of Ogg pages.
    """
    with open(path, "r+b") as file:
        at = 0
        while head := file.read(_HEADER.size):
            if len(head) < _HEADER.size or head[:4] != b"OggS":
                raise ValueError(f"there is no Ogg page at byte {at}")
            segments = file.read(head[-1])
            page = bytearray(head + segments + file.read(sum(segments)))
            struct.pack_into("<I", page, _SERIAL_AT, SERIAL)
            struct.pack_into("<I", page, _CHECKSUM_AT, 0)
            struct.pack_into("<I", page, _CHECKSUM_AT, checksum(page))
            file.seek(at)
            file.write(page)
            at += len(page)


def checksum(page: bytes | bytearray) -> int:
    """Return the checksum of a page whose checksum field is 0: a CRC without bit reflection, so zlib's CRC cannot be used."""
    table, value = _table(), 0
    for byte in page:
        value = ((value << 8) & 0xFFFFFFFF) ^ table[(value >> 24) ^ byte]
    return value


@cache
def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = ((value << 1) ^ (_POLYNOMIAL if value & 0x80000000 else 0)) & 0xFFFFFFFF
        table.append(value)
    return table
