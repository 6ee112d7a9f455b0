"""Numbers on a grid in VTK files: `write_vtk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_NAMES = {"f": "Float", "i": "Int", "u": "UInt"}

_HEAD = """\
<?xml version="1.0"?>
<VTKFile type="RectilinearGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">
  <RectilinearGrid WholeExtent="{extent}">
    <Piece Extent="{extent}">
      <Coordinates>
{coordinates}
      </Coordinates>
      <PointData Scalars="scalars">
        <DataArray type="{kind}" Name="scalars" format="appended" offset="0"/>
      </PointData>
    </Piece>
  </RectilinearGrid>
  <AppendedData encoding="raw">
   _"""
_TAIL = "\n  </AppendedData>\n</VTKFile>\n"


def write_vtk(scalar_field: Any, filename: str) -> str:
    """Write numbers on a grid for ParaView and other programs that read VTK.

    The grid's points are the indices of the elements. The file is a rectilinear grid with the
    point data ``scalars``.

    Args:
        scalar_field: A field or ndarray of numbers, or a numpy array, with two or three axes.
        filename: The name of the file; ``.vtr`` is added.

    Returns:
        The name of the file that was written.

    Raises:
        ValueError: If there are not two or three axes.

    Example:
        >>> qd.tools.write_vtk(density, f"density_{frame:06d}")
    """
    values = np.asarray(
        scalar_field.to_numpy() if hasattr(scalar_field, "to_numpy") else scalar_field
    )
    if values.ndim not in (2, 3):
        raise ValueError(f"a grid has two or three axes, and these numbers have {values.ndim}")
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    shape = (*values.shape, 1)[:3]
    kind = f"{_NAMES[values.dtype.kind]}{8 * values.dtype.itemsize}"
    head = _HEAD.format(
        extent=" ".join(f"0 {size - 1}" for size in shape),
        coordinates="\n".join(map(_coordinates, "xyz", shape)),
        kind=kind,
    )
    data = values.tobytes(order="F")  # the first index runs fastest
    path = Path(f"{filename}.vtr")
    size = len(data).to_bytes(8, "little")
    path.write_bytes(head.encode() + size + data + _TAIL.encode())
    return str(path)


def _coordinates(axis: str, size: int) -> str:
    numbers = " ".join(map(str, range(size)))
    return f'        <DataArray type="Float64" Name="{axis}" format="ascii">{numbers}</DataArray>'
