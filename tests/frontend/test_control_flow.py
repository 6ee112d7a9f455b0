"""Loops, conditions and ways out of them: the kernel does what the Python function does."""

from __future__ import annotations

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsNameError, OctantsSyntaxError
from octants.ir import ops
from octants.lang.directives import loop_config, ndrange, static
from tests.frontend.frontend_programs import agree, compile_kernel, define, func, run


def numbers(count: int) -> np.ndarray:
    return np.linspace(-1.0, 2.0, count)


# -- counted loops ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [
        (5,),
        (0,),
        (-3,),
        (2, 7),
        (7, 2),
        (0, 10, 3),
        (10, 0, -1),
        (10, 0, -3),
        (0, 10, -1),
        (3, 3, 2),
    ],
)
def test_ranges_of_numbers_and_of_arguments(bounds: tuple[int, ...]) -> None:
    names = [f"b{k}" for k in range(len(bounds))]
    for given in (names, [str(bound) for bound in bounds]):
        text = f"""
def kernel(n, {", ".join(names)}):
    s = 0
    for k in range(n):
        for i in range({", ".join(given)}):
            s = (s * 3 + i + k) % 10007
    return s
"""
        agree(define(text), 2, *bounds)


def test_a_step_of_zero_at_run_time_has_no_iterations() -> None:
    def kernel(n: int, step: int) -> int:
        s = 0
        for i in range(0, n, step):
            s = s + i + 1
        return s

    assert run(kernel, 5, 0) == 0


def test_ranges_to_the_end_of_the_type() -> None:
    def kernel(n):
        s = 0
        for i in range(2147483640, 2147483647, n):
            s = s + (i - 2147483640)
        for _ in range(0, 2147483647, 1000000000):
            s = s + 1
        return s

    agree(kernel, 3)


def test_bounds_are_taken_once() -> None:
    def kernel(n):
        s = 0
        for i in range(n):
            n = n + 1
            s = s + n * i
        return s + n

    agree(kernel, 4)


def test_the_index_may_be_assigned() -> None:
    def kernel(n):
        s = 0
        for i in range(n):
            i = i * 2
            s = s + i
        return s

    agree(kernel, 5)


def test_an_index_that_was_a_variable_keeps_its_last_value() -> None:
    def kernel(n, m):
        i = -1
        s = 0
        for _ in range(m):
            for i in range(n):
                s = s * 2 + i
            s = s + i
        return s * 100 + i

    agree(kernel, 3, 2)
    agree(kernel, 0, 2)


def test_nested_ndrange_with_bounds() -> None:
    def kernel(n, m):
        s = 0
        for k in range(2):
            for i, j in ndrange((1, n), m):
                s = (s * 3 + i * 10 + j + k) % 10007
        return s

    agree(kernel, 4, 3)
    agree(kernel, 0, 3)
    agree(kernel, 3, 0)


def test_leaving_ndrange_leaves_all_of_it() -> None:
    def kernel(n, m):
        s = 0
        for _ in range(2):
            for i, j, l in ndrange(n, (-1, m), 2):
                if i * j == 2:
                    break
                if l == 1:
                    continue
                s = (s * 3 + i * 10 + j) % 10007
        return s

    agree(kernel, 4, 3)


# -- ways out --------------------------------------------------------------------------------------


def test_break_and_continue_in_nested_loops() -> None:
    def kernel(x, n):
        s = 0.0
        for i in range(n):
            if x[i] < -0.5:
                continue
            for j in range(n):
                if j == 3:
                    break
                if x[j] > 1.0:
                    s = s + 100.0
                    continue
                s = s * 0.5 + x[j]
            else_part = s
            if s > 300.0:
                break
            s = s + else_part
        return s

    agree(kernel, numbers(6), 6)


def test_return_from_a_loop_in_a_loop() -> None:
    def kernel(x, n, limit):
        s = 0.0
        while True:
            for i in range(n):
                s = s + x[i] + 1.0
                if s > limit:
                    x[0] = s
                    return s * 2
            s = s + 0.5

    agree(kernel, numbers(5), 5, 20.0)


def test_a_while_that_is_left_and_one_that_is_not() -> None:
    def kernel(n):
        a, b = 0, 1
        while a < n:
            a, b = b, a + b
            if b == 8:
                break
        while True:
            a += 3
            if a % 7 == 0:
                break
            if a > 1000:
                return -1
        return a * 1000 + b

    for n in (0, 3, 7, 50):
        agree(kernel, n)


def test_a_break_does_not_look_at_the_condition_again() -> None:
    def kernel(x, n):
        i = 0
        while x[i] < 1.0:
            i += 1
            if i == n:
                break
        return i

    agree(kernel, np.zeros(3), 3)


def test_a_condition_with_effects_is_evaluated_as_often_as_in_python() -> None:
    text = """
@func
def take(x):
    x[0] += 1.0
    return x[0]

def kernel(x, n):
    s = 0
    while take(x) < n:
        s += 1
        if s == 100:
            continue
        if s > 5:
            break
    return s
"""
    agree(define(text), np.zeros(1), 4)
    agree(define(text), np.zeros(1), 40)


def test_a_condition_that_assigns() -> None:
    def kernel(n):
        s = 0
        while (k := s * 2 + 1) < n:
            s = s + k
        return s * 100 + k

    agree(kernel, 50)


def test_code_after_a_way_out_is_not_reached() -> None:
    def kernel(n):
        loop_config(serialize=True)
        for i in range(n):
            if i > 2:
                return i
                i = 100
            else:
                continue
            n = 7
        return -1

    agree(kernel, 5)
    agree(kernel, 2)


# -- functions -------------------------------------------------------------------------------------


def test_early_returns_of_functions() -> None:
    text = """
@func
def root(x, n):
    if x < 0.0:
        return -1.0
    guess = x
    for i in range(n):
        better = 0.5 * (guess + x / guess)
        if abs(better - guess) < 1e-3:
            return better
        guess = better
    return guess

@func
def sign(x):
    if x > 0.0:
        return 1
    elif x < 0.0:
        return -1
    else:
        return 0

def kernel(x, n):
    s = 0.0
    for i in range(n):
        s = s * 2.0 + root(x[i], 10) + sign(x[i])
    return s
"""
    agree(define(text), numbers(6), 6)


def test_returns_of_other_types_meet() -> None:
    text = """
@func
def pick(n):
    for i in range(n):
        if i == 3:
            return i
        if i == 5:
            return 0.5
    if n == 1:
        return 2
    return 0.25

def kernel(n):
    return pick(n) * 2.0
"""
    for n in (0, 1, 2, 4):
        agree(define(text), n)


def test_functions_with_loops_in_loops_carry_their_results() -> None:
    text = """
@func
def inner(x, n):
    for i in range(n):
        if i * i > x:
            return i * 1.0
    return -1.0

@func
def outer(x, n):
    for k in range(n):
        y = inner(x + k, n)
        if y > 2.0:
            return y + k
    return 0.0

def kernel(n):
    s = 0.0
    for j in range(n):
        s = s * 1.5 + outer(j * 1.0, n)
    return s
"""
    for n in (0, 3, 6):
        agree(define(text), n)


def test_a_template_parameter_is_the_variable_itself() -> None:
    text = """
@func
def add(a: template, b):
    a += b
    b = 0.0

def kernel(n):
    s = 0.0
    b = 2.0
    for i in range(n):
        add(s, b)
        while s > 5.0:
            add(s, -3.0)
    return s * 10.0 + b
"""
    from octants.lang.directives import template

    given = run(define(text, template=template), 4)
    s = 0.0
    for _ in range(4):
        s += 2.0
        while s > 5.0:
            s += -3.0
    assert given == s * 10.0 + 2.0


# -- unrolled loops --------------------------------------------------------------------------------


def test_unrolled_loops_can_be_left() -> None:
    def kernel(x, n):
        s = 0.0
        for i in static(range(4)):
            if x[i] > 0.5:
                break
            if x[i] < -0.5:
                continue
            for j in static((1, 2)):
                if s > n:
                    return s * 1.0
                s = s + x[i] + j
        return s

    for n in (0, 2, 100):
        agree(kernel, numbers(6), n)


def test_variables_of_unrolled_loops_live_on() -> None:
    def kernel(x):
        for i in static(range(3)):
            if static(i == 0):
                best = x[0]
            else:
                if x[i] > best:
                    best = x[i]
        return best

    agree(kernel, numbers(3))


def test_items_of_unrolled_loops_keep_their_types() -> None:
    def kernel(n):
        s = 0.0
        for item in static((1, 2.5)):
            value = item
            s = s + value * n
        return s

    agree(kernel, 3)


def test_the_index_of_an_ended_unrolled_loop_is_a_free_name() -> None:
    def kernel(x, n):
        s = 0.0
        for d in static(range(3)):
            s = s + d * x[d]
        s = s + d
        if n > 1:
            d = x[0] * 0.5
            s = s + d
        for _ in range(2):
            d = (x[1], x[2])
            for k in static(range(2)):
                s = s + d[k]
        for d in range(n):
            s = s + d
        return s

    for n in (0, 4):
        agree(kernel, numbers(3), n)


# -- parallel loops --------------------------------------------------------------------------------


def loops_of(function, *arguments) -> list[type]:
    built = compile_kernel(function, *arguments)
    kinds = (ops.ParallelFor, ops.For, ops.While)
    assert built.module.body is not None
    return [type(op) for op in built.module.body.ops if isinstance(op, kinds)]


def test_top_level_loops_are_parallel() -> None:
    def kernel(x, n):
        for i in range(n):
            x[i] = x[i] * 2.0
        s = 0.0
        for i in range(n):
            s += x[i]
        if s > 0.0:
            for i in range(n):
                x[i] = s
        for i in static(range(2)):
            for j in range(2):
                x[i + j] += 1.0
        return s

    agree(kernel, numbers(5), 5)
    kinds = loops_of(kernel, numbers(5), 5)
    assert kinds == [ops.ParallelFor] * 4


def test_a_loop_that_reads_what_it_assigns_runs_in_order() -> None:
    def kernel(x, n):
        s = 1.0
        for i in range(n):
            s = s * 0.5 + x[i]
        total = 0.0
        for i in range(n):
            total += x[i]
            x[i] = total
        return s + total

    agree(kernel, numbers(5), 5)
    assert loops_of(kernel, numbers(5), 5) == [ops.For, ops.For]


def test_a_serialised_loop_can_be_left() -> None:
    def kernel(x, n):
        loop_config(serialize=True)
        for i in range(n):
            if x[i] > 0.0:
                break
            x[i] = 5.0

    built = loops_of(kernel, numbers(5), 5)
    assert built == [ops.While]
    x = numbers(5)
    run(kernel, x, 5)
    np.testing.assert_allclose(x, [5.0, 5.0, 0.5, 1.25, 2.0])


def test_a_loop_after_a_possible_return_is_skipped() -> None:
    def kernel(x, n):
        if n > 3:
            return -1
        s = 0.0
        for i in range(int(x[0]) + n):
            x[i] = 7.0
            s += 1.0
        y = s * 2
        for i in range(n):
            x[i] += y
        return n

    assert loops_of(kernel, np.zeros(5), 3) == [ops.ParallelFor] * 2
    for n in (2, 5):
        agree(kernel, np.zeros(5), n)


def test_vectors_that_a_parallel_loop_adds_to() -> None:
    from octants.types.matrix_values import Vector

    def kernel(x, n):
        v = Vector([0.0, 1.0])
        for i in range(n):
            v[0] += x[i]
            v[1] -= 2.0
        w = v * 2.0
        return w[0] + w[1]

    assert loops_of(kernel, numbers(5), 5) == [ops.ParallelFor]
    assert run(kernel, numbers(5), 5) == 2.0 * (numbers(5).sum() + 1.0 - 10.0)


def test_variables_that_parallel_loops_change_are_seen_everywhere() -> None:
    def kernel(x, n):
        found = 0
        s = 1.0
        last = -1
        for i in range(n):
            if x[i] > 1.0:
                found = 1
            s += x[i]
        if found > 0:
            s = s * 2.0
            found += 4
        k = 0
        while k < 3:
            s -= 0.5
            k += found + 1
        for _ in range(n):
            s += 1.0
            last = 7
        a, b = s, last
        s = 0.25
        for i in static(range(2)):
            t = 0.0
            for j in range(n):
                t += x[j] * (i + 1)
            x[i] = t
        return a + b * 10.0 + s + found * 100.0

    for n in (0, 2, 6):
        agree(kernel, numbers(6), n)
    assert loops_of(kernel, numbers(6), 6).count(ops.ParallelFor) == 4


def test_a_variable_in_memory_may_be_given_to_a_function() -> None:
    text = """
@func
def add(total: template, value):
    total += value

@func
def scale(total: template, value):
    total = total * value

def kernel(x, n):
    s = 0.0
    for i in range(n):
        s += x[i]
    add(s, 2.5)
    for i in range(n):
        add(s, x[i])
    for i in range(n):
        scale(s, 2.0)
    return s
"""
    from octants.lang.directives import template

    kernel = define(text, template=template)
    assert run(kernel, numbers(5), 5) == pytest.approx(32 * (2 * numbers(5).sum() + 2.5))
    assert loops_of(kernel, numbers(5), 5) == [ops.ParallelFor, ops.ParallelFor, ops.For]


def test_parallel_loops_change_what_functions_refer_to() -> None:
    text = """
@func
def store(y: template, x: template, n):
    for i in range(n):
        y[i] = x[i] + 1.0

@func
def add(total: template, x: template, n):
    for i in range(n):
        total += x[i]

@func
def both(y: template, x: template, total: template, n):
    store(y, x, n)
    add(total, y, n)

def kernel(x, y, n):
    v = Vector([0.5, 2.0])
    both(y, x, v[1], n)
    total = 1.0
    both(x, y, total, n)
    return v[0] + 10.0 * v[1] + 100.0 * total
"""
    from octants.lang.directives import template
    from octants.types.matrix_values import Vector

    kernel = define(text, template=template, Vector=Vector)
    x, y = numbers(5), np.zeros(5)
    once, twice = x + 1.0, x + 2.0
    wanted = 0.5 + 10.0 * (2.0 + once.sum()) + 100.0 * (1.0 + twice.sum())
    assert loops_of(kernel, x, y, 5) == [ops.ParallelFor] * 4
    assert run(kernel, x, y, 5) == pytest.approx(wanted)
    np.testing.assert_allclose(y, once)
    np.testing.assert_allclose(x, twice)


def test_a_loop_after_a_loop_that_may_return() -> None:
    def kernel(x, n):
        k = 0
        while k < n:
            if x[k] > 1.5:
                return k
            k += 1
        for i in range(n):
            x[i] += k
        return -k

    for n in (3, 5):
        agree(kernel, numbers(5), n)
    assert loops_of(kernel, numbers(5), 5) == [ops.While, ops.ParallelFor]


def test_loops_of_functions_that_the_kernel_calls_are_parallel_too() -> None:
    text = """
@func
def fill(x, n, value):
    for i in range(n):
        x[i] = value

@func
def power(a, n):
    for i in range(n):
        a = a * 2.0
    return a

def kernel(x, n):
    fill(x, n, power(1.5, 3))
"""
    kernel = define(text)
    assert loops_of(kernel, np.zeros(4), 4) == [ops.For, ops.ParallelFor]
    agree(kernel, np.zeros(4), 4)


@pytest.mark.parametrize("word", ["break", "return"])
def test_a_parallel_loop_cannot_be_left(word: str) -> None:
    text = f"""
def kernel(x, n):
    for i in range(n):
        if x[i] > 0.0:
            {word}
"""
    with pytest.raises(OctantsSyntaxError, match="parallel"):
        compile_kernel(define(text), numbers(3), 3)


def test_a_return_of_a_function_in_a_parallel_loop_is_fine() -> None:
    @func
    def half(x):
        if x > 0.0:
            return x * 0.5
        return x

    def kernel(x, n):
        for i in range(n):
            x[i] = half(x[i])

    agree(kernel, numbers(5), 5)


# -- scopes ----------------------------------------------------------------------------------------


def test_a_variable_assigned_in_both_branches_lives_on() -> None:
    def kernel(n):
        if n > 2:
            a = 1
            if n > 5:
                b = 2.5
            else:
                b = n
        elif n < 0:
            return -1.0
        else:
            a = 2.5
            b = n * 2
        return a * 10.0 + b

    for n in (0, 3, 7, -1):
        agree(kernel, n)


@pytest.mark.parametrize(
    "body",
    [
        "if n > 0:\n        a = 1\n    return a",
        "for i in range(n):\n        a = 1\n    return a",
        "for i in range(n):\n        pass\n    return i",
        "while n > 0:\n        a = 1\n        n -= 1\n    return a",
        "a += 1\n    return a",
        "return a\n    a = 1",
        "k = 1\n    if n > 0:\n        for k in static((1, 2)):\n            pass\n    return k",
        "if n > 0:\n        a = 1\n    else:\n        a = (1, 2)\n    return a",
    ],
)
def test_names_without_a_value(body: str) -> None:
    text = f"def kernel(n):\n    {body}\n"
    expected = Exception if "(1, 2)\n    return a" in text else OctantsNameError
    with pytest.raises(expected):
        compile_kernel(define(text, static=static), 3)


def test_loops_that_use_the_index_of_an_ended_unrolled_loop_again_are_parallel() -> None:
    def kernel(x):
        for d in static(range(3)):
            x[d] = x[d] + d
        for i in range(3):
            for d in static(range(2)):
                x[i] = x[i] + d
        for d in static(range(3)):
            x[d] = x[d] + d
        for i in range(3):
            d = x[i] * 0.5
            x[i] = x[i] + d

    assert loops_of(kernel, numbers(3)) == [ops.ParallelFor, ops.ParallelFor]
