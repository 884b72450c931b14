"""Vectors as they are kept: half-precision numbers, little-endian.

The law of the file: nothing here needs numpy; what searches many vectors at once imports it itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def packed(vector: Sequence[float]) -> bytes:
    """Two bytes for each number."""
    return struct.pack(f"<{len(vector)}e", *vector)


def unpacked(blob: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(blob) // 2}e", blob)
