"""The words of a few small modules, as text in files: what changes there should be meant to."""

from __future__ import annotations

import pytest

from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.module_builder import Assembly
from octants.ir.verifier import verify
from octants.target import Blocks, Target
from octants.types.scalars import DType
from tests.golden_files import check_golden
from tests.ir.parser import parse
from tests.vulkan.disassembly import to_text
from tests.vulkan.validation import check

FEATURES = "int64,addresses,lanes,fences,add32,atomic64"
TARGET = Target("vulkan", "spirv", "a device", FEATURES, blocks=Blocks(4, 8))
TEXTS = {
    "square": """\
kernel @square
array @x: f32, 1, ndarray, () [primal]
parallel @square_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = binary<mul>(%3, %3)
  store<@x, primal>(%4, %2)
  yield()
}
""",
    "mirrored": """\
kernel @mirrored
array @x: f32, 1, ndarray, () [primal]
array @shared: f32, 1, shared, () [primal (8,) ((0, 1, 0, 4),) ()]
parallel @mirrored_0 {'block_dim': 8, 'subgroup_size': 4} {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<7>()
  %4: i32 = binary<and>(%2, %3)
  %5: f32 = load<@x, primal>(%2)
  store<@shared, primal>(%5, %4)
  barrier<block>()
  %6: i32 = binary<sub>(%3, %4)
  %7: f32 = load<@shared, primal>(%6)
  store<@x, primal>(%7, %2)
  yield()
}
""",
    "sum": """\
kernel @sum
array @x: f32, 1, ndarray, () [primal]
array @s: f32, 0, temporary, () [primal]
parallel @sum_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = atomic<add, @s, primal>(%3)
  yield()
}
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    module = parse(TEXTS[name])
    verify(module)
    artifact = compile_module(module, TARGET)
    check(artifact)
    check_golden(f"spirv/{name}", to_text(artifact.code))


def test_the_type_of_numbers_is_declared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instruction has one, so that a search for each would take long."""
    declared: list[DType] = []
    declare = Assembly._declare_type

    def noted(assembly: Assembly, dtype: DType) -> int:
        declared.append(dtype)
        return declare(assembly, dtype)

    monkeypatch.setattr(Assembly, "_declare_type", noted)
    module = parse(TEXTS["square"])
    compile_module(module, TARGET)
    assert len(declared) == len(set(declared))
    assert len(declared) > 2
