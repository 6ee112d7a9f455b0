"""Run the examples that Taichi installs on Octants, and compare the numbers: real programs.

    python bench/taichi_examples.py                     all of them
    python bench/taichi_examples.py mpm88 stable_fluid  some of them
    python bench/taichi_examples.py --arch vulkan       Octants on another device

The examples lie in the package ``taichi``, which must be installed; nothing but the import of the
package is changed, with these exceptions, the same for both systems, so that their numbers can be
compared. Windows draw nothing, and end the program after some frames. Random numbers come from a
counter, and the clock from another one; there is one thread. Floats are f64, since f32 differs
visibly after a few steps of a chaotic system; f32 where Taichi cannot do that. There is no
`fast_math`: a division that is off by a bit selects another pixel.

What a program leaves in fields, arrays and numbers of its module, or of objects there, is compared
by `TOLERANCES`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

SYSTEMS = ("octants", "taichi")
TOLERANCES = {"f64": (1e-6, 1e-4), "f32": (1e-3, 0.01)}
"""How far an element may be off, in parts of the largest one, and which part of all may be further:
pixels at the edge of a fractal, say."""
AT_REST = 1e-3
"""Energies and residuals near a state at rest are sums that cancel: less counts as this much."""
FRAMES = 3
PATIENCE = 300.0  # seconds for a program
NEEDS_OTHERS = {
    "circle_packing_image": "cairo and OpenCV",
    "diff_sph": "trained weights that are not installed",
    "export_videos": "ffmpeg, and images of an earlier run",
    "euler": "an older matplotlib",
    "taichi_ngp": "OpenCV and a download",
}
REFUSED = {
    "oit_renderer": "38 GiB: lists of 2048 elements in each of a million pixels",
    "print_offset": "`get_addr`, which Quadrants does not have",
    "simple_texture": "`Texture`, which Quadrants does not have",
    "texture_graph": "`Texture`, which Quadrants does not have",
}
"""Programs that Octants does not run, and why."""

NOTHING_TO_COMPARE = {
    "differential_evolution": "it does not end",
    "fullscreen": "a window alone",
    "gui_widgets": "a window alone",
    "keyboard": "a window alone",
    "gui_image_io": "an image that a window would have shown",
    "sdf_renderer": "minutes for a frame on a CPU",
}


def examples() -> Path:
    """The folder of Taichi's examples."""
    spec = find_spec("taichi")
    if spec is None or spec.origin is None:
        sys.exit("Taichi is not installed: pip install taichi")
    return Path(spec.origin).parent / "examples"


ROUNDED = {"implicit_fem": {"F_mul_ans", "F_p0", "F_r0"}}
"""Fields of iterative solvers that amplify rounding; what they solve for is compared."""


class Done(BaseException):
    """All frames have been shown."""


class _Names(type):
    """Gives a class an attribute for each name in capitals: keys and buttons."""

    def __getattr__(cls, name: str) -> str:
        if not name.isupper():
            raise AttributeError(name)
        return name


class Stub(metaclass=_Names):
    """A window, camera or widget: takes every call, draws nothing, ends the program."""

    shown = 0
    value = 0.0
    running = True
    frame = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        """A key or button in capitals, or a method that returns what a user who waits would."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return name
        return lambda *given, **_: self._called(name, given)

    def _called(self, name: str, given: tuple[Any, ...]) -> Any:
        if name == "show":
            Stub.shown += 1
            if Stub.shown == FRAMES:
                raise Done
        if name == "get_events":
            return []
        if name == "get_cursor_pos":
            return (0.5, 0.5)
        if name in ("get_event", "is_pressed", "button", "checkbox"):
            return False
        if name in ("slider_float", "color_edit_3"):
            return given[1]
        return Stub()


def run(system: str, source: Path, arch: str, floats: str, output: Path) -> None:
    """Run a program in this process, and write down the numbers that it leaves."""
    ti: Any = __import__(system)
    text = source.read_text()
    program: Any = types.ModuleType("__main__")
    if system == "octants":
        text = re.sub(r"\btaichi\b", "octants", text)
        _provide("octants.examples", "")
        for folder in source.parents:
            if (folder / "patterns.py").exists():  # funcs that some programs import
                funcs = (folder / "patterns.py").read_text()
                _provide("octants.examples.patterns", funcs.replace("taichi as", "octants as"))
    text = re.sub(r"\bf32\b", floats, text)
    text = re.sub(r"\bti\.randn?(om)?\([^()]*\)", "_random()", text)
    text = re.sub(r"\btime\.(time|time_ns|perf_counter)\(\)", "_clock()", text)
    start, clock = ti.init, iter(range(10**9))

    def init(*_: Any, **given: Any) -> None:
        given |= {"arch": getattr(ti, arch if system == "octants" else "cpu"), "random_seed": 0}
        given |= {"cpu_max_num_threads": 1, "fast_math": False, "offline_cache": False}
        start(**given | {"default_fp": getattr(ti, floats)})
        program._random = _random_of(ti)

    ti.init, ti.GUI, program._clock = init, Stub, lambda: next(clock) * 0.01
    ti.ui = types.SimpleNamespace(**{**vars(ti.ui), **dict.fromkeys(_WINDOWS, Stub)})
    _execute(program, source, text, output.parent)
    np.savez(output, **dict(_numbers(program, "", 0)))


_WINDOWS = ("Window", "Camera", "Scene", "make_camera")


def _provide(name: str, text: str) -> None:
    made: Any = types.ModuleType(name)
    made.__path__ = []
    sys.modules[name] = made
    if text:
        path = Path(tempfile.mkdtemp()) / "module.py"  # its source is read again by kernels
        path.write_text(text)
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(made))


def _random_of(ti: Any) -> Any:
    numbers = ti.field(ti.i32, shape=())

    @ti.func
    def draw():
        number = ti.atomic_add(numbers[None], 1)
        return (ti.cast((number * 7919 + 13) % 1009, ti.f64) + 0.5) / 1009.0

    return draw


def _execute(program: Any, source: Path, text: str, folder: Path) -> None:
    path = folder / source.name
    path.write_text(text)
    program.__file__, sys.argv = str(path), [str(path)]
    sys.modules["__main__"] = program
    sys.path.insert(0, str(source.parent))
    np.random.seed(0)
    random.seed(0)
    with contextlib.suppress(Done, SystemExit):
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(program))


def _numbers(holder: Any, prefix: str, depth: int) -> Any:
    for name, value in list(vars(holder).items()):
        if name.startswith("_") or isinstance(value, Stub):
            continue
        if hasattr(value, "to_numpy"):
            found = value.to_numpy()
            for member, array in found.items() if isinstance(found, dict) else [("", found)]:
                yield f"{prefix}{name}.{member}".rstrip("."), np.asarray(array)
        elif isinstance(value, (np.ndarray, float, int)):
            yield prefix + name, np.asarray(value)
        elif depth < 2 and type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
            yield from _numbers(value, f"{prefix}{name}.", depth + 1)


def differences(one: Path, other: Path, floats: str, left_out: Collection[str] = ()) -> list[str]:
    """What two systems left that is not the same."""
    with np.load(one, allow_pickle=True) as a, np.load(other, allow_pickle=True) as b:
        names = sorted({*a.files, *b.files} - {*left_out})
        return [text for name in names if (text := _difference(name, a, b, floats))]


def _difference(name: str, a: Any, b: Any, floats: str) -> str:
    if name not in a or name not in b:
        return f"{name} is in one of them only"
    x, y = a[name], b[name]
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype} {x.shape}, {y.dtype} {y.shape}"
    if x.dtype.kind not in "fiub":
        return ""
    tolerance, may_be_off = TOLERANCES[floats]
    x, y = np.float64(x), np.float64(y)
    with np.errstate(all="ignore"):
        most = max(float(np.max(np.abs(y[~np.isnan(y)]), initial=0.0)), AT_REST)
        same = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance * most)
        if np.mean(~same) <= may_be_off:
            return ""
        return f"{name}: {np.mean(~same):.1%} of the elements, largest {most:.1e}"


def compare(source: Path, arch: str, folder: Path) -> str:
    """A line about a program: its seconds on both systems, and what differs."""
    line = ""
    for floats in TOLERANCES:
        seconds = {}
        for system in reversed(SYSTEMS):  # what Taichi cannot do in f64 is tried in f32
            begin = time.perf_counter()
            error = _run(system, source, arch, floats, folder)
            seconds[system] = time.perf_counter() - begin
            if error:
                line = f"FAILED in {system}: {error}"
                break
        else:
            left_out = ROUNDED.get(source.stem, set())
            one, other = (folder / f"{system}.npz" for system in SYSTEMS)
            found = differences(one, other, floats, left_out)
            times = ", ".join(f"{system} {seconds[system]:.1f} s" for system in SYSTEMS)
            return f"{floats}, {times}: {'DIFFERENT ' + '; '.join(found) if found else 'the same'}"
        if system == "octants":
            break
    return line


def _run(system: str, source: Path, arch: str, floats: str, folder: Path) -> str:
    """Run a program in a process; gives the last line of what it said if it failed."""
    command = [sys.executable, __file__, str(source), "--worker", system, "--arch", arch]
    command += ["--floats", floats, "--output", str(folder / f"{system}.npz")]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE,
            cwd=folder, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it took more than {PATIENCE:.0f} s"
    said = (result.stdout + result.stderr).strip().splitlines() or ["nothing was said"]
    return said[-1] if result.returncode else ""


def main() -> None:
    """Compare the programs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--floats", default="f64", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run(options.worker, Path(options.names[0]), options.arch, options.floats, options.output)
        os._exit(0)  # what threads of a system do at the end of the process is of no interest
    failed = 0
    for source in sorted(examples().rglob("*.py")):
        name = source.stem
        if name.startswith("__") or (options.names and name not in options.names):
            continue
        reason = (NEEDS_OTHERS | REFUSED | NOTHING_TO_COMPARE).get(name)
        if reason is None:
            with tempfile.TemporaryDirectory() as folder:
                line = compare(source, options.arch, Path(folder))
            failed += "FAILED" in line or "DIFFERENT" in line
        else:
            line = f"not run: {reason}"
        print(f"{source.parent.name}/{name}: {line}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
