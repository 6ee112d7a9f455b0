"""The threads of the CPU runtime on Windows, over functions of Windows that are fakes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.native import assembly, windows_threads
from octants.runtime.cpu.native import linking as native
from tests.codegen.compiled import Compiled
from tests.metal.cpp import built
from tests.runtime.kernels import increment

OF_WINDOWS = [name for name in windows_threads.SYMBOLS if name not in ("realloc", "free")]


def test_kernels_run_on_several_threads() -> None:
    source = (Path(__file__).parent / "windows_threads.cpp").read_text()
    library = ctypes.CDLL(str(built("windows_threads", source, ["-O1"])))
    functions = {name: ctypes.cast(library[name], ctypes.c_void_p).value for name in OF_WINDOWS}
    device = CpuDevice(4, support=native.Support(functions, "win32"))  # type: ignore[arg-type]
    assert device.threads == 4 and not device.support.has_signals
    kernel = Compiled(increment(), device)
    for round_ in range(2):
        data = {"x": np.zeros(300_001, np.int32)}
        for _ in range(30):
            kernel.run(data)
        np.testing.assert_array_equal(data["x"], 30 * np.arange(1, 300_002))
        assert library.count_calls() == 3 * (round_ + 1)
        device.pool.stop()
    device.close()


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"])
def test_the_code_of_windows_refers_to_functions_of_windows_only(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic")
    text = assembly.support_text(triple.split("-", maxsplit=1)[0], "win32")
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}', llvm.create_context())
    module.verify()
    wanted = {each.name for each in module.functions if each.is_declaration}
    known = {*windows_threads.SYMBOLS, *assembly.PYTHON_SYMBOLS}
    assert {name for name in wanted if not name.startswith("llvm.")} == known
    assert machine.emit_object(module)
