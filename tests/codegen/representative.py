"""Modules that together have everything that code generation for a GPU is given."""

from __future__ import annotations

from typing import Any

import pytest

import octants as qd
from octants import driver
from octants.backends.cpu import CpuBackend
from octants.fuzz.backends import PackageBackend
from octants.fuzz.generator.build import generate
from octants.ir.core import Module
from octants.types.scalars import DType
from tests.codegen import test_scalar_operations
from tests.codegen.compiled import ndarray, parallel


def _captured(monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    """The modules that the CPU's code generation is given from now on."""
    modules: list[Module] = []
    compile_ = CpuBackend.compile

    def capture(self: CpuBackend, module: Module, chosen: Any) -> Any:
        modules.append(module)
        return compile_(self, module, chosen)

    monkeypatch.setattr(CpuBackend, "compile", capture)
    monkeypatch.setattr(driver, "_artifacts", {})
    return modules


def random_modules(
    seed: int, monkeypatch: pytest.MonkeyPatch, profile: str = "core"
) -> list[Module]:
    """The modules of a random program."""
    modules = _captured(monkeypatch)
    PackageBackend("cpu", "cpu").run([generate(seed, ("f32", "f64")[seed % 2], profile)])
    assert modules
    return modules


def words_of_the_language(monkeypatch: pytest.MonkeyPatch, fast_math: bool) -> list[Module]:
    """A kernel with much of the language, and its gradient."""
    modules = _captured(monkeypatch)
    qd.init(arch=qd.cpu, debug=True, fast_math=fast_math)
    x, y = (qd.field(qd.f32, shape=(8, 8), needs_grad=True) for _ in "xy")
    whole, total = qd.field(qd.i64, shape=()), qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def words(a: qd.types.NDArray[qd.f16, 1], n: qd.i32) -> qd.f64:
        for i, j in x:
            v = x[i, j]
            for _ in range(n + i):
                v = qd.sin(v) * 0.5 + qd.pow(qd.abs(v), 1.5) + qd.atan2(v, 2.0) + v % 0.7
                if v > 3.0:
                    break
            while v > 1.0:
                v *= qd.exp(-v)
            y[i, j] += v * qd.random()
            total[None] += v
            qd.atomic_max(whole[None], i * j)
            qd.atomic_add(a[i], v)
            assert v == v, f"at {i}"
        print("sum", total[None])
        return total[None]

    a = qd.ndarray(qd.f16, 8)
    words(a, 3)
    with qd.ad.Tape(total):
        words(a, 3)
    assert len(modules) >= 2
    return modules


def module_of_operations(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> Module:
    """A kernel with all operations on scalars of a type."""
    found: list[Module] = []

    class Seen(Exception):
        pass

    def see(module: Module, *_: Any, **__: Any) -> None:
        found.append(module)
        raise Seen

    monkeypatch.setattr(test_scalar_operations, "Compiled", see)
    with pytest.raises(Seen):
        test_scalar_operations.test_exact_functions_give_the_defined_bits(
            dtype, test_scalar_operations.TARGET, 1
        )
    return found[0]


def module_of_atomics(dtype: DType) -> Module:
    """A kernel with all atomic updates of elements of a type."""
    x = ndarray("x", dtype)

    def body(build: Any, i: Any) -> None:
        one = build.constant(1, dtype)
        names = ["add", "sub", "mul", "min", "max", "exchange"]
        names += [] if dtype.is_float else ["and", "or", "xor"]
        for fn in names:
            build.store(x, [i], build.atomic(fn, x, [build.index(0)], one))
        build.store(x, [i], build.compare_exchange(x, [i], one, one))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    return Module("atomics", [x], tasks=[task])
