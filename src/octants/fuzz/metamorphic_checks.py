"""Metamorphic checks: a program that runs under two configurations gives the same numbers.

The first run is also compared with the oracle, and so is the second if the oracle accepts the
program. Where the documentation promises equal bits, the two runs must have equal bits. On GPUs,
sums over work items, and therefore gradients, have equal bits only with `deterministic`, since
atomic additions come in any order.
"""

from __future__ import annotations

import enum
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from octants.fuzz import field_ndarray_conversion
from octants.fuzz.backends import (
    GPUS,
    Actual,
    Arrays,
    PackageBackend,
    RunConfiguration,
    has_free_order,
    options,
)
from octants.fuzz.compare import Status, Verdict, compare, expect, judge, may_refuse, set_aside
from octants.fuzz.derivative_identities import adjoint_identity, second_differences
from octants.fuzz.program import Close, Outcome, Program, Undefined

Options = dict[str, Any]
ONE_THREAD = {"cpu_max_num_threads": 1}


class Bits(enum.Enum):
    """Which results of two runs must have equal bits.

    Unless it is `NONE`, values that do not depend on sums must.
    """

    NONE = enum.auto()
    VALUES = enum.auto()
    ONE_THREAD = enum.auto()  # all of them on a CPU, whose runs have one thread
    FIXED_ORDER = enum.auto()  # these, and all of them on a GPU where sums are deterministic


@dataclass(frozen=True)
class Check:
    """Two configurations under which a program must give the same results.

    `first` has the options of the first run, and defaults of the second one. The seed of a program
    selects one of `others` for the second run.
    """

    purpose: str
    others: Sequence[Options] = ({},)
    first: Options = field(default_factory=dict)
    bits: Bits = Bits.NONE
    transform: Callable[[Program], Program | None] = lambda program: program
    arrays: str = ""  # what replaces ndarrays, see `RunConfiguration`
    tape: Options = field(default_factory=dict)
    forward: bool = True  # whether the other run computes tangents
    of_first: Callable[[Program, Actual], Iterator[str]] | None = None  # checks the first run alone
    second: bool = False  # whether the first run computes second derivatives
    multiples: bool = False  # whether it propagates several tangents, or adjoints, in each launch
    rebinds: bool = False  # whether the other run begins with other functions and constants
    beside: bool = False  # whether two threads run the other run at the same time
    machines: Sequence[Options] = ({},)  # capabilities that the other run pretends, by the seed
    thresholds: bool = False  # whether the other run has other thresholds, by the seed
    without_avx512: bool = False  # whether the other run has code for AVX2, for half of the seeds
    only: Sequence[str] = ()  # the archs to check; all if empty
    needs: str = ""  # an optional package that must be installed

    def is_possible(self, arch: str) -> bool:
        """Whether the check applies to an arch, and its package is installed."""
        return (not self.only or arch in self.only) and (
            not self.needs or find_spec(self.needs) is not None
        )


def _runs_alone(program: Program) -> Program | None:
    """The program, unless it depends on what other threads do: on numbers of launches, on trees."""
    return None if program.sparse or "random" in program.source else program


_LIKE_A_GPU: Options = {"fills": 1 << 16, "vectors": None}
"""The capabilities of a GPU that determine how its kernels are derived."""

CHECKS: dict[str, Check] = {
    "lanes": Check(
        "SIMD lanes on and off",
        [{"simd": "always"}],
        {"simd": "never"},
        bits=Bits.VALUES,
        only=("cpu",),
    ),
    "threads": Check(
        "1 thread, and 2 or 8",
        [{"cpu_max_num_threads": n} for n in (2, 8)],
        ONE_THREAD,
        bits=Bits.VALUES,
        only=("cpu",),
    ),
    "deterministic": Check(
        "deterministic sums, with 1 thread, and 2 or 8, or twice on a GPU: all bits",
        [{"cpu_max_num_threads": n} for n in (2, 8)],
        {"deterministic": True, **ONE_THREAD},
        bits=Bits.FIXED_ORDER,
        only=("cpu", *GPUS),
    ),
    "debug": Check("with bounds checked", [{"debug": True}]),
    "fast": Check("fast_math off and on", [{"fast_math": True}], {"fast_math": False}),
    "features": Check(
        "features of a Vulkan device left unused",
        [
            {"vulkan_without": names}
            for names in ("masks", "masks,addresses", "int64", "lanewise", "add32,add64")
        ],
        {"vulkan_without": ""},
        only=("vulkan",),
    ),
    "levels": Check("optimised and not", [{"opt_level": 0}], {"opt_level": 2}, bits=Bits.VALUES),
    "cache": Check("compiled, then from the cache: bits", [{}], ONE_THREAD, bits=Bits.FIXED_ORDER),
    "nests": Check(
        "records of inner loops kept or not, without lanes: bits",
        [{"ad_stack_nests": "store"}],
        {"ad_stack_nests": "replay", "simd": "never", **ONE_THREAD},
        bits=Bits.ONE_THREAD,
        forward=False,
    ),
    "blocks": Check(
        "tapes of 20, 100 or 1000 bytes",
        [{"ad_stack_budget_bytes": size} for size in (20, 100, 1000)],
        forward=False,
    ),
    "gpu": Check(
        "derivatives as for GPUs, whose records are near work items: up to 1 to 4096 bytes",
        [{"simd": "never"}],
        machines=[
            {**_LIKE_A_GPU, "local_record_bytes": size, "unrolls": size == 16}
            for size in (256, 1, 16, 64, 256, 4096)
        ],
        forward=False,
        only=("cpu", "python"),
    ),
    "registers": Check(
        "local vectors of 40 to 400 bytes in memory, others in registers",
        machines=[{"vector_bytes": size} for size in (40, 100, 200, 400)],
        forward=False,
    ),
    "thresholds": Check(
        "other thresholds for what a rewrite is worth",
        thresholds=True,
        forward=False,
        only=("cpu", "python"),
    ),
    "gpu-thresholds": Check(
        "the same, with derivatives as for GPUs",
        [{"simd": "never"}],
        machines=[{**_LIKE_A_GPU, "local_record_bytes": size} for size in (64, 256, 4096)],
        thresholds=True,
        forward=False,
        only=("cpu", "python"),
    ),
    "fields": Check("fields for ndarrays", transform=field_ndarray_conversion.as_fields),
    "ndarrays": Check("ndarrays for fields", transform=field_ndarray_conversion.as_ndarrays),
    "numpy": Check(
        "numpy arrays for ndarrays, between other elements; half of them in code for AVX2",
        arrays="numpy",
        forward=False,
        without_avx512=True,
    ),
    "strided": Check(
        "numpy arrays with other strides for ndarrays", arrays="strided", forward=False
    ),
    "torch": Check(
        "torch tensors for ndarrays, between other elements; half of them in code for AVX2",
        arrays="torch",
        forward=False,
        without_avx512=True,
        needs="torch",
    ),
    "validation": Check("Tape(validation=True)", tape={"validation": True}, forward=False),
    "arguments": Check(
        "gradients of arguments, against the oracle",
        tape={"argument_gradients": True},
        forward=False,
    ),
    "rebound": Check("functions and constants that other ones preceded", rebinds=True),
    "beside": Check("twice at the same time, on two threads", transform=_runs_alone, beside=True),
    "adjoint": Check(
        "<v, J u> = <J^T v, u> of reverse and forward mode", of_first=adjoint_identity
    ),
    "directions": Check(
        "three tangents, then three adjoints, in each launch, against the oracle", multiples=True
    ),
    "hessian": Check(
        "second derivatives against differences of the oracle's gradient",
        of_first=second_differences,
        second=True,
    ),
}


_MISSING = "OCT450"
"""The code of the error for a kernel that needs a feature which the device does not have."""


def temporary_folder(parent: str | None = None) -> tempfile.TemporaryDirectory[str]:
    """A new folder, which is removed when the process ends, unless it is killed."""
    return tempfile.TemporaryDirectory(
        prefix="octants-fuzz-", dir=parent, ignore_cleanup_errors=True
    )


class Checker:
    """Compares programs with the oracle, and runs at most `most` of the chosen checks on each.

    Its cache of kernels is in ``parent``, or where the system has temporary folders.
    """

    def __init__(
        self, arch: str, chosen: Sequence[str], most: int, parent: str | None = None
    ) -> None:
        self.chosen = [name for name in chosen if CHECKS[name].is_possible(arch)]
        self.most = most
        self._folder = temporary_folder(parent)

    def check(self, program: Program, backend: PackageBackend) -> Verdict:
        """The verdict of the comparison with the oracle, and of the checks."""
        outcome = expect(program, backend.sine_errors)
        if isinstance(outcome, str):
            return set_aside(program, outcome)
        names = self._of(program)
        configurations = [self._first(name) for name in names]
        begun = configurations[0] if configurations else RunConfiguration()
        first, slack = _run(program, backend, begun), backend.slack(program, begun)
        if isinstance(outcome, Close):
            verdict = set_aside(program, outcome)
            self._note(verdict, "first run", _wrong("run 0", program, outcome, first, slack))
        else:
            verdict = judge(program, outcome, first, slack)
        if verdict.status is Status.FAILS or isinstance(outcome, Undefined):
            return verdict
        for name, configuration in zip(names, configurations, strict=True):
            one = first if configuration == begun else _run(program, backend, configuration)
            found = self._problems(name, program, outcome, one, backend)
            self._note(verdict, name, found)
            verdict.modes.append(f"check {name}")
        return verdict

    def close(self) -> None:
        self._folder.cleanup()

    def _note(self, verdict: Verdict, name: str, found: Iterable[str]) -> None:
        problems = [f"check {name}, {text}" for text in found]
        verdict.problems += problems
        if problems:
            verdict.status = Status.DISAGREES

    def _of(self, program: Program) -> list[str]:
        """The checks of a program, which its seed selects."""
        count = len(self.chosen)
        start = program.seed * self.most
        return [self.chosen[(start + k) % count] for k in range(min(self.most, count))]

    def _first(self, name: str) -> RunConfiguration:
        check = CHECKS[name]
        options = dict(check.first)
        if name == "cache":
            options |= {"offline_cache": True, "offline_cache_file_path": self._folder.name}
        is_alone = check.of_first is not None
        return RunConfiguration(
            options, all_modes=is_alone, second=check.second, multiples=check.multiples
        )

    def _problems(
        self,
        name: str,
        program: Program,
        outcome: Outcome | Close,
        first: Actual,
        backend: PackageBackend,
    ) -> Iterator[str]:
        check = CHECKS[name]
        if check.of_first is not None:
            yield from check.of_first(program, first)
            return
        if check.multiples:
            slack = backend.slack(program, self._first(name))
            yield from _wrong("run 0", program, outcome, first, slack)
            return
        changed = check.transform(program)
        if changed is None or (check.arrays and not field_ndarray_conversion.ndarrays_of(program)):
            return
        other = check.others[program.seed // len(CHECKS) % len(check.others)]
        given = {**self._first(name).options, **other}
        has_tape = bool(check.tape)
        configuration = RunConfiguration(
            given,
            check.bits is not Bits.NONE,
            check.arrays,
            check.tape,
            has_tape,
            check.forward,
            rebinds=check.rebinds,
            beside=check.beside,
            machine=check.machines[program.seed // len(CHECKS) % len(check.machines)],
            thresholds=1 + program.seed if check.thresholds else 0,
            without_avx512=check.without_avx512 and program.seed // len(CHECKS) % 2 == 0,
        )
        backend.forget()  # so that the run compiles its kernels, or loads them from the cache
        actual = _run(changed, backend, configuration)
        if name == "cache":
            shutil.rmtree(self._folder.name, ignore_errors=True)
        if name == "features" and any(_MISSING in text for text in actual.errors.values()):
            return
        slack = backend.slack(changed, configuration)
        yield from _wrong("run 1", changed, outcome, actual, slack)
        if actual.beside is not None:
            yield from _wrong("run beside", changed, outcome, actual.beside, slack)
        if _has_all_bits(check.bits, backend.arch, program, given):
            yield from _other_bits(first, actual, with_derivatives=True)
        elif check.bits is not Bits.NONE and not outcome.has_sums:
            yield from _other_bits(first, actual, with_derivatives=False)


def _run(program: Program, backend: PackageBackend, configuration: RunConfiguration) -> Actual:
    backend.configuration = configuration
    try:
        (actual,) = backend.run([program])
    finally:
        backend.configuration = RunConfiguration()
    return actual


def _has_all_bits(bits: Bits, arch: str, program: Program, given: Options) -> bool:
    """Whether all results must have equal bits, those of sums and gradients included."""
    if arch not in GPUS:
        return bits in (Bits.ONE_THREAD, Bits.FIXED_ORDER)
    if has_free_order(program, arch):
        return False
    is_deterministic = (options(program.seed, arch) | given).get("deterministic", False)
    return bits is Bits.FIXED_ORDER and is_deterministic


def _wrong(
    what: str, program: Program, outcome: Outcome | Close, actual: Actual, slack: float
) -> Iterator[str]:
    for mode, text in actual.errors.items():
        if not may_refuse(outcome, text):
            yield f"{what} error in {mode}: {text}"
    if isinstance(outcome, Outcome):
        for problem in compare(program, outcome, actual, slack).problems:
            if not problem.startswith("error"):
                yield f"{what} {problem}"


def _other_bits(first: Actual, other: Actual, *, with_derivatives: bool) -> Iterator[str]:
    """The numbers whose bits differ. Adjoints of elements with several readers are sums."""
    pairs = [("primal", first.primal or {}, other.primal or {})]
    pairs.append(("returned", _numbered(first), _numbered(other)))
    if with_derivatives:
        pairs += [
            (f"{mode} gradient", first.gradients[mode], other.gradients[mode])
            for mode in first.gradients
            if mode in other.gradients
        ]
        pairs.append(("tangent", first.tangent or {}, other.tangent or {}))
    for kind, ones, others in pairs:
        for name in ones.keys() & others.keys():
            if not np.array_equal(ones[name], others[name], equal_nan=True):
                index = tuple(np.argwhere(ones[name] != others[name])[0])
                yield (
                    f"run 1 other bits in {kind}: {name}{list(map(int, index))}:"
                    f" {ones[name][index]!r} and {others[name][index]!r}"
                )
    modes = [sorted(actual.refusals.items()) for actual in (first, other)]
    if modes[0] != modes[1]:
        yield f"run 1 refuses otherwise: {modes[0]} and {modes[1]}"


def _numbered(actual: Actual) -> Arrays:
    return {str(k): np.atleast_1d(value) for k, value in enumerate(actual.returned)}
