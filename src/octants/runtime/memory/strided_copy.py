"""Copies rows at equal distances, for devices without strided copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from octants.runtime.device import Bytes, Device


def copy_rows(
    device: Device,
    target: int,
    target_step: int,
    source: int,
    source_step: int,
    nbytes: int,
    rows: int,
) -> None:
    """Implements `Device.copy_rows` through the host: reads everything, and writes the gaps back,
    too.
    """
    given = np.empty((rows - 1) * source_step + nbytes, np.uint8)
    changed = np.empty((rows - 1) * target_step + nbytes, np.uint8)
    device.read(source, given)
    device.read(target, changed)
    _rows(changed, target_step, nbytes, rows)[...] = _rows(given, source_step, nbytes, rows)
    device.write(target, changed)


def _rows(memory: Bytes, step: int, nbytes: int, rows: int) -> Bytes:
    return as_strided(memory, (rows, nbytes), (step, 1))
