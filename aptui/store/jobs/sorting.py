"""The order of many numbers; what they stand for is not known here.

Tests: `tests/store/jobs/test_sorting.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from aptui.store.jobs.texts import Codes


def argsort(keys: npt.NDArray[np.int64]) -> Codes:
    """Return the stable order of `keys`.

    Numpy sorts 16 bits in linear time: two digits are faster than a sort of keys with their places in the low bits, which is
    faster than sorting places by keys.
    """
    count = len(keys)
    if not count:
        return np.empty(0, np.int32)
    bits = count.bit_length()
    least = keys.min()
    span = int(keys.max()) - int(least)
    if span < 1 << 32:
        digits = (keys - least).astype(np.uint32)
        low: Codes = np.argsort(digits.astype(np.uint16), kind="stable").astype(np.int32)
        return low[np.argsort((digits >> 16).astype(np.uint16)[low], kind="stable")] if span >> 16 else low
    if span >= 1 << (62 - bits):
        return np.argsort(keys, kind="stable").astype(np.int32)
    packed = (keys - least) << bits
    packed |= np.arange(count, dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    order: Codes = packed.astype(np.int32)
    return order
