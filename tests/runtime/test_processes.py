"""Forks, Ctrl-C, and the end of the process, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HEAD = """
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
import numpy as np
from tests.codegen.compiled import Compiled
from tests.runtime.kernels import endless, increment, spin
from octants.runtime.cpu import CpuDevice

device = CpuDevice(3)
data = {"x": np.zeros(100_000, np.int32)}
quick = Compiled(increment(), device)

def check(times):
    quick.run(data)
    assert (data["x"] == times * np.arange(1, 100_001)).all()
"""


def start(code: str) -> subprocess.Popen[str]:
    """A process that is killed if the test has not come to its end within two minutes."""
    path = [str(HERE.parents[1]), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(120, process.kill)
    watchdog.daemon = True
    watchdog.start()
    return process


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, (process.returncode, out, err)
    assert err == ""
    return out


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


@needs_fork
def test_fork_while_the_helpers_are_parked() -> None:
    out = finish(
        start(
            """
            check(1)
            time.sleep(0.2)
            child = os.fork()
            check(2)
            check(3)
            if child:
                assert os.waitpid(child, 0)[1] == 0
            assert device.pool.fields.started == 2
            print("done")
            """
        )
    )
    assert out == "done\ndone\n"


@needs_fork
def test_fork_while_a_launch_is_running() -> None:
    out = finish(
        start(
            """
            slow = Compiled(spin(), device, simd="never")
            work = {"turns": np.array(200_000_000), "out": np.zeros(6)}
            thread = threading.Thread(target=slow.run, args=(work,))
            thread.start()
            while not device.pool.fields.busy:
                time.sleep(0.001)
            child = os.fork()
            if child == 0:
                check(1)
                check(2)
                assert device.pool.fields.started == 2
                more = {"turns": np.array(10), "out": np.zeros(6)}
                slow.run(more)
                assert more["out"].tolist() == [5, 6, 7, 8, 9, 10]
                print("child", flush=True)
                os._exit(0)
            check(1)
            thread.join()
            assert work["out"][0] == 1e8, work
            assert os.waitpid(child, 0)[1] == 0
            print("done")
            """
        )
    )
    assert out == "child\ndone\n"


@needs_fork
def test_multiprocessing_by_fork() -> None:
    out = finish(
        start(
            """
            import multiprocessing
            check(1)
            runs = 1  # in this process; a worker may get more than one number
            def work(number):
                global runs
                runs += 1
                check(runs)
                return number
            with multiprocessing.get_context("fork").Pool(3) as pool:
                assert sorted(pool.map(work, range(3), 1)) == [0, 1, 2]
            check(2)
            print("done")
            """
        ),
    )
    assert out == "done\n"


INTERRUPTED = """
    slow = Compiled(endless({kind!r}), device)
    work = {{"x": np.zeros(5)}}
    for turn in range(3):
        try:
            print("ready", flush=True)
            slow.run(work)
            print("finished?")
        except KeyboardInterrupt:
            print("stopped", flush=True)
        check(turn + 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        print("ready", flush=True)
        time.sleep(30)
    except KeyboardInterrupt:
        print("slept")
"""


@pytest.mark.parametrize(
    "kind", ["while", "for", "light", "branch", "parallel", "item", "division"]
)
def test_ctrl_c_stops_a_kernel_and_leaves_a_usable_process(kind: str) -> None:
    process = start(INTERRUPTED.format(kind=kind))
    assert process.stdout is not None
    for turn in range(4):
        if turn:
            assert process.stdout.readline() == "stopped\n"
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
    assert finish(process) == "slept\n"


def test_ctrl_c_while_another_thread_runs_a_kernel() -> None:
    """The launch of the other thread goes on; the main thread gets its exception."""
    process = start(
        """
        slow = Compiled(spin(), device, simd="never")
        work = {"turns": np.array(300_000_000), "out": np.zeros(3)}
        thread = threading.Thread(target=slow.run, args=(work,))
        thread.start()
        try:
            print("ready", flush=True)
            time.sleep(30)
        except KeyboardInterrupt:
            print("main")
        thread.join()
        print(work["out"].tolist())
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert finish(process) == "main\n[150000000.0, 150000001.0, 150000002.0]\n"


def test_a_handler_of_the_program_is_left_alone() -> None:
    """Who handles SIGINT decides what it means: the kernel runs to its end, then the handler."""
    process = start(
        """
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(work["out"][0]))
        slow = Compiled(spin(), device, simd="never")
        work = {"turns": np.array(300_000_000), "out": np.zeros(3)}
        print("ready", flush=True)
        slow.run(work)
        print(work["out"].tolist(), seen)
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert finish(process) == "[150000000.0, 150000001.0, 150000002.0] [150000000.0]\n".replace(
        "[150000000.0]\n", "[np.float64(150000000.0)]\n"
    )


@pytest.mark.parametrize("kind", ["while", "parallel"])
def test_the_process_ends_though_a_daemon_thread_runs_a_kernel(kind: str) -> None:
    code = f"""
        slow = Compiled(endless({kind!r}), device)
        work = {{"x": np.zeros(5)}}
        threading.Thread(target=slow.run, args=(work,), daemon=True).start()
        time.sleep(0.2)
        check(1)
        print("bye")
    """
    assert finish(start(code)) == "bye\n"


def test_the_process_ends_with_helpers_spinning_and_kernels_alive() -> None:
    for _ in range(3):
        assert finish(start("check(1)\nprint('bye')")) == "bye\n"


def test_exit_inside_a_launch_of_many_threads() -> None:
    code = """
        def work():
            own = {"x": np.zeros(100_000, np.int32)}
            while True:
                quick.run(own)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        print("bye")
    """
    for _ in range(2):
        assert finish(start(code)) == "bye\n"


COMPILING = """
import os, sys, threading, time
import octants as qd
import llvmlite.binding as llvm
from octants.driver import state

qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
done = qd.field(qd.i32, ())
begun = threading.Event()

def slowly():
    begun.set()
    time.sleep(0.3)
    return 1

@qd.kernel
def slow():
    done[None] += qd.static(slowly())

@qd.kernel
def quick() -> qd.i32:
    return 7

thread = threading.Thread(target={target})
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    assert quick() == 7
    {in_child}
    print("child", flush=True)
    os._exit(0)
assert quick() == 7
assert os.waitpid(child, 0)[1] == 0
thread.join()
print("done")
"""


def _run_and_fork(target: str, in_child: str = "pass", head: str = "") -> str:
    code = textwrap.dedent(head) + COMPILING.format(target=target, in_child=in_child)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(code)
        run = f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"
        return finish(start(run))


@needs_fork
def test_fork_while_a_kernel_is_compiled() -> None:
    in_child = "done.fill(0); slow(); assert done[None] == 1; import gc; assert gc.isenabled()"
    assert _run_and_fork("slow", in_child) == "child\ndone\n"


@needs_fork
def test_fork_while_llvm_works_in_another_thread() -> None:
    head = """
    def hold():
        with llvm.ffi.lib._lock:
            begun.set()
            time.sleep(0.3)
    """
    assert _run_and_fork("hold", head=head) == "child\ndone\n"


@needs_fork
def test_fork_while_llvm_waits_for_the_thread_that_forks() -> None:
    head = """
    import os, threading
    import octants.locks_at_fork
    octants.locks_at_fork._MOST_SECONDS = 0.1
    has_forked = threading.Event()
    os.register_at_fork(after_in_parent=has_forked.set)
    def hold():
        with llvm.ffi.lib._lock:
            begun.set()
            has_forked.wait()
    """
    in_child = "done.fill(0); slow(); assert done[None] == 1"
    assert _run_and_fork("hold", in_child, head) == "child\ndone\n"


@needs_fork
def test_fork_while_a_lock_is_held() -> None:
    head = """
    def hold():
        from octants.data import current_runtime
        with current_runtime._runtime.lock:
            begun.set()
            time.sleep(0.3)
    """
    in_child = "x = qd.field(qd.i32, 3); x.fill(2); assert x[1] == 2"
    assert _run_and_fork("hold", in_child, head) == "child\ndone\n"
