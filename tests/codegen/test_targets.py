"""What code asks of the machine and of the process that loads it, on this and other targets."""

from __future__ import annotations

import ctypes
import gc
import pickle
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from octants import abi
from octants.codegen.llvm import cpu
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import Module
from octants.ir.ops import arithmetic as fns
from octants.runtime import cpu as runtime
from octants.runtime.cpu.native import linking as native
from octants.runtime.cpu.native.structures import Messages, ThreadContext, Worker
from octants.target import Target
from octants.types import scalars
from octants.types.scalars import f32, i32
from tests.codegen.compiled import TARGET, Compiled, for_, ndarray, parallel

X64 = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64", "")
ARM64 = Target("cpu", "aarch64-unknown-linux-gnu", "generic", "")
APPLE = Target("cpu", "arm64-apple-darwin", "apple-m1", "")


def everything() -> Module:
    """A module with every scalar operation on every type, atomics, draws and messages."""
    arrays = [ndarray(f"x_{dtype}", dtype) for dtype in scalars.ALL]

    def body(build: Any, i: Any) -> None:
        for array in arrays:
            dtype = array.dtype
            x = build.load(array, [i])
            unary = fns.ROUNDINGS | {"neg", "abs", "sign"}
            binary = fns.ARITHMETIC
            if dtype.is_float:
                unary, binary = unary | fns.FLOAT_FUNCTIONS | fns.SLOPES, binary | fns.FLOAT_ONLY
            elif dtype.is_integer:
                unary = unary | fns.BIT_COUNTS | {"not"}
                binary = binary | fns.BITWISE | fns.SHIFTS
            else:
                unary, binary = {"not"}, fns.BITWISE
            for fn in sorted(unary):
                x = build.unary(fn, x)
            for fn in sorted(binary):
                x = build.binary(fn, x, build.random(dtype, build.random_stream(0, i), i))
            for target in arrays:
                build.atomic("exchange", target, [i], build.cast(x, target.dtype))
            if not dtype.is_bool:
                for fn in ("add", "mul", "min"):
                    build.atomic(fn, array, [i], x)
            build.compare_exchange(array, [i], x, x)
            build.print_((("",),), [x])
            build.assert_("assertion", "{}", build.compare("ne", x, build.load(array, [i])), [x])

    task = parallel("t", lambda build: (build.index(0), build.index(100)), body)
    return Module("everything", arrays, tasks=[task])


def undefined(code: bytes) -> set[str]:
    """The symbols that an ELF object needs, by the tables of its sections."""
    sections = {s.name(): bytes(s.data()) for s in llvm.ObjectFileRef.from_data(code).sections()}
    table, names = sections[b".symtab"], sections[b".strtab"]
    entries = np.frombuffer(
        table, [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"),
                ("value", "<u8"), ("size", "<u8")]
    )  # fmt: skip
    return {
        names[entry["name"] : names.index(b"\0", int(entry["name"]))].decode()
        for entry in entries
        if entry["section"] == 0 and entry["name"]
    }


@pytest.mark.parametrize(
    "opt_level", [0, *(pytest.param(level, marks=pytest.mark.slow) for level in (1, 2)), 3]
)
@pytest.mark.parametrize("target", [TARGET, X64, ARM64], ids=["host", "x64", "arm64"])
def test_an_object_needs_only_what_the_runtime_knows(target: Target, opt_level: int) -> None:
    if not target.triple.endswith("linux-gnu"):
        pytest.skip("the object is not ELF")
    artifact = cpu.compile_module(everything(), target, opt_level=opt_level)
    assert undefined(artifact.code) <= set(native.implied_symbols())


def test_code_for_another_system_is_generated() -> None:
    assert b"everything" in cpu.compile_module(everything(), APPLE).code


def test_an_unknown_cpu_is_taken_as_a_plain_one(capfd: Any) -> None:
    artifact = cpu.compile_module(everything(), replace(X64, cpu="frobnicate"))
    assert artifact.code
    capfd.readouterr()  # LLVM says on stderr that it ignores the name


def test_the_host_is_known() -> None:
    assert TARGET.arch == "cpu"
    assert TARGET.triple == llvm.get_process_triple()


def test_an_artifact_survives_pickling_and_loads() -> None:
    x = ndarray("x", f32)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.unary("sin", build.load(x, [i])))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    kernel = Compiled(Module("kept", [x], tasks=[task]))
    artifact = pickle.loads(pickle.dumps(kernel.artifact))
    assert artifact == kernel.artifact
    kernel.load(artifact)
    data = {"x": np.ones(3, np.float32)}
    kernel.run(data)
    np.testing.assert_allclose(data["x"], np.sin(1), rtol=1e-6)


def test_code_that_is_damaged_is_an_error() -> None:
    artifact = cpu.compile_module(everything(), TARGET)
    with pytest.raises(OctantsRuntimeError, match="cannot be loaded"):
        runtime.load(replace(artifact, code=b"no object file"))


def test_inspection() -> None:
    x = ndarray("x", i32)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.binary("mul", build.load(x, [i]), build.index(3)))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("shown", [x], tasks=[task])
    assert "mul i32" in cpu.llvm_text(module, X64)
    optimised = cpu.optimised_llvm_text(module, X64)
    assert "<4 x i32>" in optimised  # the loop over the items is vectorised
    assert "octants_shown_0:" in cpu.assembly_text(module, X64)


def test_the_runtime_lays_memory_out_as_the_code_expects() -> None:
    for field in ("parallel_for", "grow", "guard", "worker", "interrupted"):
        assert getattr(ThreadContext, field).offset == getattr(abi, f"CONTEXT_{field.upper()}")
    for field in ("cursor", "end", "capacity", "count", "failed", "lock", "failure_id"):
        assert getattr(Messages, field).offset == getattr(abi, f"MESSAGES_{field.upper()}")
    for field in ("failure_task", "failure_item", "failure_values"):
        assert getattr(Messages, field).offset == getattr(abi, f"MESSAGES_{field.upper()}")
    assert ctypes.sizeof(Messages) <= abi.MESSAGES_HEADER
    assert Worker.record_buffer.offset == abi.WORKER_RECORD_BUFFER
    assert Worker.capacity.offset == abi.WORKER_CAPACITY


@pytest.mark.parametrize("dtype", [scalars.f16, f32, scalars.f64], ids=str)
def test_a_sum_is_in_order_though_its_terms_are_vectorised(dtype: Any) -> None:
    """A loop in a work item: LLVM may compute the terms side by side, but not reorder the sum."""
    x, out = ndarray("x", dtype), ndarray("out", dtype)

    def body(build: Any, i: Any) -> None:
        def turn(build: Any, k: Any, carried: Any) -> Any:
            value = build.load(x, [k])
            term = build.binary(
                "div", value, build.unary("sqrt", build.binary("mul", value, value))
            )
            return [build.binary("add", carried[0], build.binary("mul", term, value))]

        start = build.cast(i, dtype)
        build.store(out, [i], for_(build, build.index(0), build.shape(x, 0), [start], turn)[0])

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    kernel = Compiled(Module("sum", [x, out], tasks=[task]))
    for count in (1, 7, 64, 1003):
        values = np.random.default_rng(count).normal(size=count).astype(dtype.numpy)
        data = {"x": values, "out": np.zeros(3, dtype.numpy)}
        kernel.run(data)
        terms = values / np.sqrt(values * values) * values
        for i, found in enumerate(data["out"]):
            total = dtype.numpy.type(i)
            for term in terms:
                total += term
            assert found == total


def test_compiling_leaves_no_memory_behind() -> None:
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        pytest.skip("the size of the process is in /proc")

    def size() -> int:
        gc.collect()
        return int(statistics.read_text().split()[1]) * resource.getpagesize()

    x = ndarray("x", f32)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.unary("sqrt", build.load(x, [i])))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("again", [x], tasks=[task])
    cpu.compile_module(module, TARGET, opt_level=1)
    before = size()
    for _ in range(60):
        cpu.compile_module(module, TARGET, opt_level=1)
    assert size() - before < 2 << 20
