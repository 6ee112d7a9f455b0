"""``match`` on values, and the ``else`` of loops: kernels give what Python gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsSyntaxError


def numbers_and_alternatives(n: int) -> int:
    r = 0
    for _ in range(1):
        for k in range(n):
            match k % 6:
                case 0 | 2:
                    r += 1
                case 3 if r > 4:
                    break
                case 4:
                    continue
                case -1:
                    r += 5000
                case _:
                    r += 100
            r += 10
    return r


def match_without_a_case_for_all(n: int) -> int:
    r = 7
    match n:
        case 1:
            r = 1
        case 2:
            match r:
                case 7:
                    r = 70
    return r


def match_that_returns(n: int) -> int:
    match n - 1:
        case 0:
            return 5
        case 1 | 4:
            return 6
        case _ if n > 7:
            return 8
    return 9


def match_of_numbers_of_several_types(n: int) -> int:
    r = 0
    match n + 1:
        case 2:
            r = 1
        case 3 | 4 | 5:
            match 0.25 * n:
                case 0.5:
                    r += 10
                case 1.0:
                    r += 20
    match 0.5 * n:
        case 0.5:
            r += 100
        case 1:
            r += 200
    return r


def match_of_truth_values(n: int) -> int:
    r = 0
    match n > 4:
        case True if n != 6:
            r = 1
        case False:
            r = 2
    flag = n < 8
    if flag is False:
        r += 10
    if flag is not False:
        r += 20
    return r


def else_of_for(n: int) -> int:
    r = 0
    for _ in range(1):
        for k in range(2, n):
            if n % k == 0:
                break
            r += 1
        else:
            r += 100
        r += 1000
    return r


def else_of_while(n: int) -> int:
    k = 0
    while k < n:
        k += 1
        if k == 5:
            break
    else:
        k += 100
    return k


def else_without_break(n: int) -> int:
    r = 0
    for k in range(n):
        r += k
    else:
        r += 100
    while r < 110:
        r += 3
    else:
        r += 1
    return r


def break_in_an_else(n: int) -> int:
    r = 0
    for _ in range(1):
        for j in range(4):
            for k in range(j):
                if k == n:
                    break
            else:
                if j > n + 1:
                    break
                r += 1
                continue
            r += 10
        else:
            r += 100
    return r


def return_from_a_loop_with_an_else(n: int) -> int:
    r = 0
    for _ in range(1):
        k = 0
        while k < 5:
            k += 1
            if k == n:
                break
            if k + 2 == n:
                r = 50
                break
        else:
            r = 70
        r += k
    return r


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__annotations__", 0)]


@pytest.fixture(autouse=True)
def start() -> Any:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kernel_gives_what_python_gives(program: Callable[[int], int]) -> None:
    kernel = qd.kernel(program)
    assert [kernel(n) for n in range(12)] == [program(n) for n in range(12)]


def test_unrolled_loops_have_an_else() -> None:
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        r = 0
        for k in qd.static(range(4)):
            if k == n:
                break
            r += 1
        else:
            r += 100
        for k in qd.static(range(4)):
            if qd.static(k == 2):
                break
        else:
            r += 1000
        return r

    assert [run(n) for n in range(6)] == [0, 1, 2, 3, 104, 104]


def test_match_of_what_is_known_at_compile_time_builds_one_case() -> None:
    @qd.kernel
    def run(mode: qd.template()) -> qd.i32:
        r = 0
        match qd.static(mode):
            case "fast":
                r = 1
            case None:
                r = 2
            case _:
                r = qd.static(mode[0])
        return r

    assert [run("fast"), run(None), run((7, 8))] == [1, 2, 7]


def test_the_subject_is_evaluated_once() -> None:
    x = qd.field(qd.i32, ())

    @qd.func
    def draw() -> qd.i32:
        x[None] += 1
        return x[None]

    @qd.kernel
    def run() -> qd.i32:
        r = 0
        match draw():
            case 5 | 6:
                r = 1
            case 1:
                r = 2
        return r

    assert (run(), x[None]) == (2, 1)


def test_the_base_of_an_attribute_is_evaluated_once() -> None:
    struct = qd.types.struct(kind=qd.i32)
    x, y = struct.field(shape=4), qd.field(qd.i32, ())

    @qd.func
    def make(kind: qd.i32):
        y[None] += 10
        return struct(kind=kind)

    @qd.kernel
    def run() -> qd.i32:
        r = 0
        match x[qd.atomic_add(y[None], 1)].kind:
            case 5 | 6:
                r = 1
            case 0:
                r = 2
        match make(3).kind:
            case 1:
                r += 10
            case 2 | 3:
                r += 20
        return r

    assert (run(), y[None]) == (22, 11)


def guard_that_assigns_the_subject(n: int) -> int:
    k, r = n, 0
    match k:
        case 1 if (k := 5) > 9:
            r = 1
        case 5:
            r = 2
        case _:
            r = 3
    return r


def test_a_guard_may_assign_the_subject() -> None:
    kernel = qd.kernel(guard_that_assigns_the_subject)
    assert [kernel(n) for n in range(7)] == [3, 3, 3, 3, 3, 2, 3]

    @qd.func
    def increment(n: qd.template()):
        n += 1
        return n > 100

    @qd.kernel
    def run(k: qd.i32) -> qd.i32:
        r, n = 0, k
        match n:
            case 1 if increment(n):
                r = 1
            case 2:
                r = 2
        return 10 * n + r

    assert [run(k) for k in range(4)] == [0, 20, 22, 30]


def test_gradients_go_through_both() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run(mode: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(4):
                v = v * x[i]
                if v > 5.0:
                    break
            else:
                v = v * 3.0
            match mode:
                case 0:
                    y[None] += v
                case 1:
                    y[None] += v * v

    x.from_numpy(np.array([2.0, 1.5, 0.5], np.float32))
    with qd.ad.Tape(y):
        run(1)
    # 2 ** 3, 1.5 ** 4 and 3 * 0.5 ** 5, each squared
    assert x.grad.to_numpy() == pytest.approx([6 * 2.0**5, 8 * 1.5**7, 90 * 0.5**9], rel=1e-5)


def test_numbers_of_run_time_are_no_truth_values() -> None:
    """1 is equal to True, which `case True` does not ask."""

    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        match n:
            case True:
                return 1
        return 2

    with pytest.raises(OctantsSyntaxError, match="OCT133"):
        run(1)

    @qd.kernel
    def known(n: qd.template()) -> qd.i32:
        match n:
            case True:
                return 1
            case 1:
                return 2
        return 3

    assert [known(True), known(1), known(1.0), known(2)] == [1, 2, 2, 3]


def test_patterns_of_more_than_values_are_an_error() -> None:
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        match n:
            case k:
                return k

    with pytest.raises(OctantsSyntaxError, match="patterns are more than values"):
        run(1)
