"""An overflow that is still pending when the process ends, or nearly: nothing aborts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, threading
import numpy as np
import octants as qd

x = y = None

@qd.kernel
def k(n: qd.i32):
    for i in x:
        v = x[i]
        for _ in range(n):
            v = qd.sin(v)
        y[i] = v

def begin(slots):
    global x, y
    qd.init(arch=qd.cpu, ad_stack_size=slots, log_level="error", cpu_max_num_threads=3)
    x, y = (qd.field(qd.f32, shape=5000, needs_grad=True) for _ in range(2))

def overflow():
    begin(4)
    k.grad(9)

overflow()
"""


def run(folder: Path, code: str, *options: str) -> tuple[int, str, str]:
    """The exit code of a program, what it printed, and what it said of errors."""
    path = folder / "program.py"
    path.write_text(PROGRAM + textwrap.dedent(code))
    process = subprocess.run(
        [sys.executable, *options, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


def test_the_process_ends_and_says_so(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "print('last line')")
    assert (code, out) == (0, "last line\n")
    assert err.count("OCT423") == 1
    assert "OctantsWarning" in err


def test_where_warnings_are_errors(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "print('last line')", "-W", "error")
    assert (code, out) == (0, "last line\n")
    assert err.count("OCT423") == 1


@pytest.mark.parametrize(
    ("last", "wanted"), [("raise KeyError('mine')", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4)]
)
def test_other_ends(tmp_path: Path, last: str, wanted: int) -> None:
    code, _, err = run(tmp_path, last)
    assert code == wanted
    assert ("KeyError: 'mine'" in err) == (wanted == 1)
    assert err.count("OCT423") == (wanted != 4)


def test_a_synchronisation_while_another_exception_is_on_its_way(tmp_path: Path) -> None:
    code, _, err = run(
        tmp_path,
        """
        try:
            raise KeyError("mine")
        finally:
            x.grad.to_numpy()
        """,
    )
    assert code == 1
    assert "KeyError: 'mine'" in err
    assert "During handling of the above exception" in err
    assert err.count("OCT423") == 1


@pytest.mark.parametrize("end", ["qd.reset()", "begin(0)", "qd.reset(); begin(9); k(9); k.grad(9)"])
@pytest.mark.parametrize("options", [(), ("-W", "error")])
def test_an_end_of_the_runtime(tmp_path: Path, end: str, options: tuple[str, ...]) -> None:
    code, out, err = run(
        tmp_path,
        f"""
        try:
            {end}
        except qd.OctantsWarning:
            begin(9)
        if {end != "qd.reset()"} or sys.warnoptions:
            qd.sync()
            y.grad.fill(1.0)
            k(9)
            k.grad(9)
            assert (x.grad.to_numpy() != 0).all()
        print("last line")
        """,
        *options,
    )
    assert (code, out) == (0, "last line\n"), err
    assert err.count("OCT423") == (not options)


def test_threads_that_overflow_while_the_process_ends(tmp_path: Path) -> None:
    code, out, err = run(
        tmp_path,
        """
        def work():
            while True:
                k.grad(9)

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(20):
            try:
                qd.sync()
            except qd.OctantsAssertionError:
                pass
        print("last line")
        """,
    )
    assert (code, out) == (0, "last line\n"), err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_has_its_own(tmp_path: Path) -> None:
    code, out, _ = run(
        tmp_path,
        """
        child = os.fork()
        try:
            qd.sync()
        except qd.OctantsAssertionError:
            print("raised", flush=True)
        qd.sync()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        else:
            os._exit(0)
        """,
    )
    assert (code, out.count("raised")) == (0, 2)
