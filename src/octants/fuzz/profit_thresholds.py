"""Other values for the thresholds by which the compiler decides what a rewrite is worth.

Such a threshold changes code, and never results: so programs that are too small for a rewrite, or
too large, test it nevertheless.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST_COSTS = {
    "autodiff.plan.stored_nests": ("_WORTH_STORING", "_WORTH_A_BYTE", "_TRIPS"),
    "autodiff.plan.records_in_registers": ("ENOUGH_WORK",),
    "passes.sums.gather_sums": ("_SHORTEST", "_SCATTERING"),
    "passes.storage.localise_rows": ("_FEWEST",),
    "analysis.sums.gatherable_sums": ("FEW",),
    "analysis.lanes.time_estimate": ("_REMAINDER", "_MISPREDICTED", "_TRIPS", "_ORDERED", "_TEST"),
}
"""Least costs that make a rewrite worth it, and estimates of times, by module."""

_LIMITS = {
    "autodiff.emit.component_access": ("_RECENT",),
    "autodiff.improve.loop_unswitching": ("_SMALL",),
    "autodiff.plan.recording_plan": ("AROUND_LOOPS", "AROUND_RESULTS", "MAX_UNBLOCKED", "NESTED"),
    "passes.sums.fuse_product_sums": ("_MOST",),
    "passes.sums.gather_sums": ("_LONGEST",),
    "passes.code_motion.hoist_from_branches": ("MOST_WORK",),
    "passes.code_motion.hoist_loads": ("MOST_LOADS",),
    "passes.arithmetic.relax_divisions": ("_MOST", "_DEPTH"),
    "passes.code_motion.sink_into_branches": ("_MOST",),
    "passes.sums.split_sums": ("_FEW",),
    "passes.sums.sum_in_registers": ("_MAXIMUM",),
    "passes.loops.unroll_loops": ("MOST_WAITS",),
    "passes.loops.unroll_shared_sums": ("_MOST_WORK", "_MOST_WORK_OF_SECTORS", "_LITTLE_WORK"),
    "analysis.lanes.choose_loops": ("_FEW", "_SMALL", "_LARGE", "_HUGE"),
    "analysis.sums.reductions": ("_MAXIMUM", "_FEW"),
    "analysis.floats.speculated_iterations": ("_LITTLE",),
}
"""Most operations, or the like, that a rewrite may take, by module."""

_FACTOR = 8


@contextmanager
def changed(package: str, seed: int) -> Iterator[None]:
    """Let half of the thresholds of a package be smaller or larger inside the context.

    Args:
        package: the package.
        seed: determines which, and how; 0 changes none.
    """
    rng, given = random.Random(seed), []
    for table in (_LEAST_COSTS, _LIMITS) if seed else ():
        for name, thresholds in table.items():
            module = importlib.import_module(f"{package}.{name}")
            given += [(module, each, getattr(module, each)) for each in thresholds]
    try:
        for module, each, value in given:
            others = [1, max(1, value // _FACTOR), value * _FACTOR]
            setattr(module, each, rng.choice([value, value, value, *others]))
        yield
    finally:
        for module, each, value in given:
            setattr(module, each, value)
