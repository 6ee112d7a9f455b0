"""What the CPU runtime does on macOS and Windows, as far as Linux can show it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from octants import options
from octants.codegen.llvm import cpu
from octants.runtime.cpu import CpuDevice, system_limits
from octants.runtime.cpu.loader import executable
from octants.runtime.cpu.loader.elf import ObjectFile
from octants.runtime.cpu.loader.relocations import Refused
from octants.runtime.cpu.native import assembly
from octants.runtime.cpu.native import linking as native
from octants.runtime.cpu.native.structures import Pool, ThreadContext
from octants.target import Target
from tests.codegen.compiled import Compiled
from tests.runtime.kernels import endless, increment, rounded_down

APPLE, WINDOWS = "arm64-apple-darwin", "x86_64-pc-windows-msvc"


def run_increment() -> None:
    data = {"x": np.zeros(1000, np.int32)}
    device = CpuDevice(2)
    Compiled(increment(), device).run(data)
    device.close()
    np.testing.assert_array_equal(data["x"], np.arange(1, 1001))


# -- machine code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_loader_is_for_linux(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", system)
        with pytest.raises(Refused, match="not Linux"):
            executable._functions.__wrapped__()


def test_elsewhere_llvm_loads_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    by_llvm: Any = native._linked_by_llvm
    monkeypatch.setattr(native, "_linked_by_llvm", lambda *a: asked.append(1) or by_llvm(*a))
    monkeypatch.setattr(executable, "_functions", refuse)
    run_increment()
    assert asked


def refuse() -> Any:
    raise Refused("this is not Linux")


@pytest.mark.parametrize("triple", [APPLE, WINDOWS])
def test_object_files_of_other_systems_are_for_llvm(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic")
    text = f'target triple = "{triple}"\ndefine i32 @run() {{ ret i32 3 }}\n'
    with pytest.raises(Refused, match="no object file"):
        ObjectFile(machine.emit_object(llvm.parse_assembly(text, llvm.create_context())))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists its pages")
def test_llvm_makes_no_page_writable_and_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    def pages() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line.split()[0] for line in lines if line.split()[1].startswith("rwx")}

    before = pages()
    monkeypatch.setattr(executable, "_functions", refuse)
    run_increment()
    assert pages() <= before


@pytest.fixture
def fragmented_memory() -> Iterator[None]:
    """Adjacent pages are free only far from everything: a page of its own is free near by."""
    memory: Any = ctypes.CDLL(None)
    memory.mmap.restype = ctypes.c_void_p
    word, number = ctypes.c_size_t, ctypes.c_int
    memory.mmap.argtypes = [ctypes.c_void_p, word, number, number, number, ctypes.c_int64]
    memory.munmap.argtypes = [ctypes.c_void_p, word]
    with ExitStack() as stack:

        def reserve(nbytes: int) -> int:
            address = memory.mmap(None, nbytes, 0, 0x4022, -1, 0)  # private, anonymous, no swap
            stack.callback(memory.munmap, address, nbytes)
            return int(address)

        far, nbytes, last = reserve(1 << 34), 1 << 33, 0
        while nbytes >= os.sysconf("SC_PAGESIZE"):
            if (address := reserve(nbytes)) < far:
                nbytes >>= 1
            else:
                last = address
        memory.munmap(last, os.sysconf("SC_PAGESIZE"))
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="where pages are is known of Linux only")
def test_llvm_loads_machine_code_into_fragmented_memory(
    monkeypatch: pytest.MonkeyPatch, fragmented_memory: None
) -> None:
    """LLVM's older linker ended the process: it maps sections one by one, here 16 GB apart."""
    monkeypatch.setattr(executable, "_functions", refuse)
    run_increment()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM links code of its own machine")
@pytest.mark.parametrize(
    ("system", "triple", "prefix"),
    [("darwin", "x86_64-apple-darwin", "_"), ("win32", WINDOWS, "")],
    ids=["macos", "windows"],
)
def test_llvm_links_machine_code_of_other_systems(system: str, triple: str, prefix: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Target("cpu", triple, "x86-64", "")
    kernels = [cpu.compile_module(each, target) for each in (endless("while"), rounded_down())]
    assert b"floor" in kernels[1].code, "a function of the C library is called"
    files = [
        *((kernel.code, dict(kernel.metadata)["entries"]) for kernel in kernels),
        (native.compile_support(system, triple), assembly.EXPORTS),
    ]
    never_called = 0x10000  # as far from the code as libraries of Windows are
    names = {*native.implied_symbols(), *assembly.symbols(system), *assembly.PYTHON_SYMBOLS}
    symbols = {prefix + name: never_called for name in {*names, "__chkstk"}}
    for code, exports in files:
        wanted = [prefix + name for name in exports]
        library = native._linked_by_llvm(code, wanted, symbols)
        addresses = [library[name] for name in wanted]
        assert all(addresses) and max(addresses) - min(addresses) < len(code)


# -- threads --------------------------------------------------------------------------------------


def test_the_code_of_macos_refers_to_posix_only() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(APPLE).create_target_machine(reloc="pic")
    text = assembly.support_text("arm64", "darwin")
    module = llvm.parse_assembly(f'target triple = "{APPLE}"\n{text}', llvm.create_context())
    module.verify()
    wanted = {each.name for each in module.functions if each.is_declaration}
    known = {*assembly.symbols("darwin"), *assembly.PYTHON_SYMBOLS}
    assert {name for name in wanted if not name.startswith("llvm.")} <= known
    assert machine.emit_object(module)


SIZES_OF_MACOS = {
    "mutex": 64,  # pthread_mutex_t
    "wake": 48,  # pthread_cond_t
    "done": 48,
    "attributes": 64,  # pthread_attr_t
    "all_signals": 4,  # sigset_t
    "old_signals": 4,
}


@pytest.mark.parametrize("name", SIZES_OF_MACOS)
def test_the_structures_of_macos_fit(name: str) -> None:
    assert getattr(Pool, name).size >= SIZES_OF_MACOS[name]


def test_the_structures_of_signals_fit() -> None:
    most = 16 + 8 * ctypes.sizeof(ctypes.c_void_p)  # 16 bytes on macOS, 152 on Linux
    assert ThreadContext.saved.size == ThreadContext.changed.size >= max(most, 152)


# -- folders and memory ---------------------------------------------------------------------------

FOLDERS = {
    ("darwin", "posix"): ("home", "Library", "Caches", "octants"),
    ("win32", "nt"): ("local", "octants"),
    ("linux", "posix"): ("home", ".cache", "octants"),
}


@pytest.mark.parametrize("system", FOLDERS, ids=lambda system: system[0])
def test_the_folder_of_the_cache(system: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTANTS_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCALAPPDATA", "local")
    monkeypatch.setattr(os.path, "expanduser", lambda _: "home")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", system[0])
        patch.setattr(options.os, "name", system[1])
        found = options.default_cache_directory()
    assert found == "/".join(FOLDERS[system])


def test_a_system_that_does_not_say_how_much_memory_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(system_limits, "_read", lambda _: "")
    assert options.memory_of_the_machine.__wrapped__() == 8 << 30
    assert system_limits.memory_bytes() == 1 << 40


def test_a_system_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(system_limits, "_read", lambda _: "")
    assert system_limits.thread_count() == 7
