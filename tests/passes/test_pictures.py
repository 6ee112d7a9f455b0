"""The Before/After pictures in the docstrings of the passes are executed."""

from __future__ import annotations

import re
import textwrap
from types import ModuleType

import pytest

from octants.autodiff import forward, reverse
from octants.autodiff.improve import loop_unswitching, narrow_counters, recorded_results
from octants.ir.parser import parse
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes import (
    approximate_quotients,
    check_bounds,
    check_finite,
    contract_to_fma,
    demote_atomics,
    drop_custom_derivatives,
    expand_divisions,
    expand_powers,
    expose_invariants,
    factor_pair_sums,
    fix_summation_order,
    fold_zero_products,
    fuse_product_sums,
    gather_sums,
    hoist_from_branches,
    hoist_loads,
    jam_loops,
    localise_rows,
    outline_tasks,
    relax_divisions,
    sequence_work_items,
    share_differences,
    share_reciprocals,
    sink_stores,
    skip_unchanged_updates,
    split_sums,
    sum_in_registers,
    unroll_loops,
    unroll_shared_sums,
)
from octants.simplify import constant_folding_and_cse, dead_code

PASSES = [
    (approximate_quotients, "approximate_quotients"),
    (share_differences, "share_differences"),
    (jam_loops, "jam_loops"),
    (hoist_loads, "hoist_loads"),
    (localise_rows, "localise_rows"),
    (check_bounds, "check_bounds"),
    (check_finite, "check_finite"),
    (outline_tasks, "outline_tasks"),
    (sum_in_registers, "sum_in_registers"),
    (contract_to_fma, "contract_to_fma"),
    (drop_custom_derivatives, "drop_custom_derivatives"),
    (sink_stores, "sink_stores"),
    (skip_unchanged_updates, "skip_unchanged_updates"),
    (demote_atomics, "demote_atomics"),
    (fold_zero_products, "fold_zero_products"),
    (expand_divisions, "expand_divisions"),
    (expand_powers, "expand_powers"),
    (expose_invariants, "expose_invariants"),
    (factor_pair_sums, "factor_pair_sums"),
    (fix_summation_order, "fix_summation_order"),
    (fuse_product_sums, "fuse_product_sums"),
    (gather_sums, "gather_sums"),
    (hoist_from_branches, "hoist_from_branches"),
    (relax_divisions, "relax_divisions"),
    (sequence_work_items, "sequence_work_items"),
    (share_reciprocals, "share_reciprocals"),
    (split_sums, "split_sums"),
    (unroll_loops, "unroll_loops"),
    (unroll_shared_sums, "unroll_shared_sums"),
    (constant_folding_and_cse, "fold"),
    (dead_code, "prune"),
    (reverse, "reverse"),
    (forward, "forward"),
    (recorded_results, "record_results"),
    (loop_unswitching, "make_versions"),
    (narrow_counters, "narrow_counters"),
]


def pictures(module: ModuleType) -> list[tuple[str, str]]:
    """The pairs of Before and After texts in a module's docstring, as whole modules."""
    blocks = re.findall(
        r"^(Before|After)::\n\n((?:    .*\n|\n)+)", module.__doc__ or "", re.MULTILINE
    )
    texts = [textwrap.dedent(text).strip() + "\n" for _, text in blocks]
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [(whole(before), whole(after, before)) for before, after in pairs]


TASK = re.compile(r"^(serial|parallel \((%2: \w+) < (.*)\)) {\n((?:  .*\n)*)}\n", re.MULTILINE)


def whole(text: str, before: str = "") -> str:
    """The text of a module, with what a picture leaves out: `octants.passes` says what that is."""
    if text.startswith("kernel"):
        return text
    if not text.startswith("array"):
        text = TASK.split(before)[0] + text
    return "kernel @k\n" + TASK.sub(_task, text)


def _task(found: re.Match[str]) -> str:
    kind, item, extent, body = found.groups()
    head = "serial @k_0 {\n"
    if kind != "serial":
        bounds = f"  %0: i32 = constant<0>()\n  %1: i32 = {extent}\n  yield(%0, %1)\n"
        head = f"parallel @k_0 {{\n{bounds}}} {{ ({item}):\n"
    return f"{head}{body}  yield()\n}}\n"


@pytest.mark.parametrize(("module", "name"), PASSES, ids=[name for _, name in PASSES])
def test_picture(module: ModuleType, name: str) -> None:
    pairs = pictures(module)
    assert pairs
    for before, after in pairs:
        parsed = parse(before)
        verify(parsed)
        transformed = getattr(module, name)(parsed)
        if hasattr(transformed, "module"):
            transformed = transformed.module
        result = parsed if transformed is None else transformed
        verify(result)
        assert to_text(result) == to_text(parse(after)) != to_text(parse(before))
