"""The oracle against results worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octants.fuzz.oracle.run import run
from octants.fuzz.oracle.state import IllDefined, OutOfFuel
from octants.fuzz.program import Text
from tests.fuzz.helpers import make, outcome

ARRAYS = """
x = qd.field(FP, shape=(3,), needs_grad=True)
y = qd.field(FP, shape=(3,), needs_grad=True)
n = qd.field(qd.i32, shape=(3,))
"""


def with_arrays(kernels: str) -> str:
    return ARRAYS + kernels


CONTENTS = {"x": [1.0, 2.0, 3.0], "y": [0.0, 0.0, 0.0], "n": [1, 2, 3]}


def test_a_product_has_its_gradient_and_tangent() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        y[i] += x[i] * x[i]
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [1, 10, 100]})
    assert result.primal["y"].value.tolist() == [1, 4, 9]
    assert result.gradient["x"].value.tolist() == [2, 40, 600]
    assert result.tangent["y"].value.tolist() == [3, 5, 7]  # y's own direction and 2 x
    assert result.gradient["y"].value.tolist() == [1, 10, 100]  # += leaves the adjoint


def test_a_store_ends_the_adjoint_of_what_it_overwrites() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        y[i] = 3 * x[i]
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [1, 1, 1]})
    assert result.gradient["y"].value.tolist() == [0, 0, 0]
    assert result.gradient["x"].value.tolist() == [3, 3, 3]


def test_last_write_wins_and_reads_see_what_was_there() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        x[i] = x[i] * x[i]
        y[i] = x[i] * 5
        x[i] = 7.0
""")
    result = outcome(source, CONTENTS)
    assert result.primal["x"].value.tolist() == [7, 7, 7]
    assert result.gradient["x"].value.tolist() == [10, 20, 30]


def test_items_of_a_dict_are_updated() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        items = {"a": x[i], "b": 2.0}
        items["a"] *= items["b"]
        y[i] = items["a"]
""")
    result = outcome(source, CONTENTS)
    assert result.primal["y"].value.tolist() == [2, 4, 6]
    assert result.gradient["x"].value.tolist() == [3, 3, 3]  # of x itself, too


def test_a_local_keeps_its_first_type() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        a = 1
        a += 2.9
        a = a + 0.9
        y[i] = a
""")
    assert outcome(source, CONTENTS).primal["y"].value.tolist() == [3, 3, 3]


def test_f32_rounds_after_every_operation() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        y[i] = x[i] + 1e-9 - 1.0
""")
    assert outcome(source, CONTENTS, precision="f32").primal["y"].value[0] == 0.0
    assert outcome(source, CONTENTS, precision="f64").primal["y"].value[0] == (1.0 + 1e-9) - 1.0


def test_literals_have_the_default_type() -> None:
    source = """
z = qd.field(qd.f64, shape=(1,), needs_grad=True)
@qd.kernel
def k():
    for i in z:
        z[i] = z[i] * 0.1
"""
    result = outcome(source, {"z": [1.0]}, precision="f32")
    assert result.primal["z"].value[0] == float(np.float32(0.1))


def test_integers_wrap_and_divide_like_python() -> None:
    source = """
n = qd.field(qd.i32, shape=(6,))
@qd.kernel
def k():
    n[0] = 2147483647 + n[0]
    n[1] = (0 - 7) // n[1]
    n[2] = (0 - 7) % n[2]
    n[3] = 5 // n[3]
    n[4] = 5 % n[4]
    n[5] = qd.cast(qd.cast(n[5], qd.u8), qd.i32)
"""
    result = outcome(source, {"n": [1, 2, 3, 0, 0, 300]})
    assert result.primal["n"].value.tolist() == [-2147483648, -4, 2, 0, 5, 44]


def test_integers_compare_by_value_whatever_their_types() -> None:
    source = """
n = qd.field(qd.i8, shape=(3,))
u = qd.field(qd.u32, shape=(3,))
@qd.kernel
def k():
    for i in range(3):
        n[i] = qd.select(n[i] < u[i], 1, 0)
"""
    result = outcome(source, {"n": [-103, 2, 5], "u": [1, 4294967295, 5]})
    assert result.primal["n"].value.tolist() == [1, 1, 0]


def test_large_literals_take_the_type_of_the_other_operand() -> None:
    source = """
n = qd.field(qd.i64, shape=(3,))
u = qd.field(qd.u32, shape=(3,))
@qd.kernel
def k():
    n[0] = u[0] * 4294967295
    n[1] = qd.cast(u[1], qd.i32) * 4294967295
    n[2] = u[2] * 4294967296
"""
    result = outcome(source, {"n": [0, 0, 0], "u": [2, 2, 2]})
    assert result.primal["n"].value.tolist() == [4294967294, 8589934590, 8589934592]


def test_a_side_that_is_not_taken_changes_nothing() -> None:
    source = """
z = qd.field(qd.f64, shape=(2,), needs_grad=True)
@qd.func
def f(v: qd.template()):
    v[0] -= 1.0
    return 0.5
@qd.kernel
def k(n: qd.i32):
    v = qd.Vector([3.0, 4.0])
    z[0] = f(v) if n > 5 else 1.5
    z[1] = v[0]
"""
    result = outcome(source, {"z": [0.0, 0.0]}, 1)
    assert result.primal["z"].value.tolist() == [1.5, 3.0]


def test_the_type_of_a_choice_is_that_of_both_sides() -> None:
    """Also where the condition is known when the kernel is compiled, but not in `static`."""
    source = """
n = qd.field(qd.i32, shape=(4,))
u = qd.field(qd.u8, shape=(1,))
@qd.kernel
def k():
    a = qd.cast(n[0], qd.i8)
    n[0] = a if 0.4 < 0.5 else u[0]
    n[1] = u[0] if 0.5 < 0.4 else a
    n[2] = a if qd.static(0.4 < 0.5) else u[0]
    n[3] = (a if n[3] > 0 else u[0]) + (-1 if 2 > 1 else 1.5)
"""
    result = outcome(source, {"n": [-3, 0, 0, 1], "u": [2]})
    assert result.primal["n"].value.tolist() == [253, 253, -3, 252]


def test_vectors_copy_on_assignment() -> None:
    source = """
v = qd.Vector.field(2, FP, shape=(1,), needs_grad=True)
@qd.func
def g(a):
    a[0] = 9.0
    return a
@qd.kernel
def k():
    for i in v:
        a = v[i]
        b = a
        b[i + 1] = 5.0
        c = g(b)
        v[i] = a + 10 * b + 100 * c
"""
    result = outcome(source, {"v": [[1.0, 2.0]]})
    assert result.primal["v"].value.tolist() == [[1 + 10 + 900, 2 + 50 + 500]]


def test_conventions_at_kinks() -> None:
    source = """
x = qd.field(FP, shape=(6,), needs_grad=True)
y = qd.field(FP, shape=(6,), needs_grad=True)
@qd.kernel
def k():
    y[0] = qd.abs(x[0])
    y[1] = qd.sqrt(x[1])
    y[2] = qd.max(x[2], x[3])
    y[3] = qd.min(x[2], x[3])
    y[4] = x[4] ** 0
    y[5] = x[5] % 2.0
"""
    contents = {"x": [0.0, 0.0, 1.0, 1.0, 0.0, 5.0], "y": [0.0] * 6}
    result = outcome(source, contents, weights={"x": [0] * 6})
    assert result.gradient["x"].value.tolist() == [0, 0, 2, 0, 0, 1]
    assert not result.near


def test_atomic_extremum_gives_the_adjoint_to_the_winner_and_ties_to_the_prior_value() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    qd.atomic_max(y[0], x[0])
    qd.atomic_max(y[0], x[1])
    qd.atomic_max(y[1], x[2] - 3)
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [1, 1, 1]})
    assert result.gradient["x"].value.tolist() == [0, 1, 0]
    assert result.gradient["y"].value.tolist() == [0, 1, 1]


def test_values_cross_tasks() -> None:
    source = with_arrays("""
@qd.kernel
def k() -> FP:
    s = 2.0 * x[0]
    t = 0.0
    for i in range(3):
        t += s * x[i]
    y[1] = t
    return t
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [0, 1, 0]})
    assert result.returned[0].value.tolist() == [12.0]
    assert result.gradient["x"].value.tolist() == [12 + 2, 2, 2]


def test_breaks_and_early_returns() -> None:
    source = with_arrays("""
@qd.func
def g(a):
    for j in range(4):
        if a > 2.5:
            return a * j
        a = a * 1.5
    return a
@qd.kernel
def k():
    for i in x:
        s = 0.0
        while True:
            s += x[i]
            if s > 4.0:
                break
        y[i] = s + g(x[i])
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0]})
    assert result.primal["y"].value.tolist() == [5 + 3.375 * 3, 6 + 3, 6]
    assert result.gradient["x"].value.tolist() == [5 + 3.375 * 3, 3 + 1.5, 2]


def test_random_draws_depend_on_the_item_and_the_draw() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        a = qd.random()
        y[i] = a + qd.random()
""")
    values = outcome(source, CONTENTS, precision="f32").primal["y"].value
    assert len(set(values.tolist())) == 3
    assert values.tolist() == outcome(source, CONTENTS, precision="f32").primal["y"].value.tolist()


@pytest.mark.parametrize(
    "body",
    [
        "        y[0] = x[i]\n",
        "        y[i] = x[(i + 1) % 3]\n        x[i] = 0.0\n",
        "        y[i] = x[i + 1]\n",
        "        if i == 1:\n            a = 1.0\n        y[i] = a\n",
        "        y[i] = x[i] / (x[i] - x[i])\n",
    ],
    ids=["race of stores", "race of a load and a store", "bounds", "unassigned", "division"],
)
def test_programs_outside_the_language_are_noticed(body: str) -> None:
    source = ARRAYS + "@qd.kernel\ndef k():\n    for i in range(3):\n" + body
    with pytest.raises(IllDefined):
        outcome(source, CONTENTS)


def test_a_race_on_a_local_of_the_kernel_is_noticed() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    s = 0.0
    for i in range(3):
        y[i] = s
        s = x[i]
""")
    with pytest.raises(IllDefined, match="race"):
        outcome(source, CONTENTS)


def test_a_local_of_the_kernel_that_iterations_assign_first_keeps_the_last_number() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    s = 0.0
    for i in range(3):
        s = x[i]
        s *= x[i]
        y[i] = s
    else:
        y[0] = s
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [1, 1, 1]})
    assert result.primal["y"].value.tolist() == [9, 4, 9]
    assert result.gradient["x"].value.tolist() == [0, 4, 12]


def test_match_and_assignments_in_its_guards() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in range(3):
        a = i
        match a:
            case 1 if (a := 5) > x[i]:
                y[i] = a * x[i]
            case 0 | 5:
                y[i] = x[i] * x[i]
            case _:
                y[i] = -x[i]
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [1, 1, 1]})
    assert result.primal["y"].value.tolist() == [1, 10, -3]
    assert result.gradient["x"].value.tolist() == [2, 5, -1]


def test_arguments_have_gradients() -> None:
    source = with_arrays("""
@qd.kernel
def k(a: FP, n: qd.i32, v: qd.types.vector(2, FP)):
    for i in range(n):
        y[i] += a * a * x[i] + v[0] * v[1]
""")
    program = make(source, CONTENTS, [("k", (3.0, 2, [5.0, 7.0])), ("k", (1.0, 3, [1.0, 2.0]))])
    (a, v), (b, w) = run(program).arguments
    assert [each.value.tolist() for each in (a, v, b, w)] == [[18], [14, 10], [12], [6, 3]]


def test_endless_programs_end() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    while True:
        pass
""")
    with pytest.raises(OutOfFuel):
        outcome(source, CONTENTS)


def test_close_decisions_are_noted() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        if qd.sin(x[i]) ** 2 + qd.cos(x[i]) ** 2 < 1.0:
            y[i] = 1.0
""")
    assert outcome(source, CONTENTS).near


def test_bounds_hold_between_precisions() -> None:
    """The f32 run's distance from an f64 one is within its bound: values and gradients."""
    source = with_arrays("""
@qd.kernel
def k():
    for i in x:
        s = x[i]
        for j in range(20):
            s = qd.sin(1.1 * s) + 0.1 * qd.exp(-s * s)
        y[i] = s
""")
    rough = outcome(source, CONTENTS, precision="f32")
    program = make(source, CONTENTS, [("k", ())], precision="f32")
    exact = run(program, rounding=False)
    for got, want in ((rough.primal, exact.primal), (rough.gradient, exact.gradient)):
        distance = np.abs(got["x"].value - want["x"].value) + np.abs(
            got["y"].value - want["y"].value
        )
        assert np.all(distance <= got["x"].error + got["y"].error + 1e-12)
    assert 0 < rough.primal["y"].error.max() < 1e-3
    assert math.isfinite(rough.gradient["x"].error.max())


STRUCTS = """
@qd.dataclass
class Pair:
    a: FP
    v: qd.types.vector(2, FP)

    @qd.func
    def grow(self, by):
        self.a += by
        return self.a * self.v.x

s = Pair.field(shape=(2,), needs_grad=True)
y = qd.field(FP, shape=(4,), needs_grad=True)

@qd.func
def g(p):
    p.a = 100.0
    return p
"""


def test_structs_copy_on_assignment_and_methods_change_their_own() -> None:
    source = (
        STRUCTS
        + """
@qd.kernel
def k(p: Pair):
    u = s[0]
    w = u
    w.a = 7.0
    w.v[1] += 1.0
    y[0] = u.a + 10 * w.a + 100 * w.v.y
    y[1] = g(u).a + u.a
    y[2] = u.grow(2.0) + u.a
    s[1] = w
    s[1].a += 1.0
    y[3] = p.v.y + Pair(v=p.v).a
"""
    )
    inputs = {"s.a": [1.0, 0.0], "s.v": [[2.0, 3.0], [0.0, 0.0]], "y": [0.0] * 4}
    program = make(source, inputs, [("k", (Text("Pair(0.5, [4.0, 5.0])"),))])
    result = run(program)
    assert result.primal["y"].value.tolist() == [1 + 70 + 400, 101, 6 + 3, 5]
    assert result.primal["s.a"].value.tolist() == [1, 8]
    assert result.primal["s.v"].value.tolist() == [[2, 3], [2, 4]]
    assert result.gradient["s.a"].value.tolist() == [1 + 1 + 1 + 3, 0]  # y and what is left in s


def test_kernels_of_objects() -> None:
    source = """
x = qd.field(FP, shape=(2,), needs_grad=True)

@qd.data_oriented
class Model:
    def __init__(self, factor):
        self.factor, self.x = factor, x

    @qd.func
    def scaled(self, a):
        return a * self.factor

    @qd.kernel
    def k(self, n: qd.i32):
        for i in self.x:
            self.x[i] = self.scaled(self.x[i]) + n

one, other = Model(2.0), Model(5.0)
"""
    launches = [("one.k", (1,)), ("other.k", (2,))]
    result = run(make(source, {"x": [1.0, 3.0]}, launches))
    assert result.primal["x"].value.tolist() == [17, 37]
    assert result.gradient["x"].value.tolist() == [10, 10]


def test_a_member_that_the_value_of_its_update_assigns() -> None:
    """The update finds what the method left, as in the language, where vectors are in place."""
    source = """
x = qd.field(FP, shape=(2,), needs_grad=True)

@qd.dataclass
class S:
    v: qd.types.vector(2, FP)

    @qd.func
    def reset(self, a):
        self.v = a
        return 1

@qd.kernel
def k():
    for i in range(1):
        s = S(qd.Vector([x[0], x[1]]))
        s.v[1] -= s.reset(0.5)
        x[0], x[1] = s.v[0], s.v[1]
"""
    result = run(make(source, {"x": [3.0, 4.0]}, [("k", ())]))
    assert result.primal["x"].value.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("block", ["bitmasked", "dynamic"])
def test_a_loop_over_a_sparse_field_visits_what_was_active_before(block: str) -> None:
    source = f"""
x = qd.field(FP, needs_grad=True)
qd.root.{block}(qd.i, 4).place(x)
@qd.kernel
def k():
    for i in x:
        x[3] += 1.0
"""
    result = outcome(source, {"x": [1.0, 2.0, 0.0, 0.0]}, weights={"x": [1] * 4})
    assert result.primal["x"].value.tolist() == [1, 2, 0, 2]


def test_floats_with_one_exponent_have_that_of_the_largest() -> None:
    source = """
q = qd.Vector.field(2, qd.types.quant.float(6, 4))
W = qd.BitpackedFields(max_num_bits=32)
W.place(q, shared_exponent=True)
qd.root.dense(qd.i, 3).place(W)
@qd.kernel
def k():
    q[0] = qd.Vector([5.0, 0.4])
    q[1][0] = 3.0
    q[2][1] = 15.9
"""
    result = outcome(source, {"q": [[0.0, 0.0], [0.0, 1.1], [1.6, 0.0]]})
    assert result.primal["q"].value.tolist() == [[5, 0], [3, 1], [2, 14]]


def test_the_counter_of_a_range_is_an_i32_or_an_i64() -> None:
    source = """
n = qd.field(qd.u64, shape=(3,))
m = qd.field(qd.u8, shape=(3,))
y = qd.field(FP, shape=(3,))
@qd.kernel
def k():
    for i in range(3):
        for j in range(n[i]):
            y[i] = ~j
        for j in range(m[i], m[i] + 1):
            y[i] += j - 300
"""
    result = outcome(source, {"n": [1, 2, 3], "m": [5, 6, 7], "y": [0.0] * 3})
    assert result.primal["y"].value.tolist() == [-296, -296, -296]


def test_clamped_indices_and_orders_of_axes() -> None:
    source = """
x = qd.ndarray(FP, shape=(3,), needs_grad=True)
y = qd.field(FP, shape=(3,), needs_grad=True)
@qd.kernel
def k(x: qd.types.ndarray(FP, 1, boundary="clamp")):
    for i in range(3):
        y[i] = x[i - 1] * x[i + 2]
    for i in range(1):
        s = 0
        for a, b in qd.ndrange(2, (3, 5), axes=(1, 0)):
            s = 10 * s + a + b
        x[5] = s
"""
    contents = {"x": [1.0, 2.0, 4.0], "y": [0.0] * 3}
    program = make(source, contents, [("k", ("x",))], weights={"x": [0] * 3, "y": [1, 1, 1]})
    result = run(program)
    assert result.primal["x"].value.tolist() == [1, 2, 3445]
    assert result.primal["y"].value.tolist() == [4, 4, 8]
    assert result.gradient["x"].value.tolist() == [8, 4, 4]


def test_the_operand_that_decides_has_the_type_of_both() -> None:
    source = with_arrays("""
@qd.kernel
def k():
    for i in range(1):
        n[0] = (qd.u32(0) or 3) * 65536 * 65536 // 65536
        n[1] = (n[1] and 5) + (qd.u32(2) and n[2] and 7)
        n[2] = (0 and 4) + (n[2] > 5 or 2)
""")
    result = outcome(source, CONTENTS, weights={"x": [0, 0, 0], "y": [0, 0, 0]})
    assert result.primal["n"].value.tolist() == [0, 12, 2]
