"""Has GPUs sort the work items of any task whose loops have bounds that work items load.

Otherwise they sort those with long loops in long launches, which random programs do not have.
"""

from __future__ import annotations

import pytest

from octants import driver
from octants.analysis.control_flow import trip_count_keys
from octants.codegen.structured import dispatch_functions


def force(patch: pytest.MonkeyPatch) -> None:
    """Have kernels that are compiled from now on sort work items where they can be sorted."""
    patch.setattr(trip_count_keys, "_LONG", 0)
    patch.setattr(trip_count_keys, "_EXCLUDING", ("fixed_order", "block_dim"))
    patch.setattr(trip_count_keys._Finder, "accesses_neighbours", lambda _: False)
    patch.setattr(dispatch_functions, "_may_sort", lambda *_: True)
    patch.setattr(driver, "_artifacts", {})
