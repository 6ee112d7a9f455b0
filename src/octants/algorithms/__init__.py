"""Algorithms over whole arrays: sorting, prefix sums, reductions, selection.

Call the functions at the top level of a kernel: each is a sequence of parallel loops. Called inside
of another loop they still are right, but run in order. `parallel_sort` and `PrefixSumExecutor` are
called on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.algorithms.compaction import reduce_by_key_add as reduce_by_key_add
from octants.algorithms.compaction import reduce_by_key_scratch_slots as reduce_by_key_scratch_slots
from octants.algorithms.compaction import select as select
from octants.algorithms.compaction import select_scratch_slots as select_scratch_slots
from octants.algorithms.host_entry_points import PrefixSumExecutor as PrefixSumExecutor
from octants.algorithms.host_entry_points import parallel_sort as parallel_sort
from octants.algorithms.prefix_sums import exclusive_scan_add as exclusive_scan_add
from octants.algorithms.prefix_sums import exclusive_scan_max as exclusive_scan_max
from octants.algorithms.prefix_sums import exclusive_scan_min as exclusive_scan_min
from octants.algorithms.prefix_sums import (
    exclusive_scan_scratch_slots as exclusive_scan_scratch_slots,
)
from octants.algorithms.radix_sort import sort as sort
from octants.algorithms.radix_sort import sort_scratch_slots as sort_scratch_slots
from octants.algorithms.reductions import reduce_add as reduce_add
from octants.algorithms.reductions import reduce_max as reduce_max
from octants.algorithms.reductions import reduce_min as reduce_min
from octants.algorithms.reductions import reduce_scratch_slots as reduce_scratch_slots
from octants.deferred_import import names_of as _names_of

__all__ = [
    "PrefixSumExecutor",
    "exclusive_scan_add",
    "exclusive_scan_max",
    "exclusive_scan_min",
    "exclusive_scan_scratch_slots",
    "parallel_sort",
    "reduce_add",
    "reduce_by_key_add",
    "reduce_by_key_scratch_slots",
    "reduce_max",
    "reduce_min",
    "reduce_scratch_slots",
    "select",
    "select_scratch_slots",
    "sort",
    "sort_scratch_slots",
]

if not TYPE_CHECKING:
    __getattr__ = _names_of(__name__)
