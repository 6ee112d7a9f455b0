"""Modules and names that programs import from the peers; those that are not there say so."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import octants as ti
from octants.diagnostics.absent_names import ADVICE
from tests.golden_files import check_golden


@pytest.mark.parametrize(
    "name",
    "ad algorithms graph lang lang.impl lang.math lang.ops lang.simt math simt".split()
    + "tools types ui".split(),
)
def test_modules_are_importable(name: str) -> None:
    module = importlib.import_module(f"octants.{name}")
    found: Any = ti
    for part in name.split("."):
        found = getattr(found, part)
    assert found is module


def test_modules_of_two_names_are_one() -> None:
    math, lang_math, simt, lang_simt, block, lang_block = (
        importlib.import_module(f"octants.{name}")
        for name in "math lang.math simt lang.simt simt.block lang.simt.block".split()
    )
    assert ti.math is math is lang_math
    assert ti.simt is simt is lang_simt
    assert ti.simt.block is block is lang_block
    listed = {entry.name for entry in pkgutil.iter_modules(lang_simt.__path__)}
    assert all(f"octants.simt.{name}" in sys.modules for name in listed)


def test_math_is_one_set_of_functions() -> None:
    names: dict[str, Any] = {}
    exec("import octants.math as tm\nfrom octants.math import *", names)
    assert names["tm"].vec3 is names["vec3"] is ti.math.vec3
    assert names["clamp"] is ti.math.clamp
    assert names["pi"] == ti.math.pi
    assert not {"Any", "library_function", "Matrix"} & set(names)

    tm = names["tm"]
    ti.init(arch=ti.cpu, log_level="error")

    @ti.kernel
    def length() -> ti.f32:
        return tm.length(tm.vec3(2, 3, 6))

    assert length() == 7


def test_the_runtime_is_found_where_peers_have_it() -> None:
    from octants.lang import impl, ops

    ti.init(arch=ti.cpu, default_fp=ti.f64, log_level="error")
    assert impl.get_runtime().default_fp is impl.current_cfg().default_fp is ti.f64
    assert impl.grouped is ti.grouped
    assert impl.field is ti.field  # type: ignore[attr-defined]
    assert ops.sin is ti.sin
    assert ti.TaichiRuntimeError is ti.OctantsRuntimeError  # type: ignore[attr-defined]


def test_programs_can_ask_which_devices_there_are() -> None:
    from octants._lib import core

    assert ti._lib.core is core
    for arch, can_be_used in ((ti.cuda, core.with_cuda()), (ti.vulkan, core.with_vulkan())):
        try:
            ti.init(arch=arch, log_level="error")
        except ti.OctantsRuntimeError:
            assert not can_be_used
        else:
            assert can_be_used
    assert not core.with_opengl()


@pytest.mark.parametrize("name", [*(name for name in ADVICE if "*" not in name), "_lib.core.x"])
def test_absent_names_say_what_to_use(name: str) -> None:
    owner, _, last = f"octants.{name}".rpartition(".")
    module = importlib.import_module(owner)
    with pytest.raises(AttributeError, match=f"OCT480: Octants has no `{name}`\n  help: "):
        getattr(module, last)
    assert not hasattr(module, last)


@pytest.mark.parametrize(
    "text",
    [
        "from octants import Texture",
        "from octants.types import texture",
    ],
)
def test_absent_imports_say_what_to_use(text: str) -> None:
    with pytest.raises(ImportError, match="OCT481: Octants has no `.*`\n  help: "):
        exec(text)


def test_texts_of_errors() -> None:
    with pytest.raises(ti.OctantsAttributeError) as name:
        ti.get_addr  # type: ignore[attr-defined]  # noqa: B018
    check_golden("errors/OCT480_absent_name", str(name.value))
    with pytest.raises(ti.OctantsImportError) as module:
        importlib.import_module("octants.Mesh")
    check_golden("errors/OCT481_absent_module", str(module.value))


def test_names_that_nobody_has_are_ordinary_errors() -> None:
    with pytest.raises(AttributeError, match="^module 'octants' has no attribute 'no_such'$"):
        ti.no_such  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="No module named 'octants.no_such'"):
        importlib.import_module("octants.no_such")


def test_names_that_are_misspelt_suggest_one() -> None:
    with pytest.raises(AttributeError, match="no attribute 'feild': did you mean `field`?"):
        ti.feild  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'hesian': did you mean `hessian`?"):
        ti.ad.hesian  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("octants", ["GUI", "algorithms", "field", "linalg", "profiler", "tools"]),
        ("octants.ad", ["Tape", "checkpointed", "hessian", "jvp", "value_and_grad"]),
        ("octants.tools", ["imwrite"]),
    ],
)
def test_dir_lists_what_is_imported_when_it_is_used(module: str, names: list[str]) -> None:
    code = f"import {module} as module; print(*set({names}) - set(dir(module)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "\n"


def test_absent_names_in_kernels_say_what_to_use() -> None:
    ti.init(arch=ti.cpu, log_level="error")

    @ti.kernel
    def run():
        ti.mesh_local(1)

    with pytest.raises(ti.OctantsNameError, match="use ndarrays of vertices"):
        run()


def test_an_import_takes_no_more_than_programs_need() -> None:
    code = "import sys, octants; print(*(n for n in sys.modules if n.startswith('octants.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "octants.types" in loaded.stdout.split()
    late = {
        "octants.lang.impl",
        "octants.algorithms",
        "octants.compat",
        "octants.tools",
        "octants.ui",
    }
    assert not late & set(loaded.stdout.split())
