"""``python -m tests.fuzz.mutants FAULT FIRST LAST``: runs programs with a fault in the autodiff.

Code with a fault may read any memory and run for ever, so it has a process of its own.
"""

from __future__ import annotations

import sys
import warnings

import pytest

from octants.fuzz.backends import BACKENDS, options
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from tests.fuzz.faults import FAULTS, INTERPRETED, Fault, skip_checkpoints


def main(name: str, first: int, last: int) -> None:
    """A line for each program, up to one that disagrees: its seed, verdict, and first problem."""
    fault = next(fault for fault in (*FAULTS, *INTERPRETED) if fault.__name__ == name)
    backend = BACKENDS["interpreter" if fault in INTERPRETED else "cpu"]()
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        for seed in range(first, last):
            if not may_show(fault, seed):
                continue
            print(seed, end="\t", flush=True)
            (verdict,) = check([generate(seed, "f64")], backend)
            print(verdict.status.value, *verdict.problems[:1], sep="\t", flush=True)
            if verdict.status in (Status.DISAGREES, Status.FAILS):
                return


def may_show(fault: Fault, seed: int) -> bool:
    """Whether a program is worth running: where there is much memory, there are no checkpoints."""
    return fault is not skip_checkpoints or "ad_stack_budget_bytes" in options(seed, "cpu")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:]))
