"""What the driver has compiled is kept, and loaded again where it fits; on a fake GPU."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import octants as qd
from octants import driver
from octants.backends import cuda as backend
from octants.backends.table import backend_of
from octants.runtime.cuda.device import CudaDevice
from tests.runtime.cuda.fake_cuda import BINARY, Call, FakeCuda
from tests.runtime.cuda.kernels import Dispatch, artifact, launch
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]


def run_twice(call: Call) -> None:
    numbers(call, 4, int(call.slots[3]))[:] *= 2


def start(gpu: Gpu, cache: Path) -> None:
    """A new process, as far as kernels can tell: it finds nothing but the cache."""
    gpu.fake.kernels["twice"] = run_twice
    driver._artifacts.clear()
    vars(backend_of("cuda")).pop("_version", None)
    gpu.init(offline_cache=True, offline_cache_file_path=str(cache))
    gpu.fake.calls.clear()


def use() -> None:
    """Make a kernel, and launch it."""

    @qd.kernel
    def twice(a: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            a[i] *= 2.0

    a = qd.ndarray(qd.f32, 3)
    a.fill(1.0)
    twice(a)
    assert a.to_numpy().tolist() == [2, 2, 2]


def test_a_kernel_is_linked_once(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(gpu, tmp_path)
    use()
    assert gpu.fake.calls["cuLinkComplete"] == gpu.fake.calls["cuModuleLoadDataEx"] == 1
    assert gpu.fake.calls["cuLinkDestroy"] == 1
    monkeypatch.setattr(backend.CudaBackend, "begin_compile", None)  # nothing is compiled
    start(gpu, tmp_path)
    use()
    assert gpu.fake.calls["cuLinkComplete"] == 0
    assert gpu.fake.calls["cuModuleLoadDataEx"] == 1


def test_another_driver_makes_its_own(gpu: Gpu, tmp_path: Path) -> None:
    linked = []
    for version in (13000, 13010, 13000):
        gpu.library.driver_version = version
        start(gpu, tmp_path)
        use()
        linked.append(gpu.fake.calls["cuLinkCreate"])
    assert linked == [1, 1, 0]


def test_what_the_gpu_does_not_take_is_compiled_from_ptx() -> None:
    fake = FakeCuda(capability=(8, 9))
    fake.kernels["t"] = lambda call: None
    device = CudaDevice(library=fake.library())
    made = artifact("t", [Dispatch("t", 0)], 0)
    for binary in (BINARY + b" for 9.0\nentry t 24\n", b"no code"):
        launch(device.load(dataclasses.replace(made, binary=binary)))
        device.synchronize()
    assert len(fake.launches) == 2
    assert not fake.problems


def test_a_damaged_file_is_made_anew(gpu: Gpu, tmp_path: Path) -> None:
    start(gpu, tmp_path)
    use()
    qd.reset()
    for path in tmp_path.glob("*.octants"):
        content = path.read_bytes()
        path.write_bytes(content[:-20] + b"?" * 20)
    start(gpu, tmp_path)
    with pytest.warns(qd.OctantsWarning, match="damaged"):
        use()
    assert gpu.fake.calls["cuLinkComplete"] == 1


START = """
import sys
from octants.runtime.cuda import launch_context
from tests.runtime.cuda.fake_cuda import FakeCuda
library = FakeCuda(kernels={"octants_twice_task_0": lambda call: None}).library()
launch_context.driver_library = lambda: library
import octants as qd
qd.init(arch=qd.cuda, log_level="error", offline_cache=True, offline_cache_file_path=sys.argv[1])

@qd.kernel
def twice(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] *= 2.0

twice(qd.ndarray(qd.f32, 3))
qd.sync()
print(*sorted(sys.modules))
"""


def test_a_warm_start_imports_no_compiler(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(START)
    command = [sys.executable, str(program), str(tmp_path / "cache")]
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root}", "OCTANTS_OFFLINE_CACHE": "1"}
    found = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    cold, warm = (set(each.stdout.split()) for each in found)
    assert {"llvmlite.binding", "octants.frontend", "octants.codegen.llvm.nvptx"} <= cold
    assert not {"llvmlite.binding", "octants.frontend", "octants.codegen.llvm.nvptx"} & warm
