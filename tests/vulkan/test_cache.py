"""What is kept on disk: SPIR-V, and what a driver has made of it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsWarning
from octants.runtime.vulkan import VulkanDevice, pipelines
from tests.vulkan import compiled

PROGRAM = """
import sys
import octants as qd
qd.init(arch=qd.vulkan, offline_cache=True, offline_cache_file_path=sys.argv[1])
x, y = (qd.field(qd.f32, shape=(), needs_grad=True) for _ in range(2))
@qd.kernel
def power(n: qd.i32):
    v = 1.0
    for _ in range(n):
        v = v * x[None]
    y[None] = v
x[None] = 2.0
with qd.ad.Tape(loss=y):
    power(4)
print(x.grad[None], any(name.startswith("octants.codegen") for name in sys.modules))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    compiled.device()  # or skip
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if k != "OCTANTS_OFFLINE_CACHE"}
    command = [sys.executable, str(script), str(tmp_path / "cache")]
    for compiles in (True, False):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.stdout.split() == ["32.0", str(compiles)], done.stderr


# -- data of drivers ------------------------------------------------------------------------------


class Driver:
    """A driver that would have its data again; `given` are those that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[bytes] = []
        self.data = b""
        make = pipelines.Pipeline._make

        def note(program: Any, module: int, known: bytes) -> bytes:
            self.given.append(known)
            return make(program, module, b"")

        monkeypatch.setattr(pipelines.Pipeline, "_make", note)
        monkeypatch.setattr(pipelines, "_data_of", lambda *_: self.data)

    def run(self, folder: Path) -> None:
        """Run one kernel, whose pipelines are created again."""
        qd.init(arch=qd.vulkan, offline_cache_file_path=str(folder), offline_cache=True)

        @qd.kernel
        def fill(a: qd.types.NDArray[qd.f32, 1]):
            for i in a:
                a[i] = 3.0

        device = qd.driver.state.device
        assert isinstance(device, VulkanDevice)
        device.programs.clear()
        a = qd.ndarray(qd.f32, 3)
        fill(a)
        assert a.to_numpy().tolist() == [3.0] * 3
        qd.reset()


def head_of(device: Any, version: int = 1, vendor: int = 0) -> bytes:
    properties = device.hardware.properties
    words = 32, version, properties.vendor + vendor, properties.device
    return struct.pack("<4I16s", *words, bytes(properties.cache))


def test_data_of_a_driver_are_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch)
    driver.data = head_of(compiled.device()) + b"what it knows"
    driver.run(tmp_path)
    driver.run(tmp_path)
    assert driver.given == [b"", driver.data]


@pytest.mark.parametrize("wrong", [{"version": 2}, {"vendor": 1}], ids=str)
def test_data_of_another_driver_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: dict[str, int]
) -> None:
    driver = Driver(monkeypatch)
    driver.data = head_of(compiled.device(), **wrong) + b"what it knows"
    driver.run(tmp_path)
    driver.data = head_of(compiled.device()) + b"what it knows"
    driver.run(tmp_path)
    driver.run(tmp_path)
    assert driver.given == [b"", b"", driver.data]


def test_damaged_data_are_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch)
    driver.data = head_of(compiled.device()) + b"what it knows"
    driver.run(tmp_path)
    (file,) = tmp_path.glob("*-pipelines.octants")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(OctantsWarning, match="damaged"):
        driver.run(tmp_path)
    assert driver.given == [b"", b""]
    driver.run(tmp_path)
    assert driver.given[-1] == driver.data


def test_nothing_is_kept_for_a_driver_that_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch)
    driver.run(tmp_path)
    assert not list(tmp_path.glob("*-pipelines.octants"))
