"""Work items that work together, on a fake Metal that has f64: as the interpreter has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octants.codegen.metal import compile as compiling
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.metal import context
from octants.runtime.metal.device import MetalDevice
from octants.target import Target
from tests.metal import wider
from tests.metal.cpp import need_compiler
from tests.metal.fake_metal import FakeMetal
from tests.simt import test_derivatives as simt_derivatives
from tests.simt import test_subgroups
from tests.vulkan import compiled, test_sum_groups
from tests.vulkan import test_blocks as vulkan

FAKE = FakeMetal()
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def device() -> Iterator[MetalDevice]:
    """A device of a fake Metal that has f64, for as long as the module runs."""
    need_compiler()
    with pytest.MonkeyPatch.context() as patch:
        library = FAKE.library()
        patch.setattr(context, "library", lambda: library)
        wider.install(patch)
        yield MetalDevice()


@pytest.fixture(autouse=True)
def on_metal(device: MetalDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class OnWiderMetal(compiled.OnVulkan):
        owner = staticmethod(lambda: device)

        def __init__(self, module: Module, target: Target | None = None, **_: Any) -> None:
            verify(module)
            self.module = module
            self.artifact = compiling.compile_module(module, device.hardware.target)
            self.kernel = device.load(self.artifact)  # type: ignore[assignment]

    monkeypatch.setattr(compiled, "OnVulkan", OnWiderMetal)
    monkeypatch.setattr(compiled, "device", lambda: device)
    yield
    problems, FAKE.problems = FAKE.problems, []
    assert not problems, problems[0]


LARGE = ("sums_and_scans", "tree_sum", "several_loops")
"""These take a second each; others are like them."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[SLOW] * (each in LARGE)) for each in vulkan.FITTING]
)
def test_metal_does_what_the_interpreter_does(name: str) -> None:
    before = len(FAKE.launches)
    vulkan.compare(*vulkan.CASES[name])
    assert len(FAKE.launches) > before


@pytest.mark.slow
@pytest.mark.parametrize("name", vulkan.FITTING)
def test_with_checks(name: str) -> None:
    vulkan.compare(*vulkan.CASES[name], checks_bounds=True)


@pytest.mark.parametrize(
    ("fn", "kind"),
    [*test_subgroups.CASES[:2], *(pytest.param(*c, marks=SLOW) for c in test_subgroups.CASES[2:])],
)
def test_reductions_and_scans(fn: str, kind: Any) -> None:
    vulkan.test_reductions_and_scans(fn, kind)


@pytest.mark.parametrize(
    "test",
    [
        vulkan.test_scans_that_start_again_and_sorting,
        vulkan.test_a_work_item_that_fails_keeps_nobody_waiting,
        lambda: vulkan.test_barriers_in_branches_and_loops(53, 3),
        lambda: vulkan.test_small_blocks(3),
    ],
    ids=["scans", "failure", "barriers", "small"],
)
def test_what_holds_on_vulkan(test: Callable[[], None]) -> None:
    test()


@pytest.mark.slow
def test_more_blocks_than_are_launched() -> None:
    vulkan.test_more_blocks_than_are_launched()


@pytest.mark.parametrize("seed", [1, *(pytest.param(k, marks=SLOW) for k in range(2, 60))])
def test_random_programs(seed: int) -> None:
    vulkan.test_random_programs(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        simt_derivatives.through_shared_memory,
        simt_derivatives.of_lanes,
        simt_derivatives.sums_over_lanes,
        *simt_derivatives.SHARED,
    ],
)
def test_derivatives(function: Any) -> None:
    vulkan.test_derivatives(function)


@pytest.mark.parametrize("is_field", [False, True])
@pytest.mark.parametrize("apart", test_sum_groups.APART, ids=len)
def test_elements_that_subgroups_update_together(apart: tuple[int, ...], is_field: bool) -> None:
    test_sum_groups.test_each_element_gets_its_own("add", apart, is_field, ragged=False)
