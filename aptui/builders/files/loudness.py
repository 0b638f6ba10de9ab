"""Measures a sound block by block: its loudness (ITU-R BS.1770-4), its highest sample, and its first and last audible frame.

The K-weighting of BS.1770 is applied by FFT, as a finite impulse response of 0.17 s: the standard's recursive filters decay to less
than 1e-12 in that time.

Tests: `tests/builders/test_audio_builder.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float64]

LEAST_RATE = 4000
"""Minimum sample rate at which loudness is measured (Hz): the K-weighting raises frequencies above 1,682 Hz."""

_RESPONSE_S = 0.17
_SHELF = (1681.974450955533, 3.999843853973347, 0.7071752369554196)
_HIGH_PASS = (38.13547087602444, 0.5003270373238773)
"""Frequency (Hz), gain (dB; only the shelf filter has a gain) and Q of the two filters of the K-weighting.

BS.1770's coefficients for 48 kHz follow from these values (as in libebur128).
"""
_OFFSET = -0.691
_ABSOLUTE_GATE, _RELATIVE_GATE = -70.0, -10.0
_SURROUND_WEIGHTS = {5: (1, 1, 1, 1.41, 1.41), 6: (1, 1, 1, 0, 1.41, 1.41)}
"""{number of channels: weights} in the usual channel order; the low-frequency channel has weight 0.

In all other layouts each channel has weight 1.
"""


class SoundMeter:
    """Measures a sound that `add` receives in blocks of (frames, channels).

    `peak` is the highest absolute sample; `first` and `last` are the first and last frame louder than the threshold, -1 if all
    frames are quieter.

    Args:
        rate: samples a second.
        threshold: highest absolute value of a sample that counts as silence.
        measures_loudness: False saves time; then `loudness` is -inf.
    """

    def __init__(self, rate: int, channel_count: int, *, threshold: float = 0.0, measures_loudness: bool = True) -> None:
        import numpy as np

        self._rate, self._threshold = rate, threshold
        self._response = _make_response(rate) if measures_loudness else np.zeros(0)
        self._tail = np.zeros((max(0, len(self._response) - 1), channel_count))
        self._weights = np.array(_SURROUND_WEIGHTS.get(channel_count, (1,) * channel_count), float)
        self._powers: list[float] = [0.0]
        """For each tenth of a second, the sum of its squared filtered samples, weighted by channel; the last is not complete."""
        self.frames, self.peak = 0, 0.0
        self.first = self.last = -1

    def add(self, block: Samples) -> None:
        """Add the next samples of the sound to the measured peak, loudness and first and last audible frame."""
        import numpy as np

        if not len(block):
            return
        levels = np.abs(block).max(axis=1)
        self.peak = max(self.peak, float(levels.max()))
        loud = np.flatnonzero(levels > self._threshold)
        if len(loud):
            self.last = self.frames + int(loud[-1])
            self.first = self.first if self.first >= 0 else self.frames + int(loud[0])
        if len(self._response):
            self._add_power((self._filter(block) ** 2) @ self._weights)
        self.frames += len(block)

    def _add_power(self, power: Samples) -> None:
        at = 0
        while at < len(power):
            end = min(len(power), _boundary(len(self._powers), self._rate) - self.frames)
            self._powers[-1] += float(power[at:end].sum())
            at = end
            if self.frames + at == _boundary(len(self._powers), self._rate):
                self._powers.append(0.0)

    def _filter(self, block: Samples) -> Samples:
        import numpy as np

        joined = np.concatenate([self._tail, block])
        self._tail = joined[len(block) :]
        size = 1 << (len(joined) + len(self._response) - 1).bit_length()
        spectrum = np.fft.rfft(joined, size, axis=0) * np.fft.rfft(self._response, size)[:, None]
        filtered: Samples = np.fft.irfft(spectrum, size, axis=0)[len(self._response) - 1 : len(joined)]
        return filtered

    @property
    def loudness(self) -> float:
        """Integrated loudness in LUFS, -inf for silence; a sound shorter than 0.4 s is measured as one block without gates."""
        whole = self._powers[:-1]
        lengths = [_boundary(number + 1, self._rate) - _boundary(number, self._rate) for number in range(len(whole))]
        blocks = [sum(whole[at : at + 4]) / sum(lengths[at : at + 4]) for at in range(len(whole) - 3)]
        if not blocks:
            return _level(sum(self._powers) / max(1, self.frames))
        audible = [each for each in blocks if _level(each) > _ABSOLUTE_GATE]
        if not audible:
            return -math.inf
        gate = _level(sum(audible) / len(audible)) + _RELATIVE_GATE
        loud = [each for each in audible if _level(each) > gate]
        return _level(sum(loud) / len(loud))


def _boundary(number: int, rate: int) -> int:
    """Return the first frame of a block of 0.1 s; blocks are numbered from 0."""
    return (number * rate + 5) // 10


def _level(power: float) -> float:
    return _OFFSET + 10 * math.log10(power) if power > 0 else -math.inf


def _make_response(rate: int) -> Samples:
    """Return the impulse response of the shelving filter followed by the high-pass filter."""
    import numpy as np

    frequency, gain, quality = _SHELF
    k = math.tan(math.pi * frequency / rate)
    high = 10 ** (gain / 20)
    band = high**0.4996667741545416
    a0 = 1 + k / quality + k * k
    shelf = (
        [(high + band * k / quality + k * k) / a0, 2 * (k * k - high) / a0, (high - band * k / quality + k * k) / a0],
        [2 * (k * k - 1) / a0, (1 - k / quality + k * k) / a0],
    )
    frequency, quality = _HIGH_PASS
    k = math.tan(math.pi * frequency / rate)
    a0 = 1 + k / quality + k * k
    high_pass = [1.0, -2.0, 1.0], [2 * (k * k - 1) / a0, (1 - k / quality + k * k) / a0]
    signal = [1.0] + [0.0] * (int(rate * _RESPONSE_S) - 1)
    for (b0, b1, b2), (a1, a2) in (shelf, high_pass):
        x1 = x2 = y1 = y2 = 0.0
        for index, x in enumerate(signal):
            y = b0 * x + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2
            x1, x2, y1, y2 = x, x1, y, y1
            signal[index] = y
    return np.array(signal)
