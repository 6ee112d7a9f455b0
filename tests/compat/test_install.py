"""Programs that say ``import quadrants``: each runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.golden_files import check_golden


def python(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OCTANTS_LOG_LEVEL": "error"}
    return subprocess.run(
        (sys.executable, *arguments),
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )


def run(program: str, folder: Path) -> str:
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = python("program.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


NAMES = """
    import sys
    import octants
    assert not [name for name in sys.modules if name.startswith("octants.compat")]
    import octants.compat
    octants.compat.install()
    octants.compat.install()
    assert "quadrants" not in sys.modules
    import importlib.util
    assert importlib.util.find_spec("quadrants") is not None

    import quadrants as qd
    import quadrants.math as tm
    import quadrants.types.primitive_types
    from quadrants.algorithms import sort, sort_scratch_slots
    from quadrants.lang import impl
    from quadrants.math import vec3

    assert qd.kernel is octants.kernel and qd.f32 is octants.f32
    assert tm is octants.math and vec3 is octants.math.vec3
    assert quadrants.types.primitive_types is octants.types.primitive_types
    assert quadrants.types.primitive_types.f32 is octants.f32
    assert octants.types.__spec__.name == "octants.types"
    assert qd.algorithms.sort is sort
    for name in dir(octants):
        if not name.startswith("_") and name not in ("init", "jax", "lang", "reset", "torch"):
            assert getattr(qd, name) is getattr(octants, name), name
            assert name in dir(qd), name
    import quadrants.tools.np2ply
    from quadrants.lang.exception import QuadrantsTypeError
    from quadrants.linalg import SparseMatrixBuilder
    from quadrants._snode.fields_builder import FieldsBuilder
    assert quadrants.tools.np2ply.PLYWriter is octants.tools.PLYWriter
    assert QuadrantsTypeError is octants.OctantsTypeError
    assert SparseMatrixBuilder is qd.linalg.SparseMatrixBuilder
    try:
        import quadrants.lang.nowhere
    except ModuleNotFoundError as error:
        assert error.name == "quadrants.lang.nowhere"
    else:
        raise AssertionError
"""


def test_names_lead_to_octants(tmp_path: Path) -> None:
    run(NAMES, tmp_path)


MATERIALISE = """
    import octants.compat
    octants.compat.install()
    import quadrants as qd
    from quadrants.lang import impl

    pending, calls = [], []
    materialize, clear = impl.PyQuadrants.materialize, impl.PyQuadrants.clear

    def fill_after(self):
        materialize(self)
        calls.append("materialize")
        filling, pending[:] = list(pending), []
        for field, value in filling:
            field.fill(value)
        if filling:
            self.prog.synchronize()

    def drop(self):
        clear(self)
        pending.clear()

    impl.PyQuadrants.materialize, impl.PyQuadrants.clear = fill_after, drop

    qd.init(arch=qd.cpu)
    a = qd.field(qd.f32, shape=())
    pending.append((a, 2.5))
    b = qd.field(qd.f32, shape=(2,))

    @qd.kernel
    def double():
        for i in b:
            b[i] = 2 * a[None]

    assert not calls
    double()
    assert b.to_numpy().tolist() == [5.0, 5.0]
    assert calls == ["materialize"]

    c = qd.field(qd.i32, shape=())
    pending.append((c, 7))
    assert c[None] == 7
    double()
    assert calls == ["materialize"] * 2

    pending.append((qd.field(qd.i32, shape=()), 1))
    qd.init(arch=qd.cpu)
    d = qd.field(qd.i32, shape=())
    assert d[None] == 0 and not pending
"""


def test_fills_that_wait_for_the_memory_of_fields(tmp_path: Path) -> None:
    run(MATERIALISE, tmp_path)


PRIVATE = """
    import logging
    import octants.compat
    octants.compat.install()
    import quadrants as qd

    qd.init(arch=qd.cpu, default_fp=qd.f64)
    a = qd.ndarray(qd.i32, shape=(2,))

    @qd.kernel
    def is_double(a: qd.types.ndarray()):
        for i in range(2):
            if qd.static(qd.lang.impl.get_runtime().default_fp == qd.f64):
                a[i] = 1
    is_double(a)
    assert a.to_numpy().tolist() == [1, 1]
    assert qd.lang.impl.get_runtime().default_ip is qd.i32
    assert qd.lang.impl.get_max_shared_memory_bytes(is_lowerbound_ok=True) >= 16 * 1024

    assert a._unwrap() is a and isinstance(a, qd.Tensor)
    a._tc = "torch's view"
    assert a._tc == "torch's view"
    f = qd.field(qd.i32, shape=(2,))
    f._tc = "another"
    assert f._unwrap()._tc == "another"

    flag = __debug__
    qd.lang._template_mapper.__builtins__["__debug__"] = not flag
    import builtins
    assert builtins.__debug__ is flag

    seen = []
    qd._logging.info = seen.append
    qd._logging.info("a")
    qd._logging.info = qd._logging._get_logging(qd._logging.INFO)
    logger = logging.getLogger("octants")
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logger.addHandler(handler)
    qd._logging.error("b")
    assert seen == ["a", "b"]
"""


def test_private_names_that_genesis_uses(tmp_path: Path) -> None:
    run(PRIVATE, tmp_path)


def test_quadrants_itself_was_imported_before(tmp_path: Path) -> None:
    program = """
        import sys, types
        sys.modules["quadrants"] = types.ModuleType("quadrants")
        import octants.compat
        try:
            octants.compat.install()
        except octants.OctantsRuntimeError as error:
            print(error)
        assert not octants.compat.is_installed()
    """
    check_golden("errors/OCT419_quadrants_is_imported", run(program, tmp_path).strip())


@pytest.mark.parametrize("is_module", [False, True])
def test_a_program_is_run_with_its_arguments(is_module: bool, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import quadrants as qd\n")
    (tmp_path / "program.py").write_text(
        "import sys\nfrom beside import qd\nimport octants\n"
        "assert qd.kernel is octants.kernel and __name__ == '__main__'\nprint(sys.argv[1:])\n"
    )
    what = ["-m", "program"] if is_module else ["program.py"]
    done = python("-m", "octants.compat", *what, "-x", "1", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['-x', '1']\n"), done.stderr


def test_usage() -> None:
    done = python("-m", "octants.compat")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m octants.compat")
