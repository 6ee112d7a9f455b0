"""Nests that are stored, and loops in blocks: the gradients of lanes are those of each alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from octants.analysis.lanes.choose_loops import choose
from octants.autodiff import reverse
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target, vectors_of
from octants.ir.cloning import copy_module
from octants.ir.core import Array, Companion, Module, Value
from octants.runtime.cpu import CpuDevice
from octants.target import ALWAYS, NEVER, Capabilities
from octants.types.scalars import i32
from tests.autodiff import random_ir
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen.compiled import TARGET, Compiled

pytestmark = pytest.mark.skipif(
    not lanes_of_target(TARGET), reason="the vectors of this CPU are none to rely on"
)

ITEMS = 37
SEEDS = (5, 7, 21, 23, 24, 30, 31, 53)


class RaggedNests(LongLoops):
    """Loops in loops, with branches, whose trips depend on the work item; `x` is only read."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        kinds = ["scalar", "scalar", "load", "update"]
        if depth:
            kinds += ["for", "while"] * depth + ["if"]
        for _ in range(min(count, 3)):
            kind = self.random.choice(kinds)
            statement = self.update if kind == "update" else getattr(self, kind)
            statement(floats, ints, depth)

    def update(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        _, indices = self.place(ints)
        self.builder.atomic("add", self.y, indices, self.random.choice(floats))

    def place(self, ints: list[Value]) -> tuple[Array, list[Value]]:
        _, indices = super().place(ints)
        return self.x, indices

    def _carried(self, floats: list[Value], ints: list[Value]) -> list[Value]:
        return [value for value in super()._carried(floats, ints) if value.type is not i32]

    def _bound(self, ints: list[Value]) -> Value:
        b, r = self.builder, self.random
        moved = b.binary("mul", r.choice(ints), b.index(r.randrange(1, 9)))
        if r.random() < 0.8:
            of_item = b.binary("mul", self.row, b.index(r.randrange(1, 9)))
            moved = b.binary("add", moved, of_item)
        return b.binary("mod", moved, b.index(self.trips))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[RecordingPlan]:
    """The plans of all tasks that are reversed."""
    found: list[RecordingPlan] = []
    original = reverse.plan

    def planned(*args: object) -> RecordingPlan:
        found.append(original(*args))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(reverse, "plan", planned)
    monkeypatch.setattr(random_ir, "ROWS", ITEMS)
    return found


def adjoints(kernel: Module, budget: int, lanes: int) -> dict[str, np.ndarray]:
    """The adjoints of all arrays after a run in so many lanes, or of one work item at a time."""
    random, data = np.random.default_rng(4), {}
    shapes = {"p": (random_ir.COLUMNS,), "total": (), "t": (), "z": (ITEMS, 20)}
    for array in kernel.arrays:
        for companion in array.layouts:
            shape = shapes.get(array.name, (ITEMS, random_ir.COLUMNS))
            data[array.name, companion] = random.uniform(-1, 1, shape)
    kernel = copy_module(kernel)
    for task in kernel.tasks:
        task.options["simd"] = lanes if lanes and task.is_parallel else None
    device = CpuDevice(1, record_budget=budget)
    Compiled(kernel, device, simd=ALWAYS if lanes else NEVER).run(data)
    return {name: x for (name, of), x in data.items() if of is Companion.ADJOINT}


@pytest.mark.parametrize(
    ("budget", "seeds"),
    [
        (0, SEEDS[4:6]),
        (400, SEEDS[3:5]),
        (4000, SEEDS[5:7]),
        *(pytest.param(budget, SEEDS, marks=pytest.mark.slow) for budget in (0, 400, 4000)),
    ],
)
def test_random_nests(budget: int, seeds: tuple[int, ...], plans: list[RecordingPlan]) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        kernel = RaggedNests(seed).module()
        plans.clear()
        machine = Capabilities(
            whole_record_bytes=64 if budget else 0, record_buffer_sharers=2, nests="store"
        )
        result = reverse.reverse(kernel, machine)
        assert not result.hazards
        lanes = (16, 64)[seed % 2]
        found["stored"] += any(plan.nests.around for plan in plans)
        found["in blocks"] += any(plan.in_blocks for plan in plans)
        vectors, tasks = vectors_of(TARGET, ALWAYS), result.module.tasks
        found["in lanes"] += any(choose(task, vectors).lanes for task in tasks if task.is_parallel)
        alone = adjoints(result.module, budget, 0)
        for name, values in adjoints(result.module, budget, lanes).items():
            message = f"{seed}, {name}"
            np.testing.assert_allclose(values, alone[name], rtol=1e-9, atol=1e-11, err_msg=message)
    assert found["stored"] >= len(seeds) - 1
    assert found["in lanes"] == len(seeds)
    assert found["in blocks"] >= len(seeds) * bool(budget)
