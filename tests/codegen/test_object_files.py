"""Machine code is loaded without LLVM: what our code needs, and what is rejected."""

from __future__ import annotations

import ctypes
import gc
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from octants.codegen.llvm import cpu
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import Module
from octants.runtime.cpu.loader import elf, relocations
from octants.runtime.cpu.loader.elf import CODE, CONSTANTS, DATA, ObjectFile
from octants.runtime.cpu.loader.relocations import Refused
from octants.runtime.cpu.native import linking as native
from octants.target import Target
from octants.types.scalars import f32
from tests.codegen.compiled import TARGET, Compiled, ndarray, parallel
from tests.codegen.test_targets import ARM64, X64, everything

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere LLVM loads the code")


def objects(text: str, target: Target = TARGET) -> bytes:
    """The object file of LLVM IR."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        reloc="pic", codemodel="default"
    )
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    code: bytes = machine.emit_object(llvm.parse_assembly(head + text))
    return code


@pytest.fixture
def without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("LLVM is asked")

    monkeypatch.setattr(native, "_linked_by_llvm", fail)


def access(address: int) -> str:
    """What may be done with the memory at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, allowed = line.split()[:2]
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return allowed
    return ""


SUM = """
declare i32 @outside(i32)
@place = internal global i32 5
@numbers = internal constant [4 x i32] [i32 1, i32 20, i32 300, i32 4000]
@functions = internal constant [2 x ptr] [ptr @one, ptr @two]
define internal i32 @one(i32 %x) { ret i32 1 }
define internal i32 @two(i32 %x) { ret i32 %x }
define i32 @run(i32 %x) {
  %where = getelementptr i32, ptr @numbers, i32 %x
  %number = load i32, ptr %where
  %old = load i32, ptr @place
  %new = add i32 %old, 1
  store i32 %new, ptr @place
  %rest = and i32 %x, 1
  %entry = getelementptr ptr, ptr @functions, i32 %rest
  %function = load ptr, ptr %entry
  %given = call i32 %function(i32 %x)
  %far = call i32 @outside(i32 %given)
  %some = add i32 %number, %far
  %all = add i32 %some, %old
  ret i32 %all
}
define ptr @address() { ret ptr @outside }
define double @half(double %x) {
  %y = fmul double %x, 5.0e-1
  ret double %y
}
define i32 @choose(i32 %x) {
  switch i32 %x, label %other [ i32 0, label %a  i32 1, label %b  i32 2, label %c
                                i32 3, label %d  i32 4, label %e  i32 5, label %f ]
a: call i32 @outside(i32 0)
  br label %other
b: call i32 @outside(i32 9)
  br label %other
c: call i32 @outside(i32 8)
  br label %other
d: ret i32 9
e: call i32 @outside(i32 7)
  br label %other
f: ret i32 2
other: ret i32 77
}
"""


def test_calls_tables_constants_and_data(without_llvm: None) -> None:
    seen: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)
    def outside(x: int) -> int:
        seen.append(x)
        return 100_000 * x

    address = ctypes.cast(outside, ctypes.c_void_p).value or 0
    exports = ("run", "address", "half", "choose")
    loaded = native.link(objects(SUM), exports, {"outside": address})
    integer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)
    run, choose = integer(loaded["run"]), integer(loaded["choose"])
    assert [run(0), run(3), run(1)] == [100_006, 304_006, 100_027]
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded["address"])() == address
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded["half"])(3.0) == 1.5
    assert [choose(k) for k in range(7)] == [77, 77, 77, 9, 77, 2, 77]
    assert seen == [1, 3, 1, 0, 9, 8, 7]


def test_no_page_can_be_written_and_executed(without_llvm: None) -> None:
    file = ObjectFile(objects(SUM))
    loaded = native.Loaded(objects(SUM), ["run"], {"outside": 4096})
    base = loaded._memory.address
    found = [access(base + file.parts[part][0]) for part in (CODE, CONSTANTS, DATA)]
    assert found == ["r-xp", "r--p", "rw-p"]
    assert base + file.parts[CODE][0] <= loaded["run"] < base + file.parts[CODE][1]


def test_memory_is_given_back(without_llvm: None) -> None:
    loaded = native.link(objects(SUM), ["run"], {"outside": 4096})
    address = loaded["run"]
    assert access(address) == "r-xp"
    del loaded
    gc.collect()
    assert access(address) != "r-xp"


@pytest.mark.parametrize("opt_level", [0, 2])
def test_code_of_all_operations_is_loaded(opt_level: int, without_llvm: None) -> None:
    artifact = cpu.compile_module(everything(), TARGET, opt_level=opt_level)
    facts = dict(artifact.metadata)
    loaded = native.link(artifact.code, facts["entries"], native.implied_symbols())
    assert loaded[artifact.entry]


def test_a_kernel_that_llvm_loads_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relocation of an unknown type is no obstacle."""
    x = ndarray("x", f32)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.unary("sin", build.load(x, [i])))

    def run() -> Any:
        task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
        data = {"x": np.linspace(0, 3, 40, dtype=np.float32)}
        Compiled(Module("sines", [x], tasks=[task])).run(data)
        return data["x"]

    ours = run()
    asked: list[int] = []
    by_llvm: Callable[..., Any] = native._linked_by_llvm
    monkeypatch.setattr(native, "_linked_by_llvm", lambda *a: asked.append(1) or by_llvm(*a))
    known = {number: each._replace(relocations={}) for number, each in elf.MACHINES.items()}
    monkeypatch.setattr(elf, "MACHINES", known)
    np.testing.assert_array_equal(run(), ours)
    assert asked


def test_what_is_nowhere_is_an_error() -> None:
    with pytest.raises(OctantsRuntimeError, match="cannot be loaded"):
        native.link(objects(SUM), ["run"], {})
    with pytest.raises(OctantsRuntimeError, match="cannot be loaded"):
        native.link(objects(SUM), ["nothing"], {"outside": 4096})


REFUSED = {
    "thread-local": "@x = thread_local global i32 0\ndefine ptr @run() { ret ptr @x }",
    "initialisers": "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]"
    " [{ i32, ptr, ptr } { i32 1, ptr @run, ptr null }]\ndefine void @run() { ret void }",
    "weak": "@x = extern_weak global i32\ndefine ptr @run() { ret ptr @x }",
    "common": "@x = common global i32 0\ndefine ptr @run() { ret ptr @x }",
    "groups": "$run = comdat any\ndefine linkonce_odr void @run() comdat { ret void }"
    "\n@p = global ptr @run",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_our_code_never_has_is_refused(what: str) -> None:
    with pytest.raises(Refused):
        ObjectFile(objects(REFUSED[what])).image(1 << 32, lambda _: 4096)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_refused_or_stay_within_their_image(seed: int) -> None:
    """No other error comes out of whatever a file says."""
    code, dice = objects(SUM), random.Random(seed)
    outcomes = set()
    for _ in range(400):
        bytes_ = bytearray(code[: dice.choice((len(code), dice.randrange(len(code))))])
        for _ in range(dice.randrange(1, 4)):
            if bytes_:
                place = dice.choice((dice.randrange(len(bytes_)), dice.randrange(64) % len(bytes_)))
                bytes_[place] = dice.choice((0, 255, dice.randrange(256)))
        try:
            file = ObjectFile(bytes(bytes_))
            image = file.image(1 << 32, lambda _: 1 << 33)
            exports = file.exports(1 << 32, ["run"])
        except Refused:
            outcomes.add("refused")
        else:
            assert len(image) == file.size
            assert all(0 <= place - (1 << 32) <= file.size for place in exports.values())
            outcomes.add("loaded")
    assert outcomes == {"refused", "loaded"}


# -- machines that are not this one ----------------------------------------------------------------


OUTSIDE = 0x1122334455667788
THROUGH_TABLE = relocations.MACHINES[183].through_table


def resolved(file: ObjectFile, image: bytes, base: int) -> list[tuple[int, int, int]]:
    """The type of each relocation in code, where the machine comes to, and where it should.

    For arm64; of a place in a page both are given without the page.
    """
    found = []
    for section, offset, kind, symbol, addend in file._relocations:
        place = file._starts[section] + offset
        if place < file.parts[CODE][1]:
            (word,) = struct.unpack_from("<I", image, place)
            expected = wanted(file, kind, symbol, base) + addend
            found.append((kind, arm64_target(word, base + place), expected))
    return found


def wanted(file: ObjectFile, kind: int, symbol: int, base: int) -> int:
    if kind in THROUGH_TABLE:
        return base + file._slots[symbol]
    if symbol in file._stubs:
        return base + file._stubs[symbol]
    return base + file._offset_of(file._symbols[symbol])


def arm64_target(word: int, place: int) -> int:
    """By the encodings of the instructions in the Arm Architecture Reference Manual."""
    if word >> 26 in (0b000101, 0b100101):  # b, bl
        return place + 4 * signed(word, 26)
    if word >> 24 & 0x9F == 0x90:  # adrp
        return (place & ~4095) + 4096 * signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
    immediate = word >> 10 & 0xFFF
    if word >> 23 & 0xFF == 0b00100010:  # add with an immediate of 12 bits
        return immediate
    assert word >> 24 & 0b111011 == 0b111001, hex(word)  # a load or store with an offset
    is_wide_vector = word >> 26 & 1 and word >> 23 & 1
    return immediate << (4 if is_wide_vector else word >> 30)


def signed(bits: int, width: int) -> int:
    value = bits & (1 << width) - 1
    return value - (value >> width - 1 << width)


@pytest.mark.parametrize("base", [1 << 32, (1 << 47) - (1 << 24)])
@pytest.mark.parametrize("what", ["everything", "by hand"])
def test_instructions_of_arm64_lead_to_their_symbols(what: str, base: int) -> None:
    code = (
        objects(SUM, ARM64)
        if what == "by hand"
        else cpu.compile_module(everything(), ARM64, opt_level=2).code
    )
    file = ObjectFile(code)
    image = file.image(base, lambda _: 0x123456789ABC)
    kinds = set()
    for kind, target, expected in resolved(file, image, base):
        kinds.add(kind)
        if kind in (275, 311):
            assert target == expected & ~4095, kind
        elif kind in (282, 283):
            assert target == expected, kind
        else:
            assert target == expected % 4096, kind
    assert {275, 277, 283} <= kinds
    for stub in file._stubs.values():
        load, branch, address = struct.unpack_from("<IIQ", image, stub)
        assert (load, branch, address) == (0x58000050, 0xD61F0200, 0x123456789ABC)


@pytest.mark.parametrize("target", [X64, ARM64], ids=["x64", "arm64"])
def test_tables_of_addresses_hold_them(target: Target) -> None:
    file, base = ObjectFile(objects(SUM, target)), 1 << 40
    image = file.image(base, lambda _: OUTSIDE)
    for symbol, place in file._slots.items():
        name = file._symbols[symbol].name
        expected = (
            0x1122334455667788
            if name == "outside"
            else base + file._offset_of(file._symbols[symbol])
        )
        assert struct.unpack_from("<Q", image, place)[0] == expected
    assert any(file._symbols[symbol].name == "outside" for symbol in file._slots)
    tables = [r for r in file._relocations if r[2] == (257 if target is ARM64 else 1)]
    names = ["one", "two"]
    for section, offset, _, symbol, addend in tables:
        (found,) = struct.unpack_from("<Q", image, file._starts[section] + offset)
        assert found == base + file._offset_of(file._symbols[symbol]) + addend
    assert len(tables) == len(names)


@pytest.mark.parametrize("machine", relocations.MACHINES)
def test_what_is_too_far_is_refused(machine: int) -> None:
    image = bytearray(16)
    refusing = {62: (2, 4, 9, 41, 42), 183: (261, 273, 274, 275, 279, 280, 282, 283, 311)}
    for kind in refusing[machine]:
        relocate = relocations.MACHINES[machine].relocations[kind]
        for distance in (1 << 40, -(1 << 40)):
            with pytest.raises((Refused, struct.error)):
                relocate(image, 0, (1 << 44) + distance, 0, 1 << 44)


def test_an_odd_place_is_refused() -> None:
    for kind, odd in ((284, 1), (285, 2), (286, 4), (299, 8), (283, 2)):
        with pytest.raises(Refused):
            relocations.MACHINES[183].relocations[kind](bytearray(4), 0, 4096 + odd, 0, 0)
