"""Checks that need no oracle: a program run in two ways gives the same numbers.

Each run is compared with the oracle too, where that accepts the program. Numbers that the docs
promise to the bit are compared so with those of the first run; the others may differ by rounding.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octants.fuzz import transforms
from octants.fuzz.backends import FAST_SLACK, Actual, Arrays, PackageBackend
from octants.fuzz.compare import Status, Verdict, compare, expect
from octants.fuzz.program import Outcome, Program, Undefined

Options = dict[str, Any]
ONE_THREAD = {"cpu_max_num_threads": 1}
SUMS = ("atomic_add", "+= on an array", "accumulated", "atomic on", "atomic_mul", "*= on")
"""Parts of the names of constructs that add up floats over work items."""


@dataclass(frozen=True)
class Check:
    """Ways to run a program; the first of several is what the others are to equal in every bit."""

    purpose: str
    runs: Sequence[Options]
    exact: str = ""  # "all", "primal", or nothing
    transform: Callable[[Program], Program | None] = lambda program: program
    arrays: str = ""  # "numpy" or "torch": what stands for ndarrays
    tape: Options = field(default_factory=dict)
    only: str = ""  # the arch that has what is checked


CHECKS: dict[str, Check] = {
    "lanes": Check(
        "SIMD lanes on and off",
        [{"simd": "never"}, {"simd": "always"}],
        exact="alone",
        only="cpu",
    ),
    "threads": Check(
        "1, 2 and 8 threads",
        [{"cpu_max_num_threads": n} for n in (1, 2, 8)],
        exact="alone",
        only="cpu",
    ),
    "deterministic": Check(
        "deterministic sums, with 1, 2 and 8 threads: all bits",
        [{"deterministic": True, "cpu_max_num_threads": n} for n in (1, 2, 8)],
        exact="all",
        only="cpu",
    ),
    "debug": Check("with bounds checked", [{"debug": True}]),
    "fast": Check("fast_math", [{"fast_math": True}]),
    "levels": Check("optimised and not", [{"opt_level": 2}, {"opt_level": 0}], exact="alone"),
    "cache": Check("compiled, then from the cache: all bits", [ONE_THREAD] * 2, exact="all"),
    "nests": Check(
        "records of inner loops kept or not: all bits",
        [{"ad_stack_nests": way, **ONE_THREAD} for way in ("replay", "store")],
        exact="all",
    ),
    "blocks": Check(
        "tapes of 20, 100 and 1000 bytes",
        [{"ad_stack_budget_bytes": size} for size in (20, 100, 1000)],
    ),
    "fields": Check("fields for ndarrays", [{}], transform=transforms.as_fields),
    "ndarrays": Check("ndarrays for fields", [{}], transform=transforms.as_ndarrays),
    "numpy": Check("numpy arrays for ndarrays", [{}], arrays="numpy"),
    "torch": Check("torch tensors for ndarrays", [{}], arrays="torch"),
    "validation": Check("Tape(validation=True)", [{}], tape={"validation": True}),
    "adjoint": Check("<v, J u> = <J^T v, u> of reverse and forward mode", [{}]),
}


class Checker:
    """Runs checks on an arch; `most` is how many of the chosen ones a program gets."""

    def __init__(self, arch: str, chosen: Sequence[str], most: int) -> None:
        fitting = [name for name in chosen if CHECKS[name].only in ("", arch)]
        self.chosen = fitting
        self.most = most
        self.backend = PackageBackend(arch, arch)
        self.folder = tempfile.mkdtemp(prefix="octants-fuzz-")

    def extend(self, program: Program, verdict: Verdict) -> None:
        """Check a program, and add what is found to the verdict of the comparison."""
        if verdict.status is Status.FAILS or (verdict.problems[:1] and _is_invalid(verdict)):
            return
        outcome = expect(program)
        if isinstance(outcome, Undefined):
            return
        for name in self._of(program):
            found = list(self._problems(name, program, outcome))
            verdict.modes.append(f"check {name}")
            verdict.problems += [f"check {name}, {text}" for text in found]
            if found:
                verdict.status = Status.DISAGREES

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _of(self, program: Program) -> list[str]:
        """Which of the checks a program gets: others for each seed."""
        count = len(self.chosen)
        start = program.seed * self.most
        return [self.chosen[(start + k) % count] for k in range(min(self.most, count))]

    def _problems(self, name: str, program: Program, outcome: Outcome | str) -> Iterator[str]:
        check = CHECKS[name]
        changed = check.transform(program)
        if changed is None or (check.arrays and not transforms.ndarrays_of(program)):
            return
        actuals = [self._run(name, changed, run) for run in check.runs]
        if name == "cache":
            shutil.rmtree(self.folder, ignore_errors=True)
        for number, actual in enumerate(actuals):
            yield from _wrong(f"run {number}", changed, outcome, actual, name == "fast")
        for number, actual in enumerate(actuals[1:], 1):
            if check.exact == "all" or (check.exact == "alone" and _is_alone(program)):
                yield from _other_bits(f"run {number}", actuals[0], actual, check.exact)
        if name == "adjoint":
            yield from _adjoint_identity(program, actuals[0])

    def _run(self, name: str, program: Program, options: Options) -> Actual:
        check = CHECKS[name]
        if name == "cache":
            options = {**options, "offline_cache": True, "offline_cache_file_path": self.folder}
        backend = self.backend
        backend.overrides = options
        backend.arrays, backend.tape = check.arrays, check.tape
        backend.all_modes = name in ("adjoint", "validation")
        backend.forget()  # so that every run compiles its kernels, or finds them
        (actual,) = backend.run([program])
        return actual


def _is_invalid(verdict: Verdict) -> bool:
    """Whether the oracle says that a program has no meaning."""
    return verdict.status is Status.SET_ASIDE and not verdict.problems[0].startswith("close")


def _is_alone(program: Program) -> bool:
    """Whether no float is a sum over work items, so that its bits are those of one of them."""
    return not any(part in feature for feature in program.features for part in SUMS)


def _wrong(
    what: str, program: Program, outcome: Outcome | str, actual: Actual, is_fast: bool
) -> Iterator[str]:
    for mode, text in actual.errors.items():
        yield f"{what} error in {mode}: {text}"
    if isinstance(outcome, Outcome):
        slack = FAST_SLACK if is_fast else 1.0
        for problem in compare(program, outcome, actual, slack).problems:
            if not problem.startswith("error"):
                yield f"{what} {problem}"


def _other_bits(what: str, first: Actual, other: Actual, exact: str) -> Iterator[str]:
    """Where two runs differ; "alone" is said of values, as adjoints are sums."""
    pairs = [("primal", first.primal or {}, other.primal or {})]
    pairs.append(("returned", _numbered(first), _numbered(other)))
    if exact == "all":
        pairs += [
            (f"{mode} gradient", first.gradients[mode], other.gradients[mode])
            for mode in first.gradients
            if mode in other.gradients
        ]
        pairs.append(("tangent", first.tangent or {}, other.tangent or {}))
    for kind, ones, others in pairs:
        for name in ones.keys() & others.keys():
            if not np.array_equal(ones[name], others[name], equal_nan=True):
                place = tuple(np.argwhere(ones[name] != others[name])[0])
                yield (
                    f"{what} other bits in {kind}: {name}{list(map(int, place))}:"
                    f" {ones[name][place]!r} and {others[name][place]!r}"
                )
    modes = [sorted(actual.refusals.items()) for actual in (first, other)]
    if modes[0] != modes[1]:
        yield f"{what} refuses otherwise: {modes[0]} and {modes[1]}"


def _numbered(actual: Actual) -> Arrays:
    return {str(k): np.atleast_1d(value) for k, value in enumerate(actual.returned)}


LEVEL = {"f32": 1e-3, "f64": 1e-9}


def _adjoint_identity(program: Program, actual: Actual) -> Iterator[str]:
    """The two modes are the transposes of each other."""
    if actual.tangent is None or "tape" not in actual.gradients:
        return
    forward = [program.weights[name] * actual.tangent[name] for name in program.weights]
    gradient = actual.gradients["tape"]
    reverse = [gradient[name] * program.direction[name] for name in program.weights]
    sizes = [np.sum(np.abs(terms), dtype=np.float64) for terms in (*forward, *reverse)]
    ahead = sum(float(np.sum(terms, dtype=np.float64)) for terms in forward)
    back = sum(float(np.sum(terms, dtype=np.float64)) for terms in reverse)
    if not abs(ahead - back) <= LEVEL[program.precision] * (1e-6 + sum(sizes)):
        yield f"<v, J u> is {ahead!r}, <J^T v, u> is {back!r}"
