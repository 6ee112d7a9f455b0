"""Which work items access an element: races, owned elements, regions of launches."""

from __future__ import annotations

import pytest

from octants.analysis.indices.index_ranges import ArrayRegion
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.analysis.memory.accessed_regions import make_regions
from octants.analysis.memory.races import matters_forward, races_of
from octants.analysis.sums.reductions import find_scattered
from octants.ir import ops
from tests.analysis.tasks import module_of, task_of

RACES = {
    "x[i] = y[i]": "none",
    "x[7 - i] = y[i]": "none",
    "x[(i + n) % 8] = y[i]": "possible",
    "x[i * 5 % 8] = y[i]": "none",  # every element once, as computing all indices shows
    "x[i * 6 % 8] = y[i]": "certain",
    "x[i // 2 * 2 + i % 2] = y[i]": "none",
    "x[i // 2] = y[i]": "certain",
    "x[0] = y[i]": "certain",
    "x[0] = y[0]": "none",  # all store the same
    "x[0] = 1.0": "none",
    "x[0] += y[i]": "none",  # an atomic
    "x[p[i]] = y[i]": "possible",
    "x[i] = x[(i + 1) % 8]": "certain",
    "x[i] = x[i] + 1.0": "none",
    "z[i, 0] = y[i]; z[i, 1] = y[i]": "none",
    "z[i // 4, i % 4] = y[i]": "none",
    "z[0, i % 4] = y[i]": "certain",
}


@pytest.mark.parametrize("body", RACES)
def test_races(body: str) -> None:
    found = races_of(task_of(body), matters_forward)
    kind = "none" if not found else "certain" if found[0].is_sure else "possible"
    assert kind == RACES[body]
    for race in found:
        assert race.items is None or race.items[0] != race.items[1]


OWNED = {
    "x[i] += 1.0": True,
    "x[7 - i] += 1.0": True,
    "x[i + n] += 1.0": True,
    "x[n] += 1.0": False,
    "x[i // 2] += 1.0": False,
    "x[i % 4] += 1.0": False,
    "x[(i + 1) % 8] += 1.0": True,
    "x[(i - 3) % 8] += 1.0": True,
    "x[(i + 9) % 7] += 1.0": False,  # 0 and 7 have the same
    "x[(2 * i) % 15] += 1.0": True,
    "x[(2 * i) % 14] += 1.0": False,
    "x[(i + 1) % 8] += 1.0; x[i] += 1.0": False,
    "z[(i // 4 + 1) % 2, (i % 4 + 3) % 4] += 1.0": True,
    "z[(i // 4 + 1) % 2, (i % 4 + 3) % 3] += 1.0": False,
    "x[p[i]] += 1.0": False,
    "x[i] += 1.0; x[i + 1] += 1.0": False,
    "for j in range(4): z[i, j] += y[j]": True,
    "for j in range(4): z[j, i % 4] += y[j]": False,
    "for j in range(4): x[4 * i + j] += y[j]": True,
    "for j in range(5): x[4 * i + j] += y[j]": False,
    "for j in range(n): x[4 * i + j] += y[j]": False,
}


@pytest.mark.parametrize("body", OWNED)
def test_elements_of_one_work_item(body: str) -> None:
    task = task_of(body)
    updates = [op for op in task.body.walk() if isinstance(op, ops.Atomic)]
    assert updates
    assert ElementAliasing(task).is_owned(updates) is OWNED[body]


GRIDS = {
    ("(1, n - 1), (1, m - 1)", "a[i, j]"): True,
    ("(1, n - 1), (1, m - 1)", "a[i - 1, j + 1]"): True,
    ("n - 1, m - 1", "a[i, j]"): True,
    ("(2, a.shape[0] - 1), (1, a.shape[1])", "a[i + 1, j]"): True,
    ("(1, n - 1), (1, m - 1)", "a[j, j]"): False,
    ("(1, n - 1), (1, m - 1)", "a[0, j]"): False,
    ("n, m", "a[(i + 1) % n, (j - 1) % m]"): True,
    ("a.shape[0], a.shape[1]", "a[i, (j + 1) % a.shape[1]]"): True,
    ("a.shape[0], a.shape[1]", "a[i, (j + 1) % a.shape[0]]"): False,
    ("n, m", "a[i, (j + 1) % n]"): False,
    ("n, (0, m + 1)", "a[i, (j + 1) % m]"): False,
    ("n, m", "a[i, (j + m - 1) % m]"): False,  # j + m may wrap
    ("n, m", "a[i, (2 * j) % m]"): False,
    ("n, m", "a[i, (i + j) % m]"): False,
}
"""The loops over i and j, and what they add to."""


@pytest.mark.parametrize(("spans", "element"), GRIDS)
def test_elements_of_one_work_item_of_a_grid(spans: str, element: str) -> None:
    task = task_of(f"{element} += 1.0", f"for i, j in qd.ndrange({spans})")
    updates = [op for op in task.body.walk() if isinstance(op, ops.Atomic)]
    assert ElementAliasing(task).is_owned(updates) is GRIDS[spans, element]
    assert find_scattered(task) == set(() if GRIDS[spans, element] else updates)


WHOLE = None
REGIONS: dict[str, tuple[ArrayRegion, ArrayRegion]] = {  # what is read of y, and written of x
    "x[i] = y[0]": ((((0, 0),),), (((0, 7),),)),
    "x[i] = y[7 - i]": ((((0, 7),),), (((0, 7),),)),
    "x[n] = y[n + 1]": ((((4, 4),),), (((3, 3),),)),
    "x[i + n] = y[i * 2]": ((((0, 14),),), (((3, 10),),)),
    "for j in range(n): x[j] = y[i + j]": ((((0, 9),),), (((0, 2),),)),
    "x[min(i, n)] = y[max(i, n)]": ((((3, 7),),), (((0, 3),),)),
    "x[p[i]] = y[0]": ((((0, 0),),), WHOLE),
}


@pytest.mark.parametrize("body", REGIONS)
def test_regions_of_a_launch(body: str) -> None:
    module = module_of(body)
    regions = make_regions(module, 1, lambda array: "a0", lambda array, axis: "8")(3)
    by_name = {array.name: regions[k] for k, array in enumerate(module.arrays) if k in regions}
    assert (by_name["y"].read, by_name["x"].written) == REGIONS[body]
