"""The language of the CPU's native runtime: functions in it compute what Python computes."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from octants.runtime.cpu.native import language
from octants.runtime.cpu.native.linking import link
from octants.runtime.cpu.native.structures import Pool

SOURCE = """
def octants_choose(a, b):
    one = a if a > b or not b else b + 1
    return one * 2 if a and b and a < 100 else -one

def octants_count(a, b):
    total = number = 0
    while True:
        number, total = number + 1, total + a // b % 7
        if number == b or total > 100:
            break
    return total << 3 | (number & 5)

def octants_extremes(a, b):
    calls = 0
    if a == 0 and count_calls() or b == 0:
        calls = 16
    return min(a, -b) + max(a, -b) * 1000 + calls

def count_calls():
    return 0
"""
ATOMICS = """
def octants_update(pool):
    pool.threads, pool.next = -3, 5
    before = atomic_add(pool.threads, 10, seq_cst)
    if exchanges(pool.next, 5, pool.threads, acquire) and not exchanges(pool.next, 5, 1, acq_rel):
        atomic_store(pool.stop, before, release)
        pool.mutex[1] = atomic_sub(pool.next, 1, monotonic)
        memcpy(pool.wake, pool.mutex, 16)
        memset(pool.mutex, 255, 8)
"""


def compiled(source: str, name: str, *types: type) -> Callable[..., int]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, reloc="pic")
    text = language.translate(source, platform.machine())
    module = llvm.parse_assembly(text, llvm.create_context())
    library = link(machine.emit_object(module), [name], {})
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *types)(library[name])
    function.library = library  # type: ignore[attr-defined]
    return function


@pytest.mark.parametrize("name", ["octants_choose", "octants_count", "octants_extremes"])
def test_functions_of_numbers_are_those_of_python(name: str) -> None:
    function = compiled(SOURCE, name, ctypes.c_int64, ctypes.c_int64)
    scope: dict[str, Callable[..., int]] = {}
    exec(SOURCE, scope)
    for a, b in [(0, 1), (1, 1), (5, 3), (3, 5), (250, 4), (99, 2), (0, 9), (7, 100)]:
        assert function(a, b) == int(scope[name](a, b)), (a, b)


def test_fields_are_updated() -> None:
    pool = Pool()
    compiled(ATOMICS, "octants_update", ctypes.c_void_p)(ctypes.addressof(pool))
    assert (pool.threads, pool.next, pool.stop) == (7, 6, -3)
    mutex, wake = (Pool.mutex.offset, Pool.wake.offset)
    memory = memoryview(pool).cast("B")
    assert memory[mutex : mutex + 8] == b"\xff" * 8 and not any(memory[wake : wake + 8])
    assert memory[wake + 8 : wake + 16] == (7).to_bytes(8, "little")
