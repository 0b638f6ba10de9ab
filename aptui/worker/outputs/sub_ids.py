"""Sub ids: which product of its source one is. Builders choose them; here they are made for commands, and all are checked.

Tests: `tests/worker/commands/test_command.py`, `tests/worker/test_run.py`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from aptui.sdk import JobProduct
from aptui.worker.answers import AnswerRefused


def command_sub_ids(names: Sequence[str]) -> list[int]:
    """Return the sub ids of a command's products: 0 for a single one, else of each the CRC-32 of its file name in lower case."""
    if len(names) == 1:
        return [0]
    return [zlib.crc32(os.fsencode(os.path.basename(name).lower())) for name in names]


def check_sub_id(product: JobProduct, paths: dict[int, str]) -> None:
    """Note the sub id of a product in `paths` {sub id: path}.

    Raises:
        AnswerRefused: it is not a number of 32 bits, or another product has it.
    """
    if not isinstance(product.sub_id, int) or not 0 <= product.sub_id < 1 << 32:
        raise AnswerRefused(f"product {product.path!r} has the sub id {product.sub_id!r}, which is not a number of 32 bits")
    if product.sub_id in paths:
        raise AnswerRefused(f"products {paths[product.sub_id]!r} and {product.path!r} have the same sub id {product.sub_id}")
    paths[product.sub_id] = product.path
