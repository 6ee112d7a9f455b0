"""What the oracle says of work items that meet, and what becomes of such programs."""

from __future__ import annotations

import pytest

from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS, VALIDATED, Actual
from octants.fuzz.compare import Status, check, expect
from octants.fuzz.program import Outcome, Program, Undefined
from octants.fuzz.report import Report
from tests.devices import ARCH
from tests.fuzz.helpers import make

pytestmark = pytest.mark.filterwarnings("ignore::octants.OctantsWarning")
FIRST, COUNT = 200_110, 12
HEAD = """
x = qd.field(FP, shape=(4,), needs_grad=True, needs_dual=True)
w = qd.field(FP, shape=(4,), needs_grad=True, needs_dual=True)
a = qd.field(qd.i32, shape=(4,))

@qd.kernel
def k():
    for i in w:
"""
UNDEFINED = {
    "a read of what another stores": "x[i] = x[(i + 1) % 4] + w[i]",
    "stores to one element": "x[0] = w[i]",
    "stores to one element by memory": "x[a[i]] = w[i]",
    "a read of a sum": "x[i] += x[(i + 1) % 4] * w[i]",
    "a store beside updates": """if i == 0:
            x[0] = w[i]
        else:
            x[0] += w[i]""",
    "stores of different constants": "x[0] = 0.5 * i",
}
DEFINED = {
    "its own elements": "x[i] = x[i] * w[i]",
    "a permutation": "x[(a[i] * 0 + 3 - i)] = w[i] * w[i]",
    "updates": "x[a[i]] += w[i] * w[i]",
    "stores of a constant": "x[a[i]] = 0.5",
    "one work item": """if i == 2:
            x[0] = x[1] * w[i]""",
}


def program(body: str) -> Program:
    values = {"x": [0.1, -0.2, 0.3, 0.4], "w": [0.5, 0.7, 0.9, 1.1], "a": [1, 3, 1, 0]}
    made = make(f"{HEAD}        {body}\n", values, [("k", ())])
    made.profile = "races"
    return made


@pytest.mark.parametrize("name", UNDEFINED)
def test_races_are_noticed(name: str) -> None:
    outcome = expect(program(UNDEFINED[name]))
    assert isinstance(outcome, Undefined)
    assert outcome.race.startswith("race: ")
    (verdict,) = check([program(UNDEFINED[name])], BACKENDS[ARCH]())
    assert verdict.status is Status.REFUSED, verdict.problems


@pytest.mark.parametrize("name", DEFINED)
def test_what_does_not_race_has_its_gradient(name: str) -> None:
    assert isinstance(expect(program(DEFINED[name])), Outcome)
    (verdict,) = check([program(DEFINED[name])], BACKENDS[ARCH]())
    assert verdict.status is Status.AGREES, verdict.problems
    assert VALIDATED in verdict.modes


@pytest.mark.parametrize(
    "body", ["x[i] = w[i] + 0.0 * x[(i + 1) % 4]", "x[0] = 0.0 * x[1] + x[0] * x[0]"]
)
def test_a_racing_read_without_an_effect_is_set_aside(body: str) -> None:
    outcome = expect(program(body))
    assert isinstance(outcome, str)
    assert outcome.startswith("harmless race")


SAME = {
    "x[0] = w[2]": Status.AGREES,
    "x[a[1]] = qd.sin(w[1]) * w[2]": Status.AGREES,
    "x[i // 2] = w[i // 2]": Status.REFUSED,
}


@pytest.mark.parametrize("body", SAME)
def test_work_items_that_store_one_number_agree_or_are_refused(body: str) -> None:
    outcome = expect(program(body))
    assert isinstance(outcome, Outcome)
    assert outcome.race.startswith("race: ")
    (verdict,) = check([program(body)], BACKENDS[ARCH]())
    assert verdict.status is SAME[body], verdict.problems


def test_the_adjoint_of_a_number_that_all_store_is_that_of_one_store() -> None:
    outcome = expect(program("x[0] = w[2]"))
    assert isinstance(outcome, Outcome)
    weights = program("").weights
    assert outcome.gradient["w"].value[2] == weights["w"][2] + weights["x"][0]


class Careless:
    """Accepts every program, without numbers."""

    name = "careless"
    sine_errors = 0.0

    def slack(self, _: Program) -> float:
        return 1.0

    def run(self, programs: list[Program]) -> list[Actual]:
        return [Actual() for _ in programs]


def test_a_race_that_is_accepted_is_wrong() -> None:
    (verdict,) = check([program("x[0] = w[i]")], Careless())  # type: ignore[arg-type]
    assert verdict.status is Status.DISAGREES
    assert verdict.problems == ["race not noticed: race: write and write 0: no error"]


def test_programs_are_of_both_kinds() -> None:
    report = Report(ARCH)
    chosen = [(FIRST + k, runner.PRECISIONS[k % 2], "races") for k in range(COUNT)]
    for entry in runner.work(chosen, BACKENDS[ARCH](), shrinks=False):
        report.add(entry)
    assert not report.wrong, [(e["command"], e["problems"]) for e in report.findings]
    assert report.compared >= COUNT // 5
    assert report.statuses[Status.REFUSED.value] >= COUNT // 5
    assert {what for what in report.refusals if "a race" in what} == {
        "a race OCT303",
        "a race OCT304",
    }
