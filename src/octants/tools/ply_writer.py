"""Vertices and faces in PLY files: `PLYWriter`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octants.diagnostics.exceptions import OctantsWarning

_TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "<i2",
    "ushort": "<u2",
    "int": "<i4",
    "uint": "<u4",
    "float": "<f4",
    "double": "<f8",
}
_CORNERS = {"tri": 3, "quad": 4}


class PLYWriter:
    """The vertices of a mesh or of particles, with channels such as positions and colours.

    Args:
        num_vertices: How many vertices there are.
        num_faces: How many faces there are.
        face_type: ``"tri"`` or ``"quad"``.
        comment: A line of the file's head.

    Raises:
        ValueError: If `face_type` is another one.

    Example:
        >>> writer = qd.tools.PLYWriter(num_vertices=len(x))
        >>> writer.add_vertex_pos(x[:, 0], x[:, 1], x[:, 2])
        >>> writer.export_frame(10, "particles.ply")  # particles_000010.ply
    """

    def __init__(
        self,
        num_vertices: int,
        num_faces: int = 0,
        face_type: str = "tri",
        comment: str = "created by PLYWriter",
    ) -> None:
        if face_type not in _CORNERS:
            raise ValueError(f'face_type is "tri" or "quad", not {face_type!r}')
        self.num_vertices, self.num_faces = num_vertices, num_faces
        self.comment = comment
        self._corners = _CORNERS[face_type]
        self._vertices: list[tuple[str, str, npt.NDArray[Any]]] = []
        self._faces: list[tuple[str, str, npt.NDArray[Any]]] = []
        self._indices: npt.NDArray[Any] | None = None

    def add_vertex_channel(self, key: str, data_type: str, data: Any) -> None:
        """Add a number for each vertex.

        Args:
            key: The name of the channel.
            data_type: One of ``char``, ``uchar``, ``short``, ``ushort``, ``int``, ``uint``,
                ``float``, ``double``.
            data: Of shape (num_vertices,).

        Raises:
            ValueError: If there are more or fewer numbers. A type that is not in the list is a
                warning, and the channel is left out.
        """
        self._vertices += _channels(key, data_type, data, self.num_vertices)

    def add_vertex_pos(self, x: Any, y: Any, z: Any) -> None:
        """Add positions."""
        self._add("float", x=x, y=y, z=z)

    def add_vertex_normal(self, nx: Any, ny: Any, nz: Any) -> None:
        """Add normals."""
        self._add("float", nx=nx, ny=ny, nz=nz)

    def add_vertex_vel(self, vx: Any, vy: Any, vz: Any) -> None:
        """Add velocities."""
        self._add("float", vx=vx, vy=vy, vz=vz)

    def add_vertex_color(self, r: Any, g: Any, b: Any) -> None:
        """Add colours, as floats from 0 to 1."""
        self._add("float", red=r, green=g, blue=b)

    def add_vertex_alpha(self, alpha: Any) -> None:
        """Add opacities."""
        self._add("float", Alpha=alpha)

    def add_vertex_rgba(self, r: Any, g: Any, b: Any, a: Any) -> None:
        """Add colours and opacities, as floats from 0 to 1."""
        self.add_vertex_color(r, g, b)
        self.add_vertex_alpha(a)

    def add_vertex_id(self) -> None:
        """Number the vertices."""
        self._add("int", id=np.arange(self.num_vertices))

    def add_vertex_piece(self, piece: Any = None) -> None:
        """Say to which piece each vertex belongs; all to the first if nothing is said."""
        self._add("int", piece=np.ones(self.num_vertices) if piece is None else piece)

    def add_faces(self, indices: Any) -> None:
        """Add the vertices of each face, of shape (num_faces, corners), or flat.

        Raises:
            ValueError: If there are more or fewer indices than faces have corners.
        """
        flat = np.asarray(indices).astype("<i4").reshape(-1)
        if flat.size != self.num_faces * self._corners:
            raise ValueError(
                f"{self.num_faces} faces have {self.num_faces * self._corners} corners,"
                f" not {flat.size}"
            )
        self._indices = flat.reshape(self.num_faces, self._corners)

    def add_face_channel(self, key: str, data_type: str, data: Any) -> None:
        """Add a number for each face; see `add_vertex_channel`."""
        self._faces += _channels(key, data_type, data, self.num_faces)

    def add_face_id(self) -> None:
        """Number the faces."""
        self.add_face_channel("id", "int", np.arange(self.num_faces))

    def add_face_piece(self, piece: Any = None) -> None:
        """Say to which piece each face belongs; all to the first if nothing is said."""
        values = np.ones(self.num_faces) if piece is None else piece
        self.add_face_channel("piece", "int", values)

    def sanity_check(self) -> None:
        """Raise a ValueError if positions are missing, or faces were promised and are not there."""
        names = {key for key, _, _ in self._vertices}
        if not {"x", "y", "z"} <= names:
            raise ValueError("there are no positions: call add_vertex_pos")
        if self.num_faces and self._indices is None:
            raise ValueError("there are no faces: call add_faces")

    def export(self, path: str) -> None:
        """Write a binary file."""
        self.sanity_check()
        content = [self._head("binary_little_endian"), self._records(self._vertices).tobytes()]
        if self.num_faces:
            content.append(self._face_records().tobytes())
        Path(path).write_bytes(b"".join(content))

    def export_ascii(self, path: str) -> None:
        """Write a file of text."""
        self.sanity_check()
        rows = [*self._records(self._vertices).tolist()]
        if self._indices is not None:
            others = self._records(self._faces).tolist() if self._faces else [()] * self.num_faces
            faces = zip(self._indices.tolist(), others, strict=True)
            rows += [(self._corners, *corners, *other) for corners, other in faces]
        lines = (" ".join(map(repr, row)) for row in rows)
        Path(path).write_bytes(self._head("ascii") + "".join(f"{x}\n" for x in lines).encode())

    def export_frame(self, series_num: int, path: str) -> None:
        """Write a binary file whose name has a number, ``name_000010.ply``."""
        self.export(_numbered(path, series_num))

    def export_frame_ascii(self, series_num: int, path: str) -> None:
        """Write a file of text whose name has a number."""
        self.export_ascii(_numbered(path, series_num))

    def _add(self, data_type: str, **channels: Any) -> None:
        for key, data in channels.items():
            self.add_vertex_channel(key, data_type, data)

    def _head(self, encoding: str) -> bytes:
        lines = ["ply", f"format {encoding} 1.0", f"comment {self.comment}"]
        lines.append(f"element vertex {self.num_vertices}")
        lines += [f"property {kind} {key}" for key, kind, _ in self._vertices]
        if self.num_faces:
            lines.append(f"element face {self.num_faces}")
            lines.append("property list uchar int vertex_indices")
            lines += [f"property {kind} {key}" for key, kind, _ in self._faces]
        return "\n".join([*lines, "end_header", ""]).encode()

    def _records(self, channels: list[tuple[str, str, npt.NDArray[Any]]]) -> npt.NDArray[Any]:
        kinds = [(key, _TYPES[kind]) for key, kind, _ in channels]
        records = np.empty(len(channels[0][2]), dtype=kinds)
        for key, _, values in channels:
            records[key] = values
        return records

    def _face_records(self) -> npt.NDArray[Any]:
        kinds: list[Any] = [("count", "u1"), ("indices", "<i4", (self._corners,))]
        records = np.empty(
            self.num_faces, dtype=kinds + [(key, _TYPES[kind]) for key, kind, _ in self._faces]
        )
        records["count"], records["indices"] = self._corners, self._indices
        for key, _, values in self._faces:
            records[key] = values
        return records


def _channels(
    key: str, data_type: str, data: Any, count: int
) -> list[tuple[str, str, npt.NDArray[Any]]]:
    """A channel, or none with a warning if files of this format cannot hold its type."""
    if data_type not in _TYPES:
        warnings.warn(
            f"channel {key!r} is left out: there is no type {data_type!r}, there are"
            f" {', '.join(_TYPES)}",
            OctantsWarning,
            stacklevel=3,
        )
        return []
    values = np.asarray(data.to_numpy() if hasattr(data, "to_numpy") else data).reshape(-1)
    if values.size != count:
        raise ValueError(f"channel {key!r} has {values.size} numbers; there are {count}")
    return [(key, data_type, values)]


def _numbered(path: str, number: int) -> str:
    name = Path(path)
    return str(name.with_name(f"{name.stem}_{number:06}.ply"))
