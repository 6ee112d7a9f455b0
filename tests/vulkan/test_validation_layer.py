"""What Vulkan's validation layer says of our calls, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vulkan import compiled

_LAYER = "VK_LAYER_KHRONOS_validation"
_FOLDERS = ("/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan")

PROGRAMS = """
import octants as qd

qd.init(arch=qd.vulkan, debug=True, offline_cache=False)
device = qd.driver.state.device
x, loss = qd.field(qd.f32, shape=40, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
a = qd.ndarray(qd.f64, 7)

@qd.kernel
def run(n: qd.i32):
    for i in x:
        v = x[i]
        for _ in range(n):
            v = qd.sin(v) + 0.1
        loss[None] += v

@qd.kernel
def nothing(n: qd.i32):
    _ = n + 1

for n in (3, 400):
    with qd.ad.Tape(loss=loss):
        run(n)
a.fill(2.0)
assert a.to_numpy().sum() == 14.0
assert x.grad[0] != 0.0
nothing(3)
for _ in range(2):  # commands that cannot be recorded
    assert device.queue.record(device.queue.flush, 64) is None
made = device.queue.record(lambda: None, 64)
for _ in range(2):
    made.submit()
qd.sync()
device.queue.recycle(made)
"""
WRONG = """
from octants.runtime.vulkan.queue import fill_of

with device.queue.lock:
    device.queue.fill([fill_of(device.queue.open().arena.buffer, 2, 4)])
qd.sync()
"""


def _is_installed() -> bool:
    given = os.environ.get("VK_LAYER_PATH", "").split(os.pathsep)
    folders = [Path(each) for each in given if each]
    folders += [Path(each, "explicit_layer.d") for each in _FOLDERS]
    return any(_LAYER in file.read_text() for each in folders for file in each.glob("*.json"))


def messages(text: str, folder: Path) -> str:
    """What the layer prints of a program."""
    compiled.device()  # or skip
    if not _is_installed():
        pytest.skip("the layer is not installed")
    program = folder / "program.py"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "VK_INSTANCE_LAYERS": _LAYER},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_are_valid(tmp_path: Path) -> None:
    assert messages(PROGRAMS, tmp_path) == ""


def test_what_is_wrong_is_printed(tmp_path: Path) -> None:
    found = messages(PROGRAMS + WRONG, tmp_path)
    assert "vkCmdFillBuffer" in found and "multiple of 4" in found
