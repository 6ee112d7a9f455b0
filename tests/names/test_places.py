"""Public names are found in the modules in which the peers have them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.absent_names import PLACES

NAMES = {
    "lang.exception": "QuadrantsSyntaxError TaichiTypeError TaichiCompilationError",
    "lang.misc": "get_host_arch_list cpu cuda loop_config assume_in_range extension ij",
    "lang.util": "has_pytorch to_numpy_type to_pytorch_type cook_dtype",
    "lang.matrix": "Matrix Vector MatrixField VectorNdarray",
    "lang.struct": "Struct StructField dataclass",
    "lang.field": "Field ScalarField",
    "lang._ndarray": "Ndarray ScalarNdarray",
    "lang.snode": "SNode append deactivate length is_active rescale_index",
    "lang.kernel_impl": "kernel func data_oriented pyfunc real_func",
    "_snode.fields_builder": "FieldsBuilder",
    "types.compound_types": "vector matrix struct",
    "types.annotations": "template sparse_matrix_builder",
    "ad._ad": "Tape FwdMode grad_for",
    "algorithms._algorithms": "parallel_sort PrefixSumExecutor",
    "linalg.sparse_cg": "SparseCG",
    "linalg.sparse_solver": "SparseSolver",
    "tools.image": "imread imwrite",
    "tools.np2ply": "PLYWriter",
    "tools.vtk": "write_vtk",
    "ui.camera": "Camera",
    "ui.constants": "LMB",
}


@pytest.mark.parametrize("place", sorted({*NAMES, *(name[8:] for name in PLACES)}))
def test_a_place_has_the_public_names(place: str) -> None:
    module = importlib.import_module(f"octants.{place}")
    for name in NAMES.get(place, "").split():
        assert getattr(module, name) is not None
    with pytest.raises((AttributeError, qd.OctantsError)):
        _ = module.Nothing


def test_places_are_attributes_too() -> None:
    program = "import octants as qd; print(qd.lang.exception.QuadrantsSyntaxError.__name__)"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert made.stdout == "OctantsSyntaxError\n", made.stderr


def test_questions_about_types_and_devices() -> None:
    from octants.lang.misc import get_host_arch_list, is_arch_supported, is_extension_supported
    from octants.lang.util import cook_dtype, has_paddle, to_numpy_type, to_quadrants_type

    assert get_host_arch_list() == [qd.cpu]
    assert is_arch_supported(qd.cpu)
    assert not is_arch_supported(qd.metal) or sys.platform == "darwin"
    assert is_extension_supported(qd.cpu, qd.extension.sparse)
    assert to_numpy_type(qd.f16) is np.float16
    assert to_quadrants_type(np.uint8) is qd.u8
    assert cook_dtype(float) is qd.f32
    assert not has_paddle()


def test_types_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from octants.lang.util import has_pytorch, to_pytorch_type, to_quadrants_type

    assert has_pytorch()
    assert to_pytorch_type(qd.u1) is torch.bool
    assert to_quadrants_type(torch.int64) is qd.i64
