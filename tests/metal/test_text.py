"""The text of kernels: nothing that Metal's language forbids; an error for what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import octants as qd
from octants.codegen.metal.library_text import LibraryText
from octants.codegen.structured.features import Features
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.types.scalars import f32, i8, i64, u1
from tests.metal import compiled
from tests.metal.checked import check_address_spaces, problems
from tests.metal.cpp import CppLibrary, need_compiler
from tests.metal.emulated import emulated_metal


@pytest.fixture(autouse=True)
def metal() -> Iterator[None]:
    need_compiler()
    with emulated_metal():
        yield


def texts(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that a program compiles."""
    found: list[str] = []
    given = CppLibrary.__init__

    def begin(library: CppLibrary, text: str) -> None:
        found.append(text)
        given(library, text)

    monkeypatch.setattr(CppLibrary, "__init__", begin)
    run()
    assert found
    return found


def everything() -> None:
    """A program with records, atomic updates, messages, shared memory, lanes and all functions."""
    qd.init(arch=qd.metal, debug=True)
    x = qd.field(qd.f32, shape=64, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    bytes_ = qd.field(qd.u8, shape=64)
    halves = qd.field(qd.f16, shape=64)

    @qd.kernel
    def lose(n: qd.i32):
        for i in x:
            v = x[i] + qd.random() * 0.0
            t = 0
            while t < n + i % 3:
                v = qd.sin(v) + qd.sqrt(abs(v)) * qd.exp(-v) + qd.floor(v)
                t += 1
            loss[None] += v

    @qd.kernel
    def small():
        for i in x:
            qd.atomic_add(bytes_[i // 4], i)
            qd.atomic_max(halves[i // 4], qd.cast(x[i], qd.f16))
            assert i < 64, "too many"
            if i == 3:
                print(i, x[i])

    @qd.kernel
    def together():
        qd.loop_config(block_dim=64)
        for i in range(64):
            shared = qd.simt.block.SharedArray((64,), qd.f32)
            shared[i] = x[i]
            qd.simt.block.sync()
            x[i] = shared[63 - i] + qd.simt.subgroup.reduce_add(x[i])

    for i in range(64):
        x[i] = 0.1 * i
    lose(3)
    loss.grad[None] = 1.0
    lose.grad(3)
    small()
    together()
    qd.sync()


def test_nothing_forbidden_is_in_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = texts(everything, monkeypatch)
    for text in found:
        assert problems(text) == []
    whole = "".join(found)
    parts = ("threadgroup_barrier", "simd_shuffle", "exchange_if", "atomic_float", "_sin_f32")
    for part in parts:
        assert part in whole


def test_address_spaces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_address_spaces(texts(everything, monkeypatch))


def test_memory_is_coherent_where_the_device_has_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        qd.init(arch=qd.metal)
        x, y = qd.field(qd.i32, shape=64), qd.field(qd.i32, shape=64)

        @qd.kernel
        def fenced():
            for i in x:
                x[i] = i
                qd.simt.grid.memfence()
                y[i] = x[63 - i]

        @qd.kernel
        def plain():
            for i in x:
                y[i] = x[i]

        fenced()
        plain()

    fenced, plain = texts(run, monkeypatch)
    loads = [line for line in fenced.splitlines() if " = *(" in line and "uint*" in line]
    assert loads and all("coherent(device) device" in line for line in loads)
    assert "thread_scope_device" in fenced and "coherent" not in plain
    check_address_spaces([fenced])


@pytest.mark.parametrize(
    "line",
    [
        "uint* y = x;",
        "threadgroup uint* y = (threadgroup uint*)(x);",
        "device uint* y = (device uint*)shared;",
        "uint z = 0; device uint* y = (device uint*)(&z);",
        "device uint* y = (device uint*)(&self->words[0]);",
        "uint z = 0; atomic_load_explicit((thread atomic_uint*)(&z), memory_order_relaxed);",
        (
            "atomic_fetch_add_explicit("
            "(threadgroup atomic_float*)(shared), 1.0f, memory_order_relaxed);"
        ),
    ],
)
def test_mistakes_with_address_spaces_are_found(line: str) -> None:
    head = "#include <metal_stdlib>\nusing namespace metal;\nstruct Launch { ulong words[3]; };\n"
    head += "void f(constant Launch* self, device uint* x)\n{\n    threadgroup ulong shared[1];\n"
    check_address_spaces([head + "}\n"])
    with pytest.raises(AssertionError, match="error:"):
        check_address_spaces([head + f"    {line}\n}}\n"])


@pytest.mark.parametrize(
    "text",
    [
        "static void f(double x)\n{\n}\n",
        "static void f()\n{\n    f();\n}\n",
        "static void f()\n{\n    g();\n}\nstatic void g()\n{\n}\n",
        "static void f_a()\n{\n}\nstatic void g()\n{\n    h(&f_a);\n}\n",
        "static void f(uint x)\n{\n    (const uint*)(x);\n}\n",
        "static void f(uint x)\n{\n    const uint v1 = x + 1u;\n    const uint v2 = v1 * v1;\n}\n",
    ],
)
def test_what_is_forbidden_is_found(text: str) -> None:
    assert problems(text)


def test_f64_is_an_error_that_names_the_line() -> None:
    qd.init(arch=qd.metal)
    x = qd.field(qd.f64, shape=4)

    @qd.kernel
    def double():
        for i in x:
            x[i] = x[i] * 2.0

    with pytest.raises(OctantsRuntimeError) as caught:
        double()
    message = str(caught.value)
    assert message.startswith("OCT450: kernel `double` needs f64, which the device `Apple M0` ")
    assert "x[i] = x[i] * 2.0" in message and "test_text.py" in message
    assert "use f32, such as by `qd.init(default_fp=qd.f32)`" in message


def test_atomic_sums_of_i64_are_an_error() -> None:
    qd.init(arch=qd.metal)
    x = qd.field(qd.i64, shape=4)

    @qd.kernel
    def count():
        for i in range(100):
            x[i % 4] += 1

    with pytest.raises(OctantsRuntimeError, match="OCT450.*atomic operations on 64 bits"):
        count()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-1, i64, "18446744073709551615ul"),
        (-1, i8, "uchar(255u)"),
        (True, u1, "true"),
        (0.1, f32, "0.100000001f"),
        (-2.0, f32, "(-2.0f)"),
        (-0.0, f32, "as_type<float>(2147483648u)"),
        (1e-40, f32, "as_type<float>(71362u)"),
        (float("inf"), f32, "as_type<float>(2139095040u)"),
    ],
)
def test_constants(value: Any, dtype: Any, text: str) -> None:
    module = LibraryText(Features(compiled.device().hardware.target))
    found = module.constant(value, dtype)
    assert found == text and found.value == value
