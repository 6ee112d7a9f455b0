"""Scenes of three dimensions: particles, meshes and lines, the farthest drawn first."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octants.ui.picture import Array, Colour, Picture, from_floats, to_array
from octants.ui.vertices import GREY, colours, each, groups, rows


class ProjectionMode(enum.Enum):
    """How a camera sees: things far away are smaller, or not."""

    Perspective = 0
    Orthogonal = 1


class Camera:
    """Where a scene is seen from."""

    def __init__(self) -> None:
        self.curr_position = np.array([0.0, 0.0, 0.0])
        self.curr_lookat = np.array([0.0, 0.0, 1.0])
        self.curr_up = np.array([0.0, 1.0, 0.0])
        self._mode = ProjectionMode.Perspective
        self._fov, self._near, self._far = 45.0, 0.1, 1000.0
        self._sides = {"left": -1.0, "right": 1.0, "top": 1.0, "bottom": -1.0}

    def position(self, x: float, y: float, z: float) -> None:
        """Where the camera is."""
        self.curr_position = np.array([x, y, z], float)

    def lookat(self, x: float, y: float, z: float) -> None:
        """What it looks at."""
        self.curr_lookat = np.array([x, y, z], float)

    def up(self, x: float, y: float, z: float) -> None:
        """What is upwards in the picture."""
        self.curr_up = np.array([x, y, z], float)

    def projection_mode(self, mode: ProjectionMode) -> None:
        """How the camera sees."""
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
        """What is nearer is not seen."""
        self._near = float(z_near)

    def z_far(self, z_far: float) -> None:
        """What is farther away is not seen."""
        self._far = float(z_far)

    def track_user_inputs(self, window: Any, **speeds: Any) -> None:
        """Do nothing: nobody moves the camera."""

    def get_view_matrix(self) -> Array:
        """The matrix from the world to the camera, of shape (4, 4), for rows of places."""
        right, up, back = self._axes()
        matrix = np.eye(4)
        matrix[:3, 0], matrix[:3, 1], matrix[:3, 2] = right, up, back
        matrix[3, :3] = -self.curr_position @ matrix[:3, :3]
        return matrix

    def project(self, places: Array, aspect: float) -> tuple[Array, Array, Array]:
        """Where places of shape (n, 3) are seen in the unit square.

        Returns:
            The places in the picture (n, 2), how far away they are (n,), and how long a unit of
            length looks there, in heights of the picture (n,).
        """
        right, up, back = self._axes()
        away = places - self.curr_position
        x, y, depth = away @ right, away @ up, -(away @ back)
        if self._mode is ProjectionMode.Orthogonal:
            width = self._sides["right"] - self._sides["left"]
            height = self._sides["top"] - self._sides["bottom"]
            seen = np.stack(
                [(x - self._sides["left"]) / width, (y - self._sides["bottom"]) / height], 1
            )
            return seen, depth, np.full(len(places), 1.0 / height)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = 0.5 / (np.tan(np.radians(self._fov) / 2.0) * depth)
        return np.stack([0.5 + scale * x / aspect, 0.5 + scale * y], 1), depth, scale

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
class Shape:
    """Corners of something to be drawn: one for a particle, two for a line, three for a triangle.

    `size` is a radius in units of the world, or the width of a line in pixels.
    """

    corners: Array
    size: float
    colour: Any


@dataclass
class Scene:
    """Things to be drawn, the lights, and the camera."""

    shapes: list[Shape] = field(default_factory=list)
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
        """Light from a place."""
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
        """Balls at places of shape (n, 3)."""
        places = rows(centers)
        shades = colours(color, per_vertex_color, len(places))
        radii = each(radius if per_vertex_radius is None else per_vertex_radius, len(places))
        for k in groups(None, len(places), 1, index_offset, index_count)[:, 0]:
            self.shapes.append(Shape(places[k : k + 1], float(radii[k]), shades[k]))

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
        """Lines between pairs of places of shape (n, 3), or those that `indices` name."""
        every = rows(vertices)
        shades = colours(color, per_vertex_color, len(every))
        places = _some(every, vertex_offset, vertex_count)
        shades = _some(shades, vertex_offset, vertex_count)
        for pair in groups(indices, len(places), 2, index_offset, index_count):
            self.shapes.append(Shape(places[pair], width, shades[pair[0]]))

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
        """Triangles of places of shape (n, 3), or those that `indices` name."""
        every = rows(vertices)
        shades = colours(color, per_vertex_color, len(every))
        places = _some(every, vertex_offset, vertex_count)
        shades = _some(shades, vertex_offset, vertex_count)
        for corners in groups(indices, len(places), 3, index_offset, index_count):
            chosen = places[corners]
            if show_wireframe:
                for k in range(3):
                    self.shapes.append(Shape(chosen[[k, k - 1]], 1.0, shades[corners[0]]))
            else:
                self.shapes.append(Shape(chosen, 0.0, shades[corners[0]]))

    def mesh_instance(
        self, vertices: Any, *arguments: Any, transforms: Any = None, **named: Any
    ) -> None:
        """A mesh drawn once for each of the transforms of shape (n, 4, 4), rows times matrix."""
        first = named.pop("instance_offset", 0)
        count = named.pop("instance_count", None)
        if transforms is None:
            self.mesh(vertices, *arguments, **named)
            return
        matrices = to_array(transforms).reshape(-1, 4, 4)
        places = rows(vertices)
        for matrix in matrices[first : None if count is None else first + count]:
            self.mesh(places @ matrix[:3, :3] + matrix[3, :3], *arguments, **named)

    def draw(self, picture: Picture) -> None:
        """Draw everything into a picture, and empty the scene for the next frame."""
        shapes, self.shapes = self.shapes, []
        lights, self.lights = self.lights, []
        if not shapes:
            return
        aspect = picture.width / picture.height
        every = np.concatenate([shape.corners for shape in shapes])
        seen, depth, scale = self.camera.project(every, aspect)
        ends = np.cumsum([len(shape.corners) for shape in shapes])
        spans = [
            slice(end - len(shape.corners), end) for end, shape in zip(ends, shapes, strict=True)
        ]
        middles = np.array([depth[span].mean() for span in spans])
        for number in np.argsort(-middles):
            span, shape = spans[number], shapes[number]
            if self.camera.sees(depth[span]).all():
                colour = from_floats(self._lit(shape, lights))
                _put(picture, shape, seen[span], float(scale[span].mean()), colour)

    def _lit(self, shape: Shape, lights: list[Array]) -> Array:
        """The colour of a shape: what faces a light is brighter."""
        colour = np.asarray(shape.colour, float)
        if len(shape.corners) == 2 or not lights:
            return colour
        middle = shape.corners.mean(axis=0)
        bright = self.ambient
        for light in lights:
            if len(shape.corners) == 1:
                bright += 0.6
                continue
            normal = _unit(
                np.cross(shape.corners[1] - shape.corners[0], shape.corners[2] - shape.corners[0])
            )
            bright += 0.8 * abs(float(normal @ _unit(light - middle)))
        return colour * min(bright, 1.2)


def _put(picture: Picture, shape: Shape, seen: Array, scale: float, colour: Colour) -> None:
    if len(seen) == 1:
        picture.circle(seen[0], max(0.5, shape.size * scale * picture.height), colour)
    elif len(seen) == 2:
        picture.line(seen[0], seen[1], shape.size, colour)
    else:
        picture.polygon(seen, colour)


def _some(values: Array, first: int, number: int | None) -> Array:
    """The rows from one on, all of them or some."""
    return values[first : None if number is None else first + number]


def _unit(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
