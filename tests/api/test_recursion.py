"""Functions that call themselves, and each other, until a condition at run time ends that."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.api.recursive_programs import program
from tests.devices import ARCH
from tests.golden_files import check_golden, without_lines
from tests.seeds import seeds

M = qd.types.matrix(6, 6, qd.f32)


@pytest.fixture(autouse=True)
def initialised() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


def values(function: Any, count: int = 10) -> list[int]:
    """What a function of an i32 gives for 0, 1, 2, ..., each in a work item of its own."""
    found = qd.field(qd.i32, count)

    @qd.kernel
    def fill():
        for i in found:
            found[i] = function(i)

    fill()
    given: list[int] = found.to_numpy().tolist()
    return given


@qd.real_func
def factorial(n: qd.i32) -> qd.i32:
    result = 1
    if n > 1:
        result = n * factorial(n - 1)
    return result


@qd.real_func
def fibonacci(n: qd.i32) -> qd.i32:
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@qd.real_func
def divisor(a: qd.i32, b: qd.i32) -> qd.i32:
    if b == 0:
        return a
    return divisor(b, a % b)


@qd.real_func(max_depth=64)
def ackermann(m: qd.i32, n: qd.i32) -> qd.i32:
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


@qd.real_func
def even(n: qd.i32) -> bool:
    if n == 0:
        return True
    return odd(n - 1)


@qd.real_func
def odd(n: qd.i32) -> bool:
    if n == 0:
        return False
    return even(n - 1)


@qd.func(is_real_function=True)
def in_loops(n: qd.i32) -> qd.i32:
    s = 1
    for i in range(n):
        j = 0
        while j < i and in_loops(0) == 1:
            s += in_loops(j)
            j += 1
        if s % 7 == 3:
            continue
        s += in_loops(i)
        if s > 200:
            break
    return s


@pytest.mark.parametrize("function", [factorial, fibonacci, in_loops])
def test_recursion_is_that_of_python(function: Callable[[int], int]) -> None:
    assert values(function, 9) == [function(n) for n in range(9)]


def test_several_arguments() -> None:
    assert values(lambda n: divisor(n * 6, 15)) == [math.gcd(n * 6, 15) for n in range(10)]
    assert values(lambda n: ackermann(2, n)) == [2 * n + 3 for n in range(10)]


def test_functions_that_call_each_other() -> None:
    assert values(lambda n: qd.select(even(n), 1, 0)) == [1, 0] * 5


def test_a_recursion_in_another_one() -> None:
    @qd.real_func
    def total(n: qd.i32) -> qd.i32:
        return fibonacci(n) if n < 1 else total(n - 1) + fibonacci(fibonacci(n))

    fib = [0, 1, 1, 2, 3, 5, 8, 13, 21]
    assert values(lambda n: total(n), 6) == [
        sum(fib[fib[k]] for k in range(n + 1)) for n in range(6)
    ]


@pytest.mark.parametrize("arch", ["cpu", "python"])
def test_a_recursion_that_is_too_deep_is_an_error(arch: str) -> None:
    if arch == "python":
        qd.init(arch=qd.python, log_level=qd.ERROR)

    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        return divisor_steps(n)

    @qd.real_func(max_depth=5)
    def divisor_steps(n: qd.i32) -> qd.i32:
        return 0 if n == 0 else 1 + divisor_steps(n - 1)

    assert [run(n) for n in range(5)] == [0, 1, 2, 3, 4]
    for n in (5, 6, -1):
        with pytest.raises(qd.OctantsAssertionError, match="more than 5 calls deep") as caught:
            run(n)
            qd.sync()
        assert arch == "python" or "OCT476" in str(caught.value)


@pytest.mark.parametrize("depth", [1, 2, 3, 8, 9])
def test_the_bound_is_exact(depth: int) -> None:
    @qd.real_func(max_depth=depth)
    def count(n: qd.i32) -> qd.i32:
        return 1 if n == 1 else 1 + count(n - 1)

    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        return count(n)

    assert run(depth) == depth
    with pytest.raises(qd.OctantsAssertionError, match="OCT476"):
        run(depth + 1)
        qd.sync()


def test_the_text_of_the_error() -> None:
    with pytest.raises(qd.OctantsAssertionError) as caught:
        values(factorial, 40)
        qd.sync()
    text = re.sub(r"in work item \d+", "in work item 32", str(caught.value))
    check_golden("errors/OCT476_recursion", without_lines(text))


def test_the_cache_knows_the_bound(tmp_path: Path) -> None:
    def make(depth: int) -> Any:
        @qd.real_func(max_depth=depth)
        def count(n: qd.i32) -> qd.i32:
            return 0 if n == 0 else count(n - 1) + 1

        @qd.kernel
        def run(n: qd.i32) -> qd.i32:
            return count(n)

        return run

    options: Any = {"offline_cache": True, "offline_cache_file_path": str(tmp_path)}
    for depth in (20, 5, 20, 5):
        qd.init(arch=qd.cpu, log_level=qd.ERROR, **options)
        run = make(depth)
        if depth == 20:
            assert run(9) == 9
        else:
            with pytest.raises(qd.OctantsAssertionError, match="OCT476"):
                run(9)
                qd.sync()


def test_second_derivatives() -> None:
    @qd.real_func
    def halved(v: qd.f32, n: qd.i32) -> qd.f32:
        if n == 0:
            return v
        return halved(v * v * 0.5, n - 1) * qd.sin(v)

    @qd.kernel
    def total(x: qd.types.ndarray(qd.f32), loss: qd.types.ndarray(qd.f32)):
        for i in x:
            loss[0] += halved(x[i], 3)

    def by_hand(v: Any, n: int = 3) -> Any:
        return v if n == 0 else by_hand(v * v * 0.5, n - 1) * np.sin(v)

    points, direction, h = np.array([0.5, 0.9, 1.3]), np.array([1.0, 2.0, 3.0]), 1e-4
    curvature = (by_hand(points + h) - 2 * by_hand(points) + by_hand(points - h)) / h**2
    product = qd.ad.hvp(total, out={"loss": 1})
    given = points.astype(np.float32)
    _, _, found = product(given, direction={"x": direction.astype(np.float32)})
    assert found["x"] == pytest.approx(curvature * direction, rel=1e-3, abs=1e-5)


def test_the_bound_is_checked() -> None:
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            qd.real_func(max_depth=wrong)


def test_vectors_and_structs() -> None:
    S = qd.types.struct(a=qd.i32, v=qd.math.vec3)

    @qd.real_func
    def walk(s: S, m: qd.types.matrix(2, 2, qd.f32), b: bool) -> tuple[S, qd.math.vec2, bool]:
        r = S(a=s.a + 1, v=s.v * 2)
        w = qd.math.vec2(m[0, 1], m[1, 0])
        c = b
        if s.a < 5:
            inner, w2, c2 = walk(r, m + 1, not b)
            r = S(a=inner.a + s.a, v=inner.v + s.v)
            w = w2 + w
            c = c2 or b
        return r, w, c

    def by_hand(a: int, v: Any, m: Any, b: bool) -> Any:
        if a >= 5:
            return a + 1, v * 2, np.array([m[0, 1], m[1, 0]]), b
        ra, rv, w, c = by_hand(a + 1, v * 2, m + 1, not b)
        return ra + a, rv + v, w + np.array([m[0, 1], m[1, 0]]), c or b

    found = qd.field(qd.f32, (8, 7))

    @qd.kernel
    def fill():
        for i in range(8):
            m = qd.Matrix([[1.0, i], [2.0, 4.0]])
            s, w, c = walk(S(a=i, v=qd.math.vec3(1, i, 3)), m, i % 3 == 0)
            found[i, 0] = s.a
            for j in qd.static(range(3)):
                found[i, 1 + j] = s.v[j]
            found[i, 4] = w[0]
            found[i, 5] = w[1]
            found[i, 6] = c

    fill()
    for i in range(8):
        a, v, w, c = by_hand(i, np.array([1.0, i, 3]), np.array([[1.0, i], [2, 4]]), i % 3 == 0)
        assert found.to_numpy()[i].tolist() == [a, *v, *w, c]


def test_a_walk_over_a_tree_in_an_array() -> None:
    @qd.real_func
    def walk(
        tree: qd.types.ndarray(), node: qd.i32, count: qd.ref(qd.i32), largest: qd.ref(qd.i32)
    ):
        if node < tree.shape[0]:
            count += 1
            if tree[node] > largest:
                largest = tree[node]
            if tree[node] % 2 == 0:
                walk(tree, 2 * node + 1, count, largest)
            walk(tree, 2 * node + 2, count, largest)

    @qd.kernel
    def run(tree: qd.types.ndarray(), found: qd.types.ndarray()):
        for i in range(4):
            count = 0
            largest = -1
            walk(tree, i, count, largest)
            found[i] = count * 100 + largest

    numbers = np.arange(31, dtype=np.int32) * 7 % 13

    def visited(node: int) -> list[int]:
        if node >= 31:
            return []
        left = visited(2 * node + 1) if numbers[node] % 2 == 0 else []
        return [int(numbers[node]), *left, *visited(2 * node + 2)]

    tree, found = qd.ndarray(qd.i32, 31), qd.ndarray(qd.i32, 4)
    tree.from_numpy(numbers)
    run(tree, found)
    paths = [visited(i) for i in range(4)]
    assert found.to_numpy().tolist() == [len(p) * 100 + max(p) for p in paths]


def test_arrays_may_be_others_in_each_call() -> None:
    x, y = qd.field(qd.i32, 4), qd.ndarray(qd.i32, 3)
    s = qd.Struct.field({"a": qd.i32, "b": qd.i32}, shape=2)
    found = qd.field(qd.i32, (2, 6))
    x.fill(5)
    y.fill(7)
    s.a.fill(1000)

    @qd.real_func
    def swapping(a: qd.types.ndarray(), b: qd.template(), s: qd.template(), n: qd.i32) -> qd.i32:
        if n == 0:
            return a.shape[0] * 100 + a[0]
        return swapping(b, a, s, n - 1) + s[0].a

    @qd.kernel
    def run(y: qd.types.ndarray()):
        for i in range(6):
            found[0, i] = swapping(x, y, s, i)
            found[1, i] = swapping(y, x, s, i)

    run(y)
    of_x, of_y = [[base + 1000 * i for i in range(6)] for base in (405, 307)]
    assert found.to_numpy()[0].tolist() == [(of_x, of_y)[i % 2][i] for i in range(6)]
    assert found.to_numpy()[1].tolist() == [(of_y, of_x)[i % 2][i] for i in range(6)]


def test_methods() -> None:
    @qd.data_oriented
    class Tree:
        def __init__(self, left: list[int], right: list[int], child: Any = None) -> None:
            self.left, self.right = (qd.field(qd.i32, len(left)) for _ in range(2))
            self.left.from_numpy(np.array(left, np.int32))
            self.right.from_numpy(np.array(right, np.int32))
            self.child = child

        @qd.real_func
        def leaves(self, node: qd.i32) -> qd.i32:
            if node < 0:
                return 0
            if self.left[node] < 0:
                if qd.static(self.child is not None):
                    return 100 * self.child.leaves(0)
                return 1
            return self.leaves(self.left[node]) + self.leaves(self.right[node])

        @staticmethod
        @qd.real_func
        def half(n: qd.i32) -> qd.i32:
            return 0 if n < 2 else Tree.half(n - 2) + 1

        @qd.kernel
        def count(self) -> qd.i32:
            return self.leaves(0) + 10000 * self.half(7)

    inner = Tree([1, -1, -1], [2, -1, -1])
    assert inner.count() == 30002
    assert Tree([1, 3, -1, -1], [2, -1, -1, -1], inner).count() == 30000 + 2 * 200


def test_a_function_with_an_adjoint_may_call_one_that_recurses() -> None:
    x, y = (qd.field(qd.f32, (), needs_grad=True) for _ in range(2))

    @qd.func
    def scaled(v, n):
        return v * fibonacci(n)

    @scaled.adjoint
    def scaled_adjoint(v, n, g):
        return g * 7.0, 0

    @qd.kernel
    def run(n: qd.i32):
        y[None] = scaled(x[None], n)

    x[None] = 2.0
    run(6)
    y.grad[None] = 1.0
    run.grad(6)
    assert (y[None], x.grad[None]) == (16.0, 7.0)


def test_writes_to_arrays_happen_in_order() -> None:
    moves, count = qd.field(qd.i32, (4, 16, 2)), qd.field(qd.i32, 4)

    @qd.real_func
    def hanoi(item: qd.i32, n: qd.i32, source: qd.i32, target: qd.i32):
        if n > 0:
            other = 3 - source - target
            hanoi(item, n - 1, source, other)
            moves[item, count[item], 0] = source
            moves[item, count[item], 1] = target
            count[item] += 1
            hanoi(item, n - 1, other, target)

    @qd.kernel
    def run():
        for i in range(4):
            hanoi(i, i + 1, 0, 2)

    def by_hand(n: int, source: int, target: int) -> list[list[int]]:
        if n == 0:
            return []
        other = 3 - source - target
        return [*by_hand(n - 1, source, other), [source, target], *by_hand(n - 1, other, target)]

    run()
    for i in range(4):
        expected = by_hand(i + 1, 0, 2)
        assert count[i] == len(expected)
        assert moves.to_numpy()[i, : len(expected)].tolist() == expected


def test_random_numbers_are_drawn_anew() -> None:
    found = qd.field(qd.f32, 500)

    @qd.real_func
    def chain(n: qd.i32) -> qd.f32:
        x = qd.random()
        if n > 0:
            x += chain(n - 1) * 2 + qd.random() * 0.25
        return x

    @qd.kernel
    def run():
        for i in found:
            found[i] = chain(2) + qd.random() * 1000

    run()
    numbers = found.to_numpy()
    assert len(set(numbers.tolist())) == 500
    assert abs(numbers.mean() - 500 - 3.5) < 40


def test_frames_too_large_for_local_memory() -> None:
    @qd.real_func
    def power(m: M, n: qd.i32) -> M:
        result = m
        if n > 1:
            result = power(m, n - 1) @ m + m
        return result

    @qd.kernel
    def run(n: qd.i32) -> qd.f32:
        m = qd.Matrix([[0.1 * ((3 * i + j) % 5) for i in range(6)] for j in range(6)])
        return power(m, n).sum()

    m = np.array([[0.1 * ((3 * i + j) % 5) for i in range(6)] for j in range(6)])
    expected = m
    for _ in range(4):
        expected = expected @ m + m
    assert run(5) == pytest.approx(expected.sum(), rel=1e-5)


# -- derivatives -----------------------------------------------------------------------------------


def test_gradients_and_tangents() -> None:
    x = qd.field(qd.f32, 9, needs_grad=True, needs_dual=True)
    loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)

    @qd.real_func
    def tree(v: qd.f32, n: qd.i32) -> qd.f32:
        if n < 2:
            return qd.sin(v)
        return tree(v * 0.9, n - 1) * tree(v + 0.1, n - 2) + v

    @qd.kernel
    def run():
        for i in x:
            loss[None] += tree(x[i], i)

    def by_hand(v: float, n: int) -> float:
        if n < 2:
            return math.sin(v)
        return by_hand(v * 0.9, n - 1) * by_hand(v + 0.1, n - 2) + v

    points = np.linspace(0.3, 1.2, 9)
    x.from_numpy(points.astype(np.float32))
    h = 1e-5
    slopes = [(by_hand(v + h, i) - by_hand(v - h, i)) / (2 * h) for i, v in enumerate(points)]
    with qd.ad.Tape(loss=loss):
        run()
    assert loss[None] == pytest.approx(sum(by_hand(v, i) for i, v in enumerate(points)), rel=1e-5)
    assert x.grad.to_numpy() == pytest.approx(np.array(slopes), rel=1e-4)
    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0] * 9):
        run()
    assert loss.dual[None] == pytest.approx(sum(slopes), rel=1e-4)


SINGLE = ARCH in ("vulkan", "metal")


@pytest.mark.parametrize("seed", range(2) if SINGLE else seeds(6, 12))
def test_random_recursions(seed: int, tmp_path: Path) -> None:
    """Values are those of Python, gradients those of finite differences."""
    text = program(random.Random(seed))
    dtype = qd.f32 if SINGLE else qd.f64
    path = tmp_path / "recursion.py"
    path.write_text(text)
    code = compile(text, str(path), "exec")
    names: dict[str, Any] = {
        "real_func": lambda f: f,
        "i32": int,
        "FP": float,
        "sin": math.sin,
        "max": max,
    }
    exec(code, names)
    ours: dict[str, Any] = {
        "real_func": qd.real_func,
        "i32": qd.i32,
        "FP": dtype,
        "sin": qd.sin,
        "max": qd.max,
    }
    exec(code, ours)
    by_hand: Any = names["f0"]
    function = ours["f0"]
    x, y = (qd.field(dtype, shape, needs_grad=True) for shape in ((6, 2), 6))

    @qd.kernel
    def run():
        for i in y:
            y[i] = function(i % 4, x[i, 0], x[i, 1])

    points = np.random.default_rng(seed).uniform(-1, 1, (6, 2)).astype(np.float32).astype(float)
    x.from_numpy(points.astype(np.float32 if SINGLE else np.float64))
    run()
    expected = np.array([by_hand(i % 4, *points[i]) for i in range(6)])
    assert y.to_numpy() == pytest.approx(expected, rel=1e-4 if SINGLE else 1e-9, abs=1e-5)
    y.grad.fill(1.0)
    run.grad()
    h = 1e-6
    for i in range(6):
        for j in range(2):
            step = np.eye(2)[j] * h
            above, below = (by_hand(i % 4, *(points[i] + s * step)) for s in (1, -1))
            slope = (above - below) / (2 * h)
            assert x.grad[i, j] == pytest.approx(slope, rel=2e-3 if SINGLE else 1e-4, abs=1e-3)


# -- errors ----------------------------------------------------------------------------------------


def test_what_keeps_a_recursion_from_run_time() -> None:
    @qd.real_func
    def without_result(n: qd.i32):
        return 0 if n == 0 else without_result(n - 1)

    @qd.real_func
    def without_parameter(n) -> qd.i32:
        return 0 if n == 0 else without_parameter(n - 1)

    @qd.func
    def inlined(n: qd.i32) -> qd.i32:
        return 0 if n == 0 else inlined(n - 1)

    for function in (without_result, without_parameter, inlined):
        with pytest.raises(qd.OctantsCompilationError, match="OCT124"):
            values(lambda n, f=function: f(n))


def test_recursion_at_compile_time_stays() -> None:
    @qd.real_func
    def power(x: qd.i32, n: qd.template()) -> qd.i32:
        if qd.static(n == 0):
            return 1
        return x * power(x, n - 1)

    assert values(lambda n: power(n, 3)) == [n**3 for n in range(10)]


def test_arguments_that_a_recursion_cannot_take() -> None:
    x = qd.field(qd.i32, 4)

    @qd.real_func
    def add(total: qd.ref(qd.i32), n: qd.i32):
        total += n
        if n > 0:
            add(total, n - 1)

    @qd.kernel
    def element():
        for i in range(4):
            add(x[0], i)

    @qd.kernel
    def other_type():
        for i in range(4):
            total = 0.5
            add(total, i)
            x[i] = total

    @qd.kernel
    def variable():
        for i in range(4):
            total = 100
            add(total, i)
            x[i] = total

    @qd.real_func
    def of_vectors(n: qd.i32) -> qd.i32:
        if n > 0:
            of_vectors(n - 1)
        return qd.Vector([n, n])

    for kernel in (element, other_type):
        with pytest.raises(qd.OctantsTypeError) as caught:
            kernel()
        check_golden(f"errors/OCT127_{kernel.__name__}", without_lines(str(caught.value)))
    variable()
    assert x.to_numpy().tolist() == [100, 101, 103, 106]
    with pytest.raises(qd.OctantsCompilationError, match="the value of `of_vectors`"):
        values(lambda n: of_vectors(n))
