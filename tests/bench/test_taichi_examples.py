"""The comparison with Taichi's examples: what a program leaves, and what counts as the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench import taichi_examples

PROGRAM = """\
import time
import taichi as ti

ti.init(arch=ti.gpu)
x = ti.Vector.field(2, ti.f32, 8)
window = ti.ui.Window("x", (64, 64))

class Solver:
    def __init__(self):
        self.steps = ti.field(ti.i32, ())

solver = Solver()

@ti.kernel
def step(t: ti.f32):
    for i in x:
        x[i] += ti.Vector([ti.random(), t])
    solver.steps[None] += 1

while window.running:
    step(time.time())
    window.get_canvas().circles(x, radius=0.1)
    window.show()
"""


def left_by(folder: Path, program: str, name: str) -> Path:
    source, output = folder / f"{name}.py", folder / f"{name}.npz"
    source.write_text(program)
    command = [sys.executable, taichi_examples.__file__, str(source), "--worker", "octants"]
    subprocess.run([*command, "--output", str(output)], check=True, timeout=120, cwd=folder)
    return output


def test_a_program_ends_after_its_frames(tmp_path: Path) -> None:
    one = left_by(tmp_path, PROGRAM, "one")
    with np.load(one) as found:
        assert set(found.files) == {"x", "solver.steps"}
        assert found["x"].dtype == np.float64
        assert found["solver.steps"] == taichi_examples.FRAMES
        assert found["x"][3, 1] == pytest.approx(0.01 * sum(range(taichi_examples.FRAMES)))
        assert len(set(found["x"][:, 0])) == 8
    again = left_by(tmp_path, PROGRAM, "again")
    assert taichi_examples.differences(one, again, "f64") == []
    other = left_by(tmp_path, PROGRAM.replace(", t]", ", 2 * t]"), "other")
    assert "x:" in "".join(taichi_examples.differences(one, other, "f64"))


def test_what_differs(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    x = np.linspace(0.0, 1.0, 200)
    np.savez(a, x=x, y=np.array([1.0, np.nan]), n=3)
    np.savez(b, x=np.where(np.arange(200) == 7, 5.0, x), y=np.array([1.0, 2.0]), m=3)
    found = taichi_examples.differences(a, b, "f64")
    assert [each.split(":")[0] for each in found] == [
        "m is in one of them only", "n is in one of them only", "x", "y",
    ]  # fmt: skip
    assert not any(each.startswith("x") for each in taichi_examples.differences(a, b, "f32"))
