"""What work items cost in lanes and one by one, and the choice that follows."""

from __future__ import annotations

import pytest

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.cost_model import ATOMIC
from octants.analysis.lanes.choose_loops import choose
from octants.analysis.lanes.lane_choice import LaneChoice
from octants.analysis.lanes.time_estimate import CheapUpdates, LaneCost
from octants.codegen.llvm.lanes.vector_capabilities import OPERATIONS
from octants.ir import ops
from octants.ir.core import Module, Task
from octants.ir.printer import to_text
from octants.target import ALWAYS, AUTO, NEVER, LaneCosts, Vectors
from tests.analysis.tasks import task_of
from tests.ir.parser import parse

LANES = 8
COSTS = LaneCosts(call=4, new_tile=12, gathered=3, scattered=4, added=1.5, product_of_64=3)


def vectors(simd: str = AUTO) -> Vectors:
    return Vectors(LANES, simd, OPERATIONS, COSTS)


def estimate(task: Task, lanes: int = LANES) -> LaneCost:
    return LaneCost(task, Uniformity(task.body), lanes, vectors())


DEARER = [
    ("x[i] = y[i]", "x[i] = y[i] + qd.sin(y[i])"),
    ("x[i] = y[i]", "x[i] = y[7 - 2 * i % 8]"),  # from anywhere
    ("x[i] = qd.sqrt(y[i])", "x[i] = qd.exp(y[i])"),
    ("x[i] = y[p[i]]", "x[p[i]] = y[p[i]]"),
    ("for j in range(4): x[i] += z[i, j]", "for j in range(40): x[i] += z[i, j % 4]"),
    ("if n > 2: x[i] = qd.exp(y[i])", "if y[i] > 2.0: x[i] = qd.exp(y[i])"),
    ("x[i] = y[i]", "qd.atomic_add(x[i], y[i])"),
]


@pytest.mark.parametrize(("cheap", "dear"), DEARER)
def test_what_a_tile_costs_more(cheap: str, dear: str) -> None:
    assert estimate(task_of(cheap)).cost.tile < estimate(task_of(dear)).cost.tile


COSTS_OF_BOTH = {
    "x[i] = y[i]": (2, 2),
    "x[i] = y[p[i]]": (3, 2 + LANES * COSTS.gathered),
    "x[p[i]] = y[i]": (3, 2 + LANES * COSTS.scattered),
    "x[p[i]] += y[i]": (2 + ATOMIC, 2 + LANES * (ATOMIC + COSTS.call)),
}


@pytest.mark.parametrize("body", COSTS_OF_BOTH)
def test_accesses_of_memory(body: str) -> None:
    """Neighbours are one access; of other elements, each lane has its own."""
    cost = estimate(task_of("z[i, 0] = qd.sin(z[i, 1]); " + body)).cost
    before = estimate(task_of("z[i, 0] = qd.sin(z[i, 1])")).cost
    assert (cost.item - before.item, cost.tile - before.tile) == COSTS_OF_BOTH[body]


def test_updates_that_need_no_atomic_instruction() -> None:
    task = task_of("x[0] += qd.sin(y[i])")
    (update,) = (op for op in task.body.walk() if isinstance(op, ops.Atomic))
    facts = Uniformity(task.body)
    ways = CheapUpdates(), CheapUpdates(plain=[update.ref]), CheapUpdates(collected=[update])
    costs = [LaneCost(task, facts, LANES, vectors(), way).cost for way in ways]
    assert costs[0].item > costs[1].item > costs[2].item
    assert costs[0].tile > costs[1].tile > costs[2].tile


CHOICES = {
    ("x[i] = qd.exp(y[i])", AUTO): True,
    ("p[i] = p[i] ** p[i]", AUTO): True,
    ("x[i] = qd.raw_mod(y[i], x[i])", AUTO): True,
    ("x[i] = qd.exp(y[i])", NEVER): False,
    ("x[p[i]] += y[p[i]]", AUTO): False,
    ("x[p[i]] += y[p[i]]", ALWAYS): True,
}


@pytest.mark.parametrize(("body", "simd"), CHOICES)
def test_the_choice(body: str, simd: str) -> None:
    choice = choose(task_of(body), vectors(simd))
    assert bool(choice.lanes) is CHOICES[body, simd]


def test_no_vectors_no_lanes() -> None:
    none = Vectors(0, ALWAYS, OPERATIONS, COSTS)
    assert choose(task_of("x[i] = qd.exp(y[i])"), none).lanes == 0


def test_a_choice_that_was_made_stays() -> None:
    task = task_of("x[i] = qd.exp(y[i])")
    made = LaneChoice("so it was wanted", lanes=24, fewest=6)
    task.options["choice"] = made.as_option()
    walked = [*task.domain.walk(), *task.body.walk()] if task.domain else list(task.body.walk())
    arrays = dict.fromkeys(op.array for op in walked if hasattr(op, "array"))
    module = Module("chosen", list(arrays), tasks=[task])
    for each in (task, parse(to_text(module)).tasks[0]):
        assert choose(each, vectors(NEVER)) == made
    assert str(made) == (
        "24 work items at once, one by one where they are less than 6: so it was wanted"
    )
    assert str(LaneChoice("no vectors")) == "work items one by one: no vectors"
