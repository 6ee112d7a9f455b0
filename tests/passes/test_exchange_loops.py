"""Loops that exchange words: which run once, since a work item owns the word, and which stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.cloning import copy_module
from octants.ir.core import Companion
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.sums import demote_atomics
from tests.autodiff.random_ir import forward
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ARCH, ON_GPU
from tests.frontend.frontend_programs import define
from tests.ir.parser import parse
from tests.passes.test_pictures import pictures

N, M = 12, 16
BACKENDS = ["interpreter", "lanes", "one by one", "gpu"] if not ON_GPU else ["arch"]


def start(backend: str, **options: Any) -> None:
    arch = {"interpreter": "python", "arch": ARCH, "gpu": "cuda"}.get(backend, "cpu")
    simd = "always" if backend == "lanes" else "never"
    qd.init(arch=getattr(qd, arch), simd=simd, log_level="error", **options)


@pytest.fixture(params=BACKENDS)
def everywhere(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "gpu":
        with emulated_gpu():
            start("gpu")
            yield
    else:
        start(request.param)
        yield
    qd.reset()


class World:
    """Quantised fields beside plain ones of the same size, which any statement changes likewise.

    `x` and `y` are in a word of each cell, as are the components of `v`; `g` is in those of a grid.
    The words of `a` hold 4 elements, those of `b` 8 of a row, those of `c` 2 by 2 of a grid.
    """

    def __init__(self, kind: Any) -> None:
        self.x, self.y, self.g, self.a, self.b, self.c = (qd.field(kind) for _ in range(6))
        self.v = qd.Vector.field(3, kind)
        cells = qd.root.dense(qd.i, N)
        for fields in ((self.x, self.y), (self.v,)):
            word = qd.BitpackedFields(max_num_bits=64)
            word.place(*fields)
            cells.place(word)
        word = qd.BitpackedFields(max_num_bits=32)
        word.place(self.g)
        qd.root.dense(qd.ij, (N, 4)).place(word)
        qd.root.dense(qd.i, N // 4).quant_array(qd.i, 4, max_num_bits=64).place(self.a)
        qd.root.dense(qd.ij, (N, 2)).quant_array(qd.j, 8, max_num_bits=64).place(self.b)
        qd.root.dense(qd.ij, (N // 2, 2)).quant_array(qd.ij, (2, 2), max_num_bits=64).place(self.c)
        self.n = qd.field(qd.i32, N)
        self.n.from_numpy((7 * np.arange(N, dtype=np.int32) + 3) % N)

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in "xygabcv"}


class Plain:
    """The same fields with a word for each number."""

    def __init__(self) -> None:
        shapes = {"x": N, "y": N, "g": (N, 4), "a": N, "b": (N, M), "c": (N, 4)}
        for name, shape in shapes.items():
            setattr(self, name, qd.field(qd.i32, shape))
        self.v = qd.Vector.field(3, qd.i32, N)
        self.n = qd.field(qd.i32, N)
        self.n.from_numpy((7 * np.arange(N, dtype=np.int32) + 3) % N)

    fields = World.fields


def kernel(world: Any, loop: str, statements: str) -> Any:
    body = "".join(f"\n        {line}" for line in statements.split("; "))
    text = f"def kernel(m: qd.i32):\n    for {loop}:{body}\n"
    return qd.kernel(define(text, "kernel", **world.fields(), n=world.n, N=N, M=M, qd=qd))


OWNED = {
    "a store": ("i in range(N)", "x[i] = i"),
    "stores and sums": ("i in x", "x[i] = i; y[i] += 2; x[i] -= y[i]; y[i] = m"),
    "from the end": ("i in range(N)", "y[N - 1 - i] += i"),
    "every other": ("i in range(N // 2)", "x[2 * i + 1] += i; y[2 * i] = i"),
    "on a grid": ("i, j in g", "g[i, j] = i - j; g[i, j] += m"),
    "under a condition": ("i in x", "if i % 3 > m % 2:; ⎵x[i] += 2; else:; ⎵y[i] = 1"),
    "many times": ("i in range(N)", "for k in range(i):; ⎵x[i] += k; ⎵y[i] = x[i] ^ k"),
    "of a while": ("i in x", "k = 0; while k < i:; ⎵x[i] += k; ⎵k += 1 + (x[i] & 1)"),
    "rows": ("i in range(N)", "for j in range(M):; ⎵b[i, j] += i * j"),
    "a row of words": ("i in range(N)", "for j in range(4):; ⎵g[i, j] |= i"),
    "a component": ("i in v", "v[i][(i + m) % 3] += 5; v[i][0] = i"),
    "values before": ("i in x", "k = qd.atomic_max(x[i], m); y[i] = qd.atomic_add(x[i], k)"),
}
SHARED = {
    "elements of a word": ("i in range(N)", "a[i] = i"),
    "sums in a word": ("i in range(N)", "a[i] += i"),
    "cells of a row": ("i, j in b", "b[i, j] += i + j"),
    "rows of words of a grid": ("i in range(N)", "for j in range(4):; ⎵c[i, j] += j"),
    "fields of neighbours": ("i in range(N)", "x[i] = i; y[(i + 1) % N] = 3 * i"),
    "neighbours": ("i in range(N - 1)", "x[i] = i; y[i + 1] = 3 * i"),
    "halves": ("i in range(N)", "x[i // 2] += i"),
    "remainders": ("i in range(N)", "x[i % 5] += i"),
    "indirect": ("i in range(N)", "x[n[i]] += i"),
    "one": ("i in range(N)", "y[3] += i"),
    "fields of a word": ("i, k in qd.ndrange(N, 2)", "if k == 0:; ⎵x[i] = i; else:; ⎵y[i] += 2"),
    "components": ("i, k in qd.ndrange(N, 3)", "v[i][k] = i + k"),
    "halves of a row": ("i, k in qd.ndrange(N, 2)", "for j in range(4):; ⎵b[i, 4 * k + j] += i"),
    "by an argument": ("i in range(N)", "x[i * m] += 1"),
}


def source(text: str) -> str:
    return text.replace("⎵", "    ")


def finished(world: Any, loop: str, statements: str) -> str:
    text: str = kernel(world, loop, source(statements)).inspect(1).stages["finish"]
    return text


@pytest.mark.parametrize("name", OWNED)
@pytest.mark.parametrize("deterministic", [False, True])
def test_words_of_one_work_item_are_stored(name: str, deterministic: bool) -> None:
    qd.init(arch=qd.cpu, log_level="error", deterministic=deterministic)
    text = finished(World(qd.types.quant.int(7)), *OWNED[name])
    assert "compare_exchange" not in text
    assert "store<" in text
    assert "parallel" in text


@pytest.mark.parametrize("name", SHARED)
def test_words_of_several_work_items_are_exchanged(name: str) -> None:
    qd.init(arch=qd.cpu, log_level="error")
    text = finished(World(qd.types.quant.int(7)), *SHARED[name])
    assert "compare_exchange" in text
    assert "store<" not in text


@pytest.mark.parametrize("name", OWNED | SHARED)
@pytest.mark.usefixtures("everywhere")
def test_numbers_are_those_of_plain_fields(name: str) -> None:
    loop, statements = {**OWNED, **SHARED}[name]
    worlds: list[Any] = [World(qd.types.quant.int(7)), Plain()]
    for world in worlds:
        for field in world.fields().values():
            field.fill(1)
        run = kernel(world, loop, source(statements))
        for m in (1, 2):
            run(m if "* m" not in statements else m - 1)
    for name, field in worlds[0].fields().items():
        wanted = (worlds[1].fields()[name].to_numpy() + 64) % 128 - 64
        np.testing.assert_array_equal(field.to_numpy(), wanted, err_msg=name)


def test_threads_that_share_words_lose_nothing() -> None:
    """Millions of sums in a few words, whose elements different threads add to."""
    qd.init(arch=getattr(qd, ARCH), log_level="error", cpu_max_num_threads=4)
    x, y, a = (qd.field(qd.types.quant.int(bits, False)) for bits in (32, 32, 16))
    word = qd.BitpackedFields(max_num_bits=64)
    word.place(x, y)
    qd.root.dense(qd.i, 5).place(word)
    qd.root.dense(qd.i, 2).quant_array(qd.i, 4, max_num_bits=64).place(a)
    count = 400_000

    @qd.kernel
    def add():
        for i in range(count):
            x[i % 5] += 1
            y[(i + 1) % 5] += 2
            a[i % 8] += 1

    add()
    assert x.to_numpy().tolist() == [count // 5] * 5
    assert y.to_numpy().tolist() == [2 * count // 5] * 5
    assert a.to_numpy().tolist() == [count // 8 % 2**16] * 8


def test_words_of_neighbours_keep_their_other_numbers() -> None:
    """Each thread stores plainly to its words, while others read the other numbers in them."""
    qd.init(arch=getattr(qd, ARCH), log_level="error", cpu_max_num_threads=4)
    x, y, seen = (*(qd.field(qd.types.quant.int(16)) for _ in range(2)), qd.field(qd.i32, 100_000))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x, y)
    qd.root.dense(qd.i, 100_000).place(word)

    @qd.kernel
    def put():
        for i in y:
            y[i] = i % 1000

    @qd.kernel
    def change():
        for i in x:
            x[i] -= i
            j = (7 * i + 50_000) % 100_000
            seen[i] = y[j] - j % 1000

    put()
    for _ in range(5):
        change()
    assert not seen.to_numpy().any()
    numbers = np.arange(100_000)
    assert (y.to_numpy() == numbers % 1000).all()
    assert (x.to_numpy() == (-5 * numbers).astype(np.int16)).all()


# -- loops that only look alike ----------------------------------------------------------------

LIKE: list[tuple[str, str]] = [
    ("constant<False>()", "constant<True>()"),  # does not run
    ("unary<not>(%9)", "compare<eq>(%8, %8)"),
    ("compare<eq>(%14, %11)", "compare<ne>(%14, %11)"),
    ("compare<eq>(%14, %11)", "compare<eq>(%14, %13)"),
    ("compare_exchange<@x, primal>(%11, %13, %2)", "compare_exchange<@x, primal>(%5, %13, %2)"),
    ("yield(%14, %15)", "yield(%13, %15)"),
    ("compare_exchange<@x, primal>(%11, %13, %2)", "atomic<add, @x, primal>(%13, %2)"),
    ("%13: u32 = binary<or>(%11, %5)", "%13: u32 = load<@x, primal>(%2)"),
    ("%13: u32 = binary<or>(%11, %5)", "%13: u32 = atomic<add, @x, primal>(%11, %2)"),
]


@pytest.mark.parametrize(("old", "new"), LIKE)
def test_loops_that_do_more_stay(old: str, new: str) -> None:
    text, _ = pictures(demote_atomics)[1]
    assert old in text
    module = parse(text.replace(old, new))
    verify(module)
    changed = copy_module(module)
    demote_atomics.demote_atomics(changed)
    verify(changed)
    assert "while" in to_text(changed)


def test_the_results_of_a_loop_are_used() -> None:
    """The value before, and that the exchange succeeded."""
    text, _ = pictures(demote_atomics)[1]
    more = "  %16: u32 = constant<9>()\n  %17: u32 = select(%7, %6, %16)\n"
    more += "  %18: u32 = atomic<add, @x, primal>(%17, %2)\n"
    end = text.rindex("  yield()")
    module = parse(text[:end] + more + text[end:])
    verify(module)
    changed = copy_module(module)
    demote_atomics.demote_atomics(changed)
    verify(changed)
    for word in ("while", "compare_exchange", "atomic"):
        assert word not in to_text(changed)
    given = {("x", Companion.PRIMAL): np.arange(8, dtype=np.uint32) * 1000}
    expected = forward(module, given)
    for array, value in forward(changed, given).items():
        np.testing.assert_array_equal(value, expected[array])
