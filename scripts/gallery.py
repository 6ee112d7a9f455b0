"""Draws the moving pictures of docs/examples.md: docs/images/examples/NAME.webp.

    PYTHONPATH=src python scripts/gallery.py [NAME ...]

Each is made from the program in examples/ of that name, and takes less than 100 kB. The script
needs matplotlib and pillow.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from PIL import Image

import octants as qd

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "images" / "examples"
MOST_BYTES = 100_000
Frames = Iterator[Image.Image]


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def drawn(width: float, height: float, draw: Callable[[Any], None], **kind: Any) -> Image.Image:
    """A picture of so many inches, on axes without ticks that fill it."""
    figure = Figure(figsize=(width, height), dpi=80)
    axes = figure.add_axes((0, 0, 1, 1), **kind)
    axes.set_axis_off()
    draw(axes)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def coloured(values: Any, palette: str, most: float, scale: int) -> Image.Image:
    """A field of numbers as a picture, with x to the right and y upwards."""
    shades = mpl.colormaps[palette](np.clip(values.T[::-1] / most, 0, 1))
    picture = Image.fromarray((255 * shades[..., :3]).astype(np.uint8))
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.BICUBIC)


def mpm() -> Frames:
    """The throw that the descent finds."""
    example = load("mpm")
    jelly, steps = example.make(2)
    jelly.target[None] = [0.7, 0.3]
    throw, _ = example.aim(jelly, steps, 13)
    jelly.prepare(throw)
    jelly.begin()
    for number in range(steps + 1):
        if number % 15 == 0:
            x = jelly.x.to_numpy()

            def draw(axes: Any, x: Any = x) -> None:
                axes.scatter(x[:, 0], x[:, 1], s=6, c=np.arange(len(x)), cmap="viridis", lw=0)
                axes.plot(0.7, 0.3, "x", color="#b3311d", markersize=10)
                axes.axhline(3 / 48, color="black", lw=1)
                axes.set(xlim=(0, 1), ylim=(0, 0.8))

            yield drawn(4, 3.2, draw)
        jelly.clear()
        jelly.to_grid()
        jelly.on_grid()
        jelly.from_grid()


def sph() -> Frames:
    """The dam breaks."""
    example = load("sph")
    dam = example.Dam(0.02)
    dam.gravity[None] = example.GRAVITY
    dam.fill_in()
    for number in range(3600):
        if number % 90 == 0:
            x, v = dam.x.to_numpy(), np.linalg.norm(dam.v.to_numpy(), axis=1)

            def draw(axes: Any, x: Any = x, v: Any = v) -> None:
                axes.scatter(x[:, 0], x[:, 1], s=7, c=v, cmap="viridis", vmin=0, vmax=3, lw=0)
                axes.set(xlim=(0, example.BOX[0]), ylim=(0, example.BOX[1]))

            yield drawn(4, 2.4, draw)
        dam.step()


def billiard() -> Frames:
    """The shot that the descent finds."""
    example = load("billiard")
    table, angles = example.aim(256, 60)
    best = int(table.simulate(angles).argmin())
    for seconds in np.linspace(0.0, example.SECONDS, 48):
        table.simulate(angles, float(seconds))
        places = table.last.to_numpy()[best]

        def draw(axes: Any, places: Any = places) -> None:
            axes.add_patch(Rectangle((0, 0), 9, 9, color="#2d6a4f"))
            for (x, y), colour in zip(
                places, ("white", "#f4a261", "#8ecae6", "#e63946"), strict=True
            ):
                axes.add_patch(Circle((x, y), example.RADIUS, color=colour))
            ring = Circle(example.TARGET, 1.4 * example.RADIUS, fill=False, lw=2)
            axes.add_patch(ring)
            axes.set(xlim=(0, example.WIDTH), ylim=(0, example.HEIGHT))

        yield drawn(4, 4 * example.HEIGHT / example.WIDTH, draw)


def lattice_boltzmann() -> Frames:
    """The speed of the flow around a disc, from rest."""
    channel = load("lattice_boltzmann").Channel(240, 80, obstacle=10.0)
    channel.tau[None] = 0.6
    channel.rest()
    solid = channel.solid.to_numpy() == 1
    frames = []
    for number in range(3600):
        channel.step()
        if number % 100 == 99:
            speed = np.linalg.norm(channel.velocity.to_numpy(), axis=-1)
            frames.append(np.where(solid, 0, speed))
    for speed in frames:
        yield coloured(speed, "magma", float(frames[-1].max()), 2)


def cloth_contact() -> Frames:
    """The cloth falls on the ball."""
    cloth = load("cloth_contact").Cloth(24)
    cloth.prepare(np.array([1.0, 0.0, -0.7]))
    for number in range(460):
        if number % 20 == 0:
            x = cloth.x.to_numpy()

            def draw(axes: Any, x: Any = x) -> None:
                axes.plot_surface(
                    x[..., 0], x[..., 2], x[..., 1], color="#c8553d", rstride=1, cstride=1
                )
                axes.set(xlim=(-0.45, 0.45), ylim=(-0.45, 0.45), zlim=(-0.4, 0.45))
                axes.view_init(25, -60)

            yield drawn(3.6, 3.2, draw, projection="3d")
        cloth.step()


def smoke() -> Frames:
    """The flow that the descent finds."""
    example = load("smoke")
    flow = example.Flow(40, 40)
    flow.first.from_numpy(example.blob(40, 0.3, 0.5))
    flow.target.from_numpy(example.blob(40, 0.6, 0.6))
    start, _ = example.steer(flow, 12, 40)
    flow.start.from_numpy(start)
    flow.begin()
    for _ in range(14):
        yield coloured(flow.smoke.to_numpy(), "Greys", 1.0, 6)
        flow.step()


MOVING = {
    each.__name__: each for each in (billiard, cloth_contact, lattice_boltzmann, mpm, smoke, sph)
}


def save(name: str, frames: list[Image.Image]) -> int:
    """Write an animation, as well as it goes in `MOST_BYTES`; returns its size."""
    path = FOLDER / f"{name}.webp"
    for quality in (60, 30, 10):
        frames[0].save(
            path,
            save_all=True,
            append_images=frames[1:],
            duration=60,
            loop=0,
            quality=quality,
            method=4,
        )
        if path.stat().st_size < MOST_BYTES:
            break
    else:
        raise ValueError(f"{name} is too large: {path.stat().st_size} bytes")
    return path.stat().st_size


def main(names: list[str]) -> None:
    """Draw some pictures, or all of them."""
    for name in names or MOVING:
        qd.init(arch=qd.cpu, default_fp=qd.f64, random_seed=1)
        print(f"{name}: {save(name, list(MOVING[name]()))} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
