"""Scenes of three dimensions: particles, meshes and lines, the farthest drawn first."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octants.internal_members import internal
from octants.ui.picture import Array, Picture, from_floats, to_array
from octants.ui.vertex_arrays import GREY, colours, each, groups, rows


class ProjectionMode(enum.Enum):
    """How a camera sees: things far away are smaller, or not."""

    Perspective = 0
    Orthogonal = 1


class Camera:
    """The point and the direction from which a scene is seen."""

    def __init__(self) -> None:
        self.curr_position = np.array([0.0, 0.0, 0.0])
        self.curr_lookat = np.array([0.0, 0.0, 1.0])
        self.curr_up = np.array([0.0, 1.0, 0.0])
        self._mode = ProjectionMode.Perspective
        self._fov, self._near, self._far = 45.0, 0.1, 1000.0
        self._sides = {"left": -1.0, "right": 1.0, "top": 1.0, "bottom": -1.0}

    def position(self, x: float, y: float, z: float) -> None:
        """Set the point (`x`, `y`, `z`) where the camera is."""
        self.curr_position = np.array([x, y, z], float)

    def lookat(self, x: float, y: float, z: float) -> None:
        """Set the point (`x`, `y`, `z`) that the camera looks at."""
        self.curr_lookat = np.array([x, y, z], float)

    def up(self, x: float, y: float, z: float) -> None:
        """Set the direction (`x`, `y`, `z`) that is upwards in the picture."""
        self.curr_up = np.array([x, y, z], float)

    def projection_mode(self, mode: ProjectionMode) -> None:
        """Set how the camera sees: `ProjectionMode.Perspective` or `Orthogonal`."""
        self._mode = mode

    def fov(self, fov: float) -> None:
        """The angle of vision from bottom to top, in degrees."""
        self._fov = float(fov)

    def left(self, left: float) -> None:
        """The left side of an orthogonal view."""
        self._sides["left"] = float(left)

    def right(self, right: float) -> None:
        """The right side of an orthogonal view."""
        self._sides["right"] = float(right)

    def top(self, top: float) -> None:
        """The upper side of an orthogonal view."""
        self._sides["top"] = float(top)

    def bottom(self, bottom: float) -> None:
        """The lower side of an orthogonal view."""
        self._sides["bottom"] = float(bottom)

    def z_near(self, z_near: float) -> None:
        """The least distance of visible objects."""
        self._near = float(z_near)

    def z_far(self, z_far: float) -> None:
        """The greatest distance of visible objects."""
        self._far = float(z_far)

    def track_user_inputs(self, window: Any, **speeds: Any) -> None:
        """Do nothing: there is no user who moves the camera."""

    def get_view_matrix(self) -> Array:
        """The matrix from the world to the camera, of shape (4, 4), for rows of points."""
        right, up, back = self._axes()
        matrix = np.eye(4)
        matrix[:3, 0], matrix[:3, 1], matrix[:3, 2] = right, up, back
        matrix[3, :3] = -self.curr_position @ matrix[:3, :3]
        return matrix

    @internal
    def project(self, points: Array, aspect: float) -> tuple[Array, Array, Array]:
        """Project points of shape (n, 3) to the unit square.

        Returns:
            The points in the picture (n, 2), how far away they are (n,), and how long a unit of
            length looks there, in heights of the picture (n,).
        """
        right, up, back = self._axes()
        away = points - self.curr_position
        x, y, depth = away @ right, away @ up, -(away @ back)
        if self._mode is ProjectionMode.Orthogonal:
            width = self._sides["right"] - self._sides["left"]
            height = self._sides["top"] - self._sides["bottom"]
            seen = np.stack(
                [(x - self._sides["left"]) / width, (y - self._sides["bottom"]) / height], 1
            )
            return seen, depth, np.full(len(points), 1.0 / height)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = 0.5 / (np.tan(np.radians(self._fov) / 2.0) * depth)
        return np.stack([0.5 + scale * x / aspect, 0.5 + scale * y], 1), depth, scale

    @internal
    def sees(self, depth: Array) -> Array:
        """Whether things are between the nearest and the farthest that is seen."""
        return (depth > self._near) & (depth < self._far)

    def _axes(self) -> tuple[Array, Array, Array]:
        back = _unit(self.curr_position - self.curr_lookat)
        right = _unit(np.cross(self.curr_up, back))
        return right, np.cross(back, right), back


def make_camera() -> Camera:
    """A camera, as older programs make it."""
    return Camera()


@dataclass
class Shapes:
    """Things of one kind: particles with one corner each, lines with two, triangles with three.

    Args:
        corners: Of shape (n, corners, 3).
        sizes: Radii in units of the world, or widths of lines in pixels, of shape (n,).
        colours: Floats from 0 to 1, of shape (n, 3).
    """

    corners: Array
    sizes: Array
    colours: Array

    def lit(self, ambient: float, lights: list[Array]) -> Array:
        """The colours, of shape (n, 3), in the light: what faces a light is brighter."""
        if self.corners.shape[1] == 2 or not lights:
            return self.colours
        bright = np.full(len(self.corners), ambient)
        if self.corners.shape[1] == 1:
            bright += 0.6 * len(lights)
        else:
            first, second, third = self.corners.swapaxes(0, 1)
            normals = _unit(np.cross(second - first, third - first))
            for light in lights:
                towards = _unit(light - self.corners.mean(axis=1))
                bright += 0.8 * np.abs((normals * towards).sum(axis=1))
        colours: Array = self.colours * np.minimum(bright, 1.2)[:, None]
        return colours


@dataclass
class Scene:
    """Things to be drawn, the lights, and the camera.

    Vertices have the shape (n, 3), in units of the world; colours are floats from 0 to 1. Arguments
    that several methods have:

    Args:
        color: the colour of all, of three floats.
        per_vertex_color: the colours of the vertices, of shape (n, 3), instead of `color`.
        vertices: the points, of shape (n, 3).
        indices: the numbers of the vertices of each line or triangle; without it they are taken in
            order.
        vertex_offset: the first vertex to draw.
        vertex_count: how many to draw; all by default.
        index_offset: the first index to draw.
        index_count: how many indices to draw; all by default.

    Attributes:
        shapes: what is drawn next.
        lights: the points that light comes from.
        ambient: the brightness without a light, from 0 to 1.
        camera: where the scene is seen from.
    """

    shapes: list[Shapes] = field(default_factory=list)
    lights: list[Array] = field(default_factory=list)
    ambient: float = 0.2
    camera: Camera = field(default_factory=Camera)

    def set_camera(self, camera: Camera) -> None:
        """See the scene from a camera."""
        self.camera = camera

    def ambient_light(self, color: Any) -> None:
        """Light from everywhere."""
        self.ambient = float(np.mean(color))

    def point_light(self, pos: Any, color: Any) -> None:
        """Light from the point `pos`. It is white: `color` is ignored."""
        self.lights.append(np.asarray(pos, float))

    def particles(
        self,
        centers: Any,
        radius: float,
        color: Any = GREY,
        per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
        index_offset: int = 0,
        index_count: int | None = None,
    ) -> None:
        """Balls at points.

        Args:
            centers: of shape (n, 3).
            radius: of all, in units of the world.
            color: the colour of all, of three floats.
            per_vertex_color: the colours of the balls, of shape (n, 3), instead of `color`.
            per_vertex_radius: the radii of the balls, of shape (n,), instead of `radius`.
            index_offset: the first ball to draw.
            index_count: how many to draw; all by default.
        """
        points = rows(centers)
        shades = colours(color, per_vertex_color, len(points))
        radii = each(radius if per_vertex_radius is None else per_vertex_radius, len(points))
        chosen = groups(None, len(points), 1, index_offset, index_count)
        self.shapes.append(Shapes(points[chosen], radii[chosen[:, 0]], shades[chosen[:, 0]]))

    def lines(
        self,
        vertices: Any,
        width: float,
        indices: Any = None,
        color: Any = GREY,
        per_vertex_color: Any = None,
        vertex_offset: int = 0,
        vertex_count: int | None = None,
        index_offset: int = 0,
        index_count: int | None = None,
    ) -> None:
        """Lines between pairs of vertices.

        Args:
            width: in pixels.
        """
        every = rows(vertices)
        shades = colours(color, per_vertex_color, len(every))
        points = _some(every, vertex_offset, vertex_count)
        shades = _some(shades, vertex_offset, vertex_count)
        self._add(points, shades, groups(indices, len(points), 2, index_offset, index_count), width)

    def mesh(
        self,
        vertices: Any,
        indices: Any = None,
        normals: Any = None,
        color: Any = GREY,
        per_vertex_color: Any = None,
        two_sided: bool = False,
        vertex_offset: int = 0,
        vertex_count: int | None = None,
        index_offset: int = 0,
        index_count: int | None = None,
        show_wireframe: bool = False,
    ) -> None:
        """Triangles of three vertices each.

        Args:
            normals: ignored; the light is that of flat triangles.
            two_sided: ignored; both sides of a triangle are drawn.
            show_wireframe: draw only the edges.
        """
        every = rows(vertices)
        shades = colours(color, per_vertex_color, len(every))
        points = _some(every, vertex_offset, vertex_count)
        shades = _some(shades, vertex_offset, vertex_count)
        corners = groups(indices, len(points), 3, index_offset, index_count)
        if show_wireframe:
            for sides in ([0, 1], [1, 2], [2, 0]):
                self._add(points, shades, corners[:, sides], 1.0)
        else:
            self._add(points, shades, corners, 0.0)

    def mesh_instance(
        self, vertices: Any, *arguments: Any, transforms: Any = None, **named: Any
    ) -> None:
        """A mesh drawn once for each of the matrices `transforms`, of shape (n, 4, 4).

        A vertex, as a row, times the matrix is where it is drawn. The other arguments are those of
        `mesh`, with ``instance_offset`` and ``instance_count`` for the first matrix and the number
        of matrices.
        """
        first = named.pop("instance_offset", 0)
        count = named.pop("instance_count", None)
        if transforms is None:
            self.mesh(vertices, *arguments, **named)
            return
        matrices = to_array(transforms).reshape(-1, 4, 4)
        points = rows(vertices)
        for matrix in matrices[first : None if count is None else first + count]:
            self.mesh(points @ matrix[:3, :3] + matrix[3, :3], *arguments, **named)

    @internal
    def draw(self, picture: Picture) -> None:
        """Draw everything into a picture, and empty the scene for the next frame."""
        seen = Scene(self.shapes, self.lights, self.ambient, copy.deepcopy(self.camera))
        self.shapes, self.lights = [], []
        if seen.shapes:
            picture.later(lambda: seen.project(picture))

    @internal
    def project(self, picture: Picture) -> None:
        """Add what the camera sees to a picture, the farthest first."""
        aspect = picture.width / picture.height
        flat: list[tuple[Array, Array, Array, Array]] = []
        for shapes in self.shapes:
            number, corners, _ = shapes.corners.shape
            points, depth, scale = self.camera.project(shapes.corners.reshape(-1, 3), aspect)
            depth = depth.reshape(number, corners)
            shown = self.camera.sees(depth).all(axis=1)
            sizes = shapes.sizes
            if corners == 1:
                sizes = np.maximum(0.5, sizes * scale * picture.height)
            colours = from_floats(shapes.lit(self.ambient, self.lights))
            points = points.reshape(number, corners, 2)
            flat.append((points[shown], sizes[shown], colours[shown], depth[shown].mean(axis=1)))
        far = np.concatenate([depth for _, _, _, depth in flat])
        kinds = np.repeat(np.arange(len(flat)), [len(depth) for _, _, _, depth in flat])
        rows = np.concatenate([np.arange(len(depth)) for _, _, _, depth in flat])
        order = np.argsort(-far, kind="stable")
        breaks = np.flatnonzero(np.diff(kinds[order])) + 1
        for run in np.split(order, breaks) if len(order) else ():
            points, sizes, colours, _ = (column[rows[run]] for column in flat[kinds[run[0]]])
            _put(picture, points, sizes, colours)

    def _add(self, points: Array, shades: Array, corners: Array, size: float) -> None:
        sizes = np.full(len(corners), size)
        self.shapes.append(Shapes(points[corners], sizes, shades[corners[:, 0]]))


def _put(picture: Picture, points: Array, sizes: Array, colours: Array) -> None:
    if points.shape[1] == 1:
        picture.circles(points[:, 0], sizes, colours)
    elif points.shape[1] == 2:
        picture.lines(points, sizes, colours)
    else:
        picture.polygons(points, colours)


def _some(values: Array, first: int, number: int | None) -> Array:
    """The rows from one on, all of them or some."""
    return values[first : None if number is None else first + number]


def _unit(vectors: Array) -> Array:
    """Vectors of shape (.., 3), each with length 1, or 0 as before."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0.0, 1.0, length)
