"""The `audio` builder: any sound that libsndfile reads becomes PCM in WAV or FLAC, with the wished channels, rate and depth.

Sounds are read, mixed, resampled and written in blocks, so that memory does not grow with their length. Samples are rounded here
and handed over as integers: libsndfile's own conversion of floats truncates, and wraps what is too loud. OGG is not offered: its
writer draws a random serial number, so that equal sources would give different products.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from aptui.builders.files import lfs
from aptui.builders.params import ParamError, check_params, library_versions, one_job_per_platform, one_line
from aptui.sdk import CreateJobsRequest, CreateJobsResponse, JobProduct, ProcessJobRequest, ProcessJobResponse, Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float64]

AUDIO_ASSET_TYPE = UUID("b1a7e3d4-9c52-5f38-a6d1-4e8b0c6f1e03")
"""Asset type of every product of this builder: PCM sound, its container told by the extension."""

BLOCK_FRAMES = 65536

MOST_FLAC_CHANNELS = 8

_UNKNOWN_FRAMES = 1 << 62
"""libsndfile gives a number near 2**63 for a stream whose header does not say."""

_SHORT_DATA = re.compile(r"^\s*((?:data|SSND)\s*:.*should be.*)$", re.MULTILINE)
"""A line of libsndfile's parse log: the header promises another size than the file has."""


class _BadAudioError(Exception):
    """The sound cannot be made into what is wished; the text is one line."""


class _Loudness:
    """Counts the samples that did not fit, and keeps the highest."""

    def __init__(self) -> None:
        self.clipped_count = 0
        self.peak = 0.0


class AudioBuilder:
    """Makes `<stem>.<format>` of a sound."""

    name: ClassVar[str] = "audio"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.wav", "*.flac", "*.ogg", "*.mp3", "*.aif", "*.aiff")
    # Their wheels carry libsndfile, libFLAC and libsoxr, whose upgrade changes bytes.
    analysis_fingerprint: ClassVar[str] = library_versions("soundfile", "soxr")
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "format": {"enum": ["wav", "flac"], "default": "wav"},
            "channels": {"enum": ["keep", "mono", "stereo"], "default": "keep", "description": "mono is the mean of all channels"},
            "sample_rate": {
                "anyOf": [{"type": "integer", "minimum": 1000, "maximum": 384000}, {"enum": ["keep"]}],
                "default": "keep",
                "description": "in Hz",
            },
            "bits": {"enum": [16, 24], "default": 16, "description": "of a sample; rounded, without dither"},
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.params_schema, self.analysis_fingerprint)

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Convert the source block by block.

        A source without samples fails, as it is a damaged one more often than a wanted one.
        """
        import soundfile

        try:
            options = check_params(self.params_schema, request.params)
            name = f"{request.stem}.{options['format']}"
            if lfs.is_pointer_file(request.full_path):
                return ProcessJobResponse(error=lfs.pointer_error(request.source))
            # Bytes, because soundfile cannot encode the surrogates of an undecodable name.
            with soundfile.SoundFile(os.fsencode(request.full_path)) as source:
                facts = _convert(source, request.product_path(name), options, request)
        except soundfile.LibsndfileError as error:
            # Not str(error): that begins with the absolute path.
            return ProcessJobResponse(error=f"{request.source}: damaged or unknown audio: {one_line(error.error_string)}")
        except (_BadAudioError, ParamError, OSError) as error:
            return ProcessJobResponse(error=f"{request.source}: {one_line(error)}")
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name, 0, AUDIO_ASSET_TYPE, facts=facts)])


def _convert(source: Any, product_path: str, options: Mapping[str, Any], request: ProcessJobRequest) -> dict[str, Any]:
    """Write the product and return its facts."""
    import soundfile

    if source.frames == 0:
        raise _BadAudioError("holds no samples")
    if short := _SHORT_DATA.search(source.extra_info):
        request.log.warning(f"{request.source}: the header and the file disagree on the size, {one_line(short[1])}")
    channel_count = _choose_channels(source.channels, options)
    rate = source.samplerate if options["sample_rate"] == "keep" else options["sample_rate"]
    blocks: Iterator[Samples] = (_mix(block, channel_count) for block in _blocks(source, request))
    if rate != source.samplerate:
        blocks = _resample(blocks, source.samplerate, rate, channel_count)
    loudness, frames = _Loudness(), 0
    with soundfile.SoundFile(
        os.fsencode(product_path), "w", rate, channel_count, f"PCM_{options['bits']}", format=options["format"].upper()
    ) as product:
        for block in blocks:
            frames += len(block)
            product.write(_round_samples(block, options["bits"], loudness))
    _report_clipping(loudness, source, request, is_resampled=rate != source.samplerate)
    return {"seconds": round(frames / rate, 3), "rate": int(rate), "format": options["format"]}


def _choose_channels(present: int, options: Mapping[str, Any]) -> int:
    requested_channels = {"keep": present, "mono": 1, "stereo": 2}[options["channels"]]
    if requested_channels == 2 and present > 2:
        raise _BadAudioError(f"{present} channels cannot become stereo, their places are unknown; use mono or keep")
    if options["format"] == "flac" and requested_channels > MOST_FLAC_CHANNELS:
        raise _BadAudioError(f"flac holds {MOST_FLAC_CHANNELS} channels, this has {requested_channels}; use wav or mono")
    return requested_channels


def _blocks(source: Any, request: ProcessJobRequest) -> Iterator[Samples]:
    """Yield the frames of `source`; one that ends before its header says is damaged."""
    read_count = 0
    while len(block := source.read(BLOCK_FRAMES, dtype="float64", always_2d=True)):
        request.check_cancelled()
        read_count += len(block)
        request.progress(min(1.0, read_count / source.frames))
        yield block
    if read_count >= source.frames or source.frames >= _UNKNOWN_FRAMES:
        return
    text = f"ends after {read_count} of {source.frames} samples"
    if source.format != "MP3":
        raise _BadAudioError(f"damaged or unknown audio: {text}")
    # An MP3 without a length in its header has an estimated one.
    request.log.warning(f"{request.source}: {text}")


def _mix(block: Samples, channel_count: int) -> Samples:
    present = block.shape[1]
    if channel_count == present:
        return block
    return block.mean(axis=1, keepdims=True) if channel_count == 1 else block.repeat(channel_count, axis=1)


def _resample(blocks: Iterator[Samples], rate: int, target_rate: int, channel_count: int) -> Iterator[Samples]:
    import numpy as np
    import soxr

    stream = soxr.ResampleStream(rate, target_rate, channel_count, dtype="float64", quality="HQ")
    for block in blocks:
        yield stream.resample_chunk(np.ascontiguousarray(block), last=False)
    yield stream.resample_chunk(np.zeros((0, channel_count)), last=True)


def _round_samples(block: Samples, bits: int, loudness: _Loudness) -> NDArray[np.int32]:
    """Return `block` as integers in the upper `bits` of 32; full scale plus half a step, 1.0 itself too, is not yet clipping."""
    import numpy as np

    full_scale = 1 << (bits - 1)
    steps = np.rint(block * full_scale)
    # NaN in a float source: silence is what can be written.
    steps = np.nan_to_num(steps, nan=0.0, posinf=2.0 * full_scale, neginf=-2.0 * full_scale)
    over = np.abs(steps) > full_scale
    if over.any():
        loudness.clipped_count += int(over.sum())
        loudness.peak = max(loudness.peak, float(np.abs(steps).max()) / full_scale)
    return np.clip(steps, -full_scale, full_scale - 1).astype(np.int32) << (32 - bits)


def _report_clipping(loudness: _Loudness, source: Any, request: ProcessJobRequest, *, is_resampled: bool) -> None:
    """Warn of what this job or its author did; a lossy decoder's overshoot, in all loud music, is only noted."""
    if not loudness.clipped_count:
        return
    text = f"{request.source}: {loudness.clipped_count} samples clipped, peak {loudness.peak:.3f} of full scale"
    if is_resampled:
        request.log.warning(f"{text}, after resampling")
    elif source.subtype in ("FLOAT", "DOUBLE"):
        request.log.warning(text)
    else:
        request.log.info(text)
