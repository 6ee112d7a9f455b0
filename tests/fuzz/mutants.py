"""``python -m tests.fuzz.mutants FAULT FIRST LAST [PROFILE]``: runs programs with a fault.

Code with a fault may read any memory and run for ever, so it has a process of its own.
"""

from __future__ import annotations

import contextlib
import sys
import warnings

import pytest

from octants.fuzz.backends import BACKENDS, options
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from tests.fuzz.faults import FAULTS, INTERPRETED, Fault, skip_checkpoints
from tests.fuzz.faults_of_profiles import FAULTS_OF_PROFILES


def main(name: str, first: int, last: int, profile: str = "core") -> None:
    """A line for each program, up to one that disagrees: its seed, verdict, and first problem."""
    faults = (*FAULTS, *INTERPRETED, *FAULTS_OF_PROFILES.values())
    fault = next(fault for fault in faults if fault.__name__ == name)
    backend = BACKENDS["interpreter" if fault in INTERPRETED else "cpu"]()
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        for seed in range(first, last):
            if not may_show(fault, seed):
                continue
            print(seed, end="\t", flush=True)
            with contextlib.redirect_stdout(sys.stderr):  # of messages of the program
                (verdict,) = check([generate(seed, "f64", profile)], backend)
            problems = [problem.splitlines()[0] for problem in verdict.problems[:1]]
            print(verdict.status.value, *problems, sep="\t", flush=True)
            if verdict.status in (Status.DISAGREES, Status.FAILS):
                return


def may_show(fault: Fault, seed: int) -> bool:
    """Whether a program is worth running: where there is much memory, there are no checkpoints."""
    return fault is not skip_checkpoints or "ad_stack_budget_bytes" in options(seed, "cpu")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:])
