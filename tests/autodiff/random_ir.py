"""Random modules, built directly in the IR, and their gradients checked by central differences."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.autodiff.forward import forward as with_tangents
from octants.autodiff.reverse import Reversed
from octants.interpreter import run
from octants.ir import component_access
from octants.ir.builder import Builder
from octants.ir.cloning import copy_module, split_tasks
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.ir.verifier import verify
from octants.passes.arithmetic.contract_to_fma import contract_to_fma
from octants.simplify import simplify
from octants.types.scalars import f64, i32, u1
from tests.autodiff.reversing import differentiate

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT
ROWS, COLUMNS = 3, 4
SMOOTH = ("sin", "cos", "tanh", "atan")
Data = dict[str, "np.ndarray[Any, Any]"]


class Generator:
    """Builds one random kernel over the arrays x and y (owned by rows), p (read) and total."""

    def __init__(self, seed: int, trips: int = 4) -> None:
        self.random = random.Random(seed)
        self.trips = trips  # loops make less
        both: dict[Companion, Any] = {PRIMAL: None, ADJOINT: None, TANGENT: None}
        self.x = Array("x", f64, 2, Space.NDARRAY, layouts=dict(both))
        self.y = Array("y", f64, 2, Space.NDARRAY, layouts=dict(both))
        self.p = Array("p", f64, 1, Space.NDARRAY, layouts=dict(both))
        self.total = Array("total", f64, 0, Space.NDARRAY, layouts=dict(both))
        self.z = Array("z", f64, 2, Space.NDARRAY, layouts=dict(both))
        self.t = Array("t", f64, 0, Space.TEMPORARY, layouts={PRIMAL: None})
        self.builder = Builder()
        self.row: Value

    def module(self) -> Module:
        arrays = [self.x, self.y, self.z, self.p, self.total, self.t]
        tasks = [self.task(k) for k in range(self.random.choice((1, 1, 2, 3)))]
        return Module("random", arrays, tasks=tasks)

    def task(self, number: int) -> Task:
        serial = self.random.random() < 0.2
        body = Block([] if serial else [Value(i32, "row")])
        self.builder = b = Builder(body)
        self.row = b.index(self.random.randrange(ROWS)) if serial else body.args[0]
        floats = [b.constant(0.7, f64)]
        ints = [b.index(k) for k in range(3)]
        reads_t = self.random.random() < 0.4 and number > 0
        if reads_t:
            floats.append(b.load(self.t, []))
        self.statements(floats, ints, 3, self.random.randrange(3, 7))
        b.atomic("add", self.total, [], self.random.choice(floats))
        if serial:
            b.store(self.t, [], self.random.choice(floats))
        elif self.random.random() < 0.3 and not reads_t:  # a race otherwise
            b.atomic("add", self.t, [], self.random.choice(floats))
        b.yield_()
        if serial:
            return Task(f"random_{number}", body)
        domain = Builder()
        domain.yield_([domain.index(0), domain.index(ROWS)])
        return Task(f"random_{number}", body, domain.block)

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        kinds = ["scalar"] * 4 + ["load", "store", "atomic", "step"]
        if depth:
            kinds += ["for", "while", "if"] * 2 + ["trajectory"]
        for _ in range(count):
            getattr(self, self.random.choice(kinds))(floats, ints, depth)

    def scalar(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        b, pick = self.builder, self.random.choice
        kind = self.random.randrange(6)
        if kind == 0:
            floats.append(b.unary(pick(SMOOTH), pick(floats)))
        elif kind == 1:
            choice = b.compare("lt", pick(floats), pick(floats))
            floats.append(b.select(choice, pick(floats), pick(floats)))
        elif kind == 2:
            ints.append(b.binary("add", pick(ints), pick(ints)))
        elif kind == 3:
            floats.append(b.unary("sin", b.binary("mul", pick(floats), b.cast(pick(ints), f64))))
        else:
            fn = pick(("add", "sub", "mul", "min", "max"))
            floats.append(b.unary("tanh", b.binary(fn, pick(floats), pick(floats))))

    def place(self, ints: list[Value]) -> tuple[Array, list[Value]]:
        b = self.builder
        column = b.binary("mod", self.random.choice(ints), b.index(COLUMNS))
        array = self.random.choice((self.x, self.y))
        return array, [self.row, column]

    def load(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        array, indices = self.place(ints)
        if self.random.random() < 0.3:
            array, indices = self.p, indices[1:]
        floats.append(self.builder.load(array, indices))

    def store(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        array, indices = self.place(ints)
        self.builder.store(array, indices, self.random.choice(floats))

    def atomic(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        array, indices = self.place(ints)
        fn = self.random.choice(("add", "sub"))
        self.builder.atomic(fn, array, indices, self.random.choice(floats))

    def step(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """A read and a write of a place that is an affine function of something."""
        b, r = self.builder, self.random
        moved = [b.binary("add", r.choice(ints), b.index(r.randrange(-1, 2))) for _ in "rw"]
        if r.random() < 0.5:
            moved = [b.index(r.randrange(8)) for _ in "rw"]
        self._step(floats, *(b.binary("mod", index, b.index(8)) for index in moved))

    def _step(self, floats: list[Value], read: Value, written: Value) -> None:
        b = self.builder
        fetched = b.load(self.z, [self.row, read])
        floats.append(b.unary("tanh", b.binary("mul", fetched, self.random.choice(floats))))
        b.store(self.z, [self.row, written], b.unary("sin", self.random.choice(floats)))

    def trajectory(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """A loop that reads z[row, a * t + b] and writes z[row, a * t + c], at random offsets."""
        b, r = self.builder, self.random
        body = Block([Value(i32), Value(f64)])
        factor = b.index(r.choice((1, 1, 1, 2)))
        with b.into(body):
            inside = [*floats, body.args[1]]
            scaled = b.binary("mul", body.args[0], factor)
            read, written = (b.binary("add", scaled, b.index(r.randrange(0, 3))) for _ in "rw")
            if r.random() < 0.5:
                self._step(inside, read, written)
            else:
                b.store(self.z, [self.row, written], b.unary("sin", r.choice(inside)))
                self._step(inside, read, written)
            b.yield_([inside[-1]])
        loop = b.for_(b.index(0), b.index(r.randrange(1, 3)), [r.choice(floats)], body)
        floats.append(loop.result)

    def _carried(self, floats: list[Value], ints: list[Value]) -> list[Value]:
        chosen = self.random.choices(floats, k=self.random.randrange(1, 4))
        return [*chosen, self.random.choice(ints)]

    def _body(
        self, args: list[Value], floats: list[Value], ints: list[Value], depth: int
    ) -> list[Value]:
        inner_floats = floats + [arg for arg in args if arg.type is f64]
        inner_ints = ints + [arg for arg in args if arg.type is i32]
        self.statements(inner_floats, inner_ints, depth - 1, self.random.randrange(1, 5))
        return [
            self.random.choice((inner_floats if arg.type is f64 else inner_ints)[-4:])
            for arg in args
        ]

    def _keep(self, results: list[Value], floats: list[Value], ints: list[Value]) -> None:
        for value in results:
            (floats if value.type is f64 else ints).append(value)

    def _bound(self, ints: list[Value]) -> Value:
        return self.builder.binary("mod", self.random.choice(ints), self.builder.index(self.trips))

    def __getattr__(self, name: str) -> Any:
        return {"for": self.for_, "while": self.while_, "if": self.if_}[name]

    def for_(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        b = self.builder
        inits = self._carried(floats, ints)
        lower, upper = b.index(self.random.randrange(-1, 2)), self._bound(ints)
        body = Block([Value(i32), *(Value(v.type) for v in inits)])
        with b.into(body):
            ends = self._body(body.args, floats, ints, depth)
            b.yield_(ends[1:])
        self._keep(b.for_(lower, upper, inits, body).results, floats, ints)

    def while_(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """Runs while a count is small and a float (or what memory holds) is below a bound."""
        b = self.builder
        inits = [b.index(0), *self._carried(floats, ints)]
        condition = Block([Value(v.type) for v in inits])
        limit = self._bound(ints)
        with b.into(condition):
            few = b.compare("lt", condition.args[0], limit)
            watched = condition.args[1]
            if self.random.random() < 0.4:
                array, indices = self.place([condition.args[0]])
                watched = b.load(array, indices)
            low = b.compare("lt", watched, b.constant(0.6, f64))
            b.yield_([b.binary("and", few, low)])
        body = Block([Value(v.type) for v in inits])
        with b.into(body):
            ends = self._body(body.args, floats, ints, depth)
            ends[0] = b.binary("add", body.args[0], b.index(1))
            b.yield_(ends)
        self._keep(b.while_(inits, condition, body).results, floats, ints)

    def if_(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        b, pick = self.builder, self.random.choice
        condition = b.compare("lt", pick(floats), pick(floats))
        blocks = []
        for _ in range(2):
            block = Block()
            with b.into(block):
                inner_floats, inner_ints = list(floats), list(ints)
                self.statements(inner_floats, inner_ints, depth - 1, self.random.randrange(0, 4))
                b.yield_([pick(inner_floats[-3:]), pick(inner_floats[-3:]), pick(inner_ints[-3:])])
            blocks.append(block)
        assert condition.type is u1
        self._keep(b.if_(condition, *blocks).results, floats, ints)


class VectorGenerator(Generator):
    """Adds vectors that are read and written by indices, which may be out of range.

    A vector may have a value several times, and loops and ifs may carry some of its components.
    """

    def __init__(self, seed: int, trips: int = 4) -> None:
        super().__init__(seed, trips)
        self.vectors: list[list[Value]] = []

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        known = len(self.vectors)
        for _ in range(count):
            pick = self.random.choice
            pick((self.insert, self.insert, self.extract, self.vector))(floats, ints, depth)
            super().statements(floats, ints, depth, 1)
            if depth and self.random.random() < 0.5:
                pick((self.vector_for, self.vector_walk, self.vector_if))(floats, ints, depth)
        del self.vectors[known:]

    def _any(self, floats: list[Value]) -> list[Value]:
        if not self.vectors or self.random.random() < 0.1:
            self.vector(floats, [], 0)
        return self.random.choice(self.vectors[-4:])

    def vector(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        few = self.random.sample(floats, min(len(floats), self.random.randrange(1, 12)))
        self.vectors.append(self.random.choices(few, k=component_access.LONG))

    def extract(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        index, vector = self.random.choice(ints), self._any(floats)
        floats.append(component_access.extract(self.builder, index, vector))

    def insert(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        index, vector = self.random.choice(ints), self._any(floats)
        after = component_access.insert(self.builder, index, self.random.choice(floats), vector)
        if self.random.random() < 0.2:
            after = [*after[1:], self.random.choice([after[0], vector[0]])]
        self.vectors.append(after)
        floats.append(self.random.choice(after))

    def vector_for(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """A loop that carries components of a vector."""
        b, carried = self.builder, self._any(floats)
        body = Block([Value(i32), *(Value(f64) for _ in carried)])
        known = len(self.vectors)
        with b.into(body):
            inside, numbers = [*floats, *body.args[1:]], [*ints, body.args[0]]
            self.vectors.append(body.args[1:])
            for _ in range(self.random.randrange(1, 4)):
                self.random.choice((self.insert, self.insert, self.extract))(inside, numbers, 0)
            if depth > 1:
                self.statements(inside, numbers, depth - 1, 1)
            ends = [b.unary("tanh", inside[-1]), *self._any(inside)[1:]]
            b.yield_(self._any(inside) if self.random.random() < 0.8 else ends)
        del self.vectors[known:]
        results = b.for_(b.index(0), self._bound(ints), carried, body).results
        self.vectors.append(results)
        floats.append(self.random.choice(results))

    def vector_walk(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """A loop, or a `while`, whose iterations read and replace a few components."""
        b, r, carried = self.builder, self.random, self._any(floats)
        inits = [b.index(0), r.choice(floats), *carried]
        body = Block([Value(value.type) for value in inits])
        with b.into(body):
            counter, total, *vector = body.args
            for _ in range(r.randrange(1, 4)):
                one, other = (
                    component_access.extract(b, self._walk(counter), vector) for _ in "ab"
                )
                value = b.unary("sin", b.binary("mul", one, b.binary("add", other, total)))
                if r.random() < 0.7:
                    vector = component_access.insert(b, self._walk(counter), value, vector)
                else:
                    total = b.unary("tanh", b.binary("add", total, value))
            following = b.binary("add", counter, b.index(1))
            b.yield_(
                [following, total, *vector] if r.random() < 0.9 else [following, *vector, total]
            )
        trips = self._bound(ints)
        if r.random() < 0.3:
            condition = Block([Value(value.type) for value in inits])
            with b.into(condition):
                b.yield_([b.compare("lt", condition.args[0], trips)])
            results = b.while_(inits, condition, body).results
        else:
            body.args[:0] = [Value(i32)]
            results = b.for_(b.index(0), trips, inits, body).results
        self.vectors.append(results[2:])
        floats.append(r.choice(results[1:]))

    def _walk(self, counter: Value) -> Value:
        """An index of a component, which may be out of range."""
        b, r = self.builder, self.random
        moved = b.binary(
            "add", b.binary("mul", counter, b.index(r.randrange(4))), b.index(r.randrange(3))
        )
        return b.binary("mod", moved, b.index(component_access.LONG + r.randrange(2)))

    def vector_if(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        """An if that gives a vector."""
        b, pick = self.builder, self.random.choice
        condition, blocks, known = (
            b.compare("lt", pick(floats), pick(floats)),
            [],
            len(self.vectors),
        )
        for _ in range(2):
            block = Block()
            with b.into(block):
                inside = list(floats)
                for _ in range(self.random.randrange(3)):
                    pick((self.insert, self.extract))(inside, ints, 0)
                b.yield_(self._any(inside))
            blocks.append(block)
            del self.vectors[known:]
        self.vectors.append(b.if_(condition, *blocks).results)
        floats.append(pick(self.vectors[-1]))


def inputs(seed: int) -> Data:
    rng = np.random.default_rng(seed)
    shapes = {
        "x": (ROWS, COLUMNS),
        "y": (ROWS, COLUMNS),
        "z": (ROWS, 8),
        "p": (COLUMNS,),
        "total": (),
    }
    return {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}


def objective(data: Data, weights: Data) -> float:
    return float(sum((data[name] * weights[name]).sum() for name in weights))


def forward(module: Module, data: Data) -> Data:
    after = {name: value.copy() for name, value in data.items()}
    run(module, after)
    return after


def gradient(
    module: Module,
    data: Data,
    weights: Data,
    budget: int = 0,
    nests: str = "auto",
    contracts: bool = False,
) -> tuple[Data, str]:
    """The gradient of the objective with respect to the initial data, and how it was got.

    With a ``budget``, in bytes, loops that do not fit it are recorded in blocks. ``nests`` is as
    for `octants.autodiff.reverse`.
    """
    adjoints = {name: value.copy() for name, value in weights.items()}
    reversed_ = differentiate(module, whole_record_bytes=budget, nests=nests, contracts=contracts)
    if not reversed_.hazards:
        state = data if reversed_.state == "before" else forward(module, data)
        state = {name: value.copy() for name, value in state.items()}
        _run_reverse(reversed_, state, adjoints, budget)
        _check_untouched(module, reversed_, state, data)
        return adjoints, reversed_.state
    start = {name: value.copy() for name, value in data.items()}
    _run_parts(module, start, adjoints, budget, nests)
    return adjoints, "split"


def _run_reverse(reversed_: Reversed, state: Data, adjoints: Data, budget: int) -> None:
    verify(reversed_.module)
    run(reversed_.module, _both(state, adjoints), share=budget or MAXIMUM_RECORD_BUFFER)


def _both(state: Data, adjoints: Data) -> dict[Any, Any]:
    return {**state, **{(name, ADJOINT): value for name, value in adjoints.items()}}


def _check_untouched(module: Module, reversed_: Reversed, state: Data, data: Data) -> None:
    after = forward(module, data)
    for array in reversed_.needed:
        assert np.array_equal(state[array.name], after[array.name]), array.name


def _run_parts(module: Module, state: Data, adjoints: Data, budget: int, nests: str) -> None:
    """As a tape does it: one launch per task, with the memory before and after each kept."""
    state["t"], adjoints["t"] = np.zeros(()), np.zeros(())
    parts = split_tasks(module)
    kept = [{name: value.copy() for name, value in state.items()}]
    for part in parts:
        run(part, state)
        kept.append({name: value.copy() for name, value in state.items()})
    for number in reversed(range(len(parts))):
        reversed_ = differentiate(parts[number], split=True, whole_record_bytes=budget, nests=nests)
        assert not reversed_.hazards, reversed_.hazards
        memory = kept[number if reversed_.state == "before" else number + 1]
        _run_reverse(reversed_, {n: v.copy() for n, v in memory.items()}, adjoints, budget)


def differences(module: Module, data: Data, weights: Data, step: float = 1e-6) -> Data:
    """Central differences of the objective."""
    result = {}
    for name, value in data.items():
        result[name] = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = {n: v.copy() for n, v in data.items()}
                moved[name][index] += sign * step
                ends.append(objective(forward(module, moved), weights))
            result[name][index] = (ends[0] - ends[1]) / (2 * step)
    return result


def directional(
    module: Module, data: Data, weights: Data, direction: Data, contracts: bool = False
) -> float:
    """The tangent of the objective in a direction, by forward mode."""
    tangents = {name: value.copy() for name, value in direction.items()}
    result = with_tangents(module, contracts=contracts)
    verify(result)
    after = {name: value.copy() for name, value in data.items()}
    run(result, {**after, **{(name, TANGENT): value for name, value in tangents.items()}})
    return objective(tangents, weights)


def check(seed: int, make: Callable[[int], Generator] = Generator) -> str:
    """Compare the gradients of a random module; says how, or "kink" if it was set aside.

    Every other one is contracted.
    """
    module = make(seed).module()
    verify(module)
    data, weights = inputs(seed), inputs(seed + 1)
    plain = copy_module(module)
    simplify(module)
    verify(module)
    for name, value in forward(plain, data).items():
        assert np.array_equal(value, forward(module, data)[name]), f"simplify changed {name}"
    contracts = seed % 2 == 1
    if contracts:
        contract_to_fma(module)
        verify(module)
    exact, how = gradient(module, data, weights, contracts=contracts)
    direction = inputs(seed + 2)
    slope = directional(module, data, weights, direction, contracts)
    along = objective({name: exact[name] for name in data}, direction)
    assert abs(slope - along) < 1e-9 * (1 + abs(slope)), f"modes disagree: {slope}, {along}"
    coarse, fine = (differences(plain, data, weights, step) for step in (1e-6, 3e-7))
    for name in data:
        scale = 1 + np.abs(fine[name])
        if (np.abs(coarse[name] - fine[name]) > 1e-5 * scale).any():
            return "kink"
        worst = (np.abs(exact[name] - fine[name]) / scale).max()
        assert worst < 1e-5, f"gradient of {name} in seed {seed} ({how}): {worst}"
    return how
