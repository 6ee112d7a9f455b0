"""Compares a backend's numbers with the oracle's.

An expected number comes with a bound on the error of a sound implementation: a running error
analysis at the roundoff of each operation's type (2**-24 for f32, 2**-53 for f64), with 16
roundoffs for a transcendental function. The tolerance is SAFETY times that bound, for what is of
second order, plus FLOOR roundoffs of the largest number of the array, plus the smallest normal
number, below which roundoffs are no longer relative. Integers and truth values are equal or wrong.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from octants.fuzz.backends import (
    AGAIN,
    LATE,
    MULTIPLES,
    ONCE_MORE,
    RACES,
    VALIDATED,
    Actual,
    Backend,
)
from octants.fuzz.oracle.run import run as run_oracle
from octants.fuzz.oracle.state import ORDERS, STATE, IllDefined, OutOfFuel, Race
from octants.fuzz.program import Close, Estimate, FloatArray, Outcome, Program, Undefined

SAFETY = 4.0
FLOOR = 4.0
ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53}
SMALLEST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
ORACLE_ERROR = "oracle error"
HARMLESS = "harmless race"
"""The reason to set aside a program whose racing reads do not affect its results."""
BLUNT = {"f32": 1e-3, "f64": 1e-9}
"""A comparison is blunt if its tolerance exceeds this fraction of the largest derivative."""


class Status(enum.Enum):
    """The outcome of a program's comparison."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    FAILS = "fails"  # an error that is not documented
    SET_ASIDE = "set aside"
    REFUSED = "refused"  # work items race, and the backend reported it


@dataclass
class Verdict:
    """The comparison of one program on one backend."""

    seed: int
    precision: str
    status: Status
    problems: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    nonzero: bool = False  # whether a gradient is more than a copy of its seed
    blunt: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of problems, which a shrunk program must share."""
        return frozenset(problem.split(":", 1)[0] for problem in self.problems)


def check(programs: Iterable[Program], backend: Backend) -> list[Verdict]:
    """The verdicts of some programs, which the backend runs together."""
    errors = backend.sine_errors
    pairs = [(program, expect(program, errors)) for program in programs]
    accepted = [program for program, outcome in pairs if not isinstance(outcome, Close | str)]
    actuals = iter(backend.run(accepted))
    return [
        set_aside(program, outcome)
        if isinstance(outcome, Close | str)
        else judge(program, outcome, next(actuals), backend.slack(program))
        for program, outcome in pairs
    ]


def set_aside(program: Program, outcome: Close | str) -> Verdict:
    """The verdict on a program that is not compared, with the reason."""
    reason = outcome if isinstance(outcome, str) else f"close: {outcome.reason}"
    return Verdict(program.seed, program.precision, Status.SET_ASIDE, [reason])


def judge(program: Program, outcome: Outcome | Undefined, actual: Actual, slack: float) -> Verdict:
    """The verdict on a backend's results, given those of the oracle."""
    if isinstance(outcome, Outcome):
        return compare(program, outcome, actual, slack)
    return _refusal(program, outcome, actual)


def may_refuse(outcome: Outcome | Close, error: str) -> str:
    """The code of a refusal of a race, where an oracle's outcome allows that; or else ""."""
    is_allowed = isinstance(outcome, Close) or outcome.race
    return next((code for code in RACES if is_allowed and code in error), "")


def _refusal(program: Program, outcome: Undefined, actual: Actual) -> Verdict:
    """The verdict on a racing program, which `Tape(validation=True)` at least must refuse."""
    verdict = Verdict(program.seed, program.precision, Status.REFUSED)
    error = actual.errors.get(VALIDATED, "")
    code = next((code for code in RACES if code in error), None)
    others = [f"error in {mode}: {e}" for mode, e in actual.errors.items() if "OCT" not in e]
    if others:
        verdict.status, verdict.problems = Status.FAILS, others
    elif code is None:
        verdict.status = Status.DISAGREES
        verdict.problems = [f"race not noticed: {outcome.race}: {error or 'no error'}"]
    else:
        verdict.refusals = {"a race": code}
    return verdict


def expect(program: Program, sine_errors: float = 0.0) -> Outcome | Undefined | Close | str:
    """The oracle's results, or the reason to set the program aside.

    For ``sine_errors``, see `oracle.run.run`.
    """
    outcome: Outcome | Undefined | str
    try:
        outcome = run_oracle(program, sine_errors=sine_errors)
    except Race as race:
        outcome = _of_a_race(program, race, sine_errors)
        if isinstance(outcome, Undefined) and program.profile != "races":
            return f"ill-defined: {race}"
    except (IllDefined, OverflowError) as error:
        return f"ill-defined: {error}"
    except OutOfFuel:
        return "too long"
    except Exception as error:
        return f"{ORACLE_ERROR}: {type(error).__name__}: {error}"
    if isinstance(outcome, Outcome) and outcome.near:
        return Close(outcome.near[0], outcome.has_sums)
    return outcome


def _of_a_race(program: Program, race: Race, sine_errors: float) -> Outcome | Undefined | str:
    """`Undefined` if the order of racing work items affects results, else these.

    Where work items store one number, these are the results of an implementation, too. Where one
    reads what another stores, both may read before any stores, so the program is set aside.
    """
    try:
        one, *others = (run_oracle(program, order=o, sine_errors=sine_errors) for o in ORDERS)
    except Exception as error:  # shrinking makes invalid programs
        return f"ill-defined: {type(error).__name__}: {error}"
    allowance = Allowance(program.precision, 1.0)
    for other in others:
        results = (("primal", one.primal, other.primal), ("gradient", one.gradient, other.gradient))
        for what, wanted, found in results:
            values = {name: estimate.value for name, estimate in found.items()}
            if any(_differences(what, wanted, values, allowance)):
                return Undefined(str(race))
    return f"{HARMLESS}: {race}" if STATE.has_racing_reads else replace(one, race=str(race))


def compare(program: Program, outcome: Outcome, actual: Actual, slack: float = 1.0) -> Verdict:
    """The verdict on a backend's results, whose errors may be ``slack`` times as large."""
    problems = list(_problems(program, outcome, actual, slack))
    verdict = Verdict(program.seed, program.precision, Status.AGREES, problems)
    codes = {mode: may_refuse(outcome, text) for mode, text in actual.errors.items()}
    errors = {mode: text for mode, text in actual.errors.items() if not codes[mode]}
    if errors:
        verdict.status = Status.FAILS
        problems[:0] = [f"error in {mode}: {text}" for mode, text in errors.items()]
    elif problems:
        verdict.status = Status.DISAGREES
    elif codes and not actual.gradients:
        verdict.status = Status.REFUSED
    verdict.modes = [*actual.gradients, *(["forward"] if actual.tangent is not None else [])]
    harmless = {f"{mode}, a harmless race": code for mode, code in codes.items() if code}
    verdict.refusals = actual.refusals | harmless
    verdict.nonzero = verdict.status is not Status.REFUSED and is_nonzero(program, outcome)
    verdict.blunt = _is_blunt(program, outcome)
    return verdict


def _problems(program: Program, outcome: Outcome, actual: Actual, slack: float) -> Iterator[str]:
    allowance = Allowance(program.precision, slack)
    if actual.primal is not None:
        yield from _differences("primal", outcome.primal, actual.primal, allowance)
        for number, (want, got) in enumerate(zip(outcome.returned, actual.returned, strict=True)):
            text = difference(want, got, allowance)
            if text:
                yield f"returned value {number}: {text}"
    for mode, gradients in actual.gradients.items():
        alone = mode.removesuffix(AGAIN).removesuffix(ONCE_MORE)
        counts_returned = alone in ("bare", LATE, "tape with loss")
        wanted = outcome.gradient_with_returned if counts_returned else outcome.gradient
        yield from _differences(f"{mode} gradient", wanted, gradients, allowance)
    for number, (estimates, found) in enumerate(
        zip(outcome.arguments, actual.arguments, strict=False)
    ):
        yield from _of_arguments(number, estimates, found, allowance)
    if actual.tangent is not None:
        yield from _differences("tangent", outcome.tangent, actual.tangent, allowance)
    for multiple, tangents in zip(MULTIPLES, actual.multiples, strict=False):
        scaled = {name: values / multiple for name, values in tangents.items()}
        yield from _differences(f"1/{multiple} tangent", outcome.tangent, scaled, allowance)
    for multiple, gradients in zip(MULTIPLES, actual.adjoint_multiples, strict=False):
        scaled = {name: values / multiple for name, values in gradients.items()}
        yield from _differences(f"1/{multiple} gradient", outcome.gradient, scaled, allowance)


def _of_arguments(
    launch: int, wanted: list[Estimate], got: list[FloatArray], allowance: Allowance
) -> Iterator[str]:
    """The wrong gradients of the arguments of a launch, unless some are members of dataclasses."""
    for number, (want, values) in enumerate(zip(wanted, got, strict=False)):
        if len(wanted) == len(got) and (text := difference(want, values, allowance)):
            yield f"gradient of argument {number} of launch {launch}: {text}"


@dataclass(frozen=True)
class Allowance:
    """How far results in a precision may be off."""

    precision: str
    slack: float

    def of(self, want: Estimate) -> FloatArray:
        """For each number of an array."""
        scale = float(np.max(np.abs(want.value), initial=0.0))
        allowed = SAFETY * want.error + FLOOR * ROUNDOFF[self.precision] * scale
        return self.slack * allowed + SMALLEST_NORMAL[self.precision]


def _differences(
    what: str, wanted: dict[str, Estimate], got: dict[str, FloatArray], allowance: Allowance
) -> Iterator[str]:
    for name, estimate in wanted.items():
        text = difference(estimate, got[name], allowance)
        if text:
            yield f"{what}: {name}{text}"


def difference(want: Estimate, got: FloatArray, allowance: Allowance) -> str:
    """The first wrong number, in words; "" if all are right."""
    got = got.reshape(want.value.shape)
    if want.value.dtype.kind in "biu":
        wrong = got != want.value
        allowed = np.zeros(want.value.shape)
    else:
        allowed = allowance.of(want)
        wrong = ~(np.abs(got - want.value) <= allowed)
    if not np.any(wrong):
        return ""
    where = tuple(int(k) for k in np.argwhere(wrong)[0])
    shown = list(where) if where else ""
    return (
        f"{shown}: expected {want.value[where]!r}, got {got[where]!r}, allowed {allowed[where]:.2g}"
    )


def is_nonzero(program: Program, outcome: Outcome) -> bool:
    """Whether a gradient is neither zero nor a copy of its seed."""
    return any(
        np.any((np.abs(estimate.value) > 1e-8) & (estimate.value != program.weights[name]))
        for name, estimate in outcome.gradient_with_returned.items()
    )


def _is_blunt(program: Program, outcome: Outcome) -> bool:
    derivatives = [*outcome.gradient.values(), *outcome.tangent.values()]
    scale = max((float(np.max(np.abs(e.value), initial=0.0)) for e in derivatives), default=0.0)
    error = max((float(np.max(e.error, initial=0.0)) for e in derivatives), default=0.0)
    return SAFETY * error > BLUNT[program.precision] * scale
