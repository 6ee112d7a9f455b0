"""A second process: what it does not even import, and that nothing of the first one is needed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys
if "PLAIN" in os.environ:  # a processor with no more than all of its kind have
    from octants.backends import cpu
    from octants.target import Target
    cpu.processor = lambda: "a plain one"
    cpu.llvmlite_driver.host_target = lambda ask=cpu.llvmlite_driver.host_target: Target(
        ask().arch, ask().triple, os.environ["PLAIN"], ""
    )
import numpy as np
import octants as qd
qd.init(arch=qd.cpu, log_level="error")
N = 3
x = qd.field(qd.f32, shape=4, needs_grad=True)
loss = qd.field(qd.f32, shape=(), needs_grad=True)

@qd.func
def power(v):
    r = qd.static(float(N.bit_length() - 1))
    for _ in range(N):
        r *= v
    return r

@qd.data_oriented
class Model:
    def __init__(self):
        self.scale = 0.5
        self.weights = [1.0, 2.0]
        self.fields = {"x": x}

    @qd.kernel
    def run(self, a: qd.types.ndarray()):
        for i in self.fields["x"]:
            for w in qd.static(self.weights):
                loss[None] += power(x[i]) * self.scale * w * a[i]

@qd.kernel
def add_squares():
    for i in x:
        loss[None] += x[i] ** 2

x.fill(2.0)
a = np.ones(4, np.float32)
with qd.ad.Tape(loss=loss):
    Model().run(a)
found = [float(loss[None]), x.grad.to_numpy().tolist()]
add_squares.grad()
compiler = [name for name in sys.modules if name.startswith("octants.frontend")]
compiler += [name for name in sys.modules if name.startswith("octants.autodiff")]
compiler += [name for name in ("octants.pipeline", "octants.codegen.llvm.cpu", "octants.ir.ops")
             if name in sys.modules]
if sys.platform == "linux":  # elsewhere LLVM loads the code
    compiler += [name for name in sys.modules if name == "llvmlite.binding"]
print(json.dumps([*found, compiler]))
"""


def run(folder: Path, seed: str, **more: str) -> list[Any]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    environment = {
        **os.environ,
        "OCTANTS_OFFLINE_CACHE": "1",
        "OCTANTS_CACHE_DIR": str(folder / "cache"),
        "PYTHONHASHSEED": seed,
        **more,
    }
    command = [sys.executable, "-W", "error", "-W", "ignore:OCT429:", str(script)]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert not result.returncode, result.stderr
    answer: list[Any] = json.loads(result.stdout)
    return answer


@pytest.mark.parametrize("options", [{}, {"OCTANTS_SIMD": "auto"}], ids=["plain", "lanes"])
def test_a_second_process_needs_no_compiler(tmp_path: Path, options: dict[str, str]) -> None:
    loss, gradient, compiler = run(tmp_path, "1", **options)
    assert (loss, gradient) == (48.0, [18.0] * 4)
    assert "octants.frontend" in compiler
    for seed in ("2", "3"):
        assert run(tmp_path, seed, **options) == [loss, gradient, []]


def test_different_processors_share_a_folder(tmp_path: Path) -> None:
    """Each of them compiles its own code, once, in any order."""
    plain = {"x86_64": "x86-64", "amd64": "x86-64"}.get(platform.machine().lower(), "generic")
    for needed in (True, False):
        for more in ({}, {"PLAIN": plain}):
            loss, gradient, compiler = run(tmp_path, "1", **more)
            assert (loss, gradient) == (48.0, [18.0] * 4)
            assert ("octants.pipeline" in compiler) is needed
    for more in ({"PLAIN": plain}, {}):
        assert "octants.pipeline" in run(tmp_path, "1", OCTANTS_OPT_LEVEL="1", **more)[-1]
