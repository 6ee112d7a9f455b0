"""Assembles the native part of the CPU runtime, LLVM IR, from the texts of its modules.

In the texts, ``&pool.next`` is the address of a field (see `structures`) of what ``%pool`` points
to.
"""

from __future__ import annotations

import ctypes
import re

from octants.runtime.cpu.native import (
    launches,
    parallel_loops,
    privatised_sums,
    record_buffers,
    threads,
    windows_threads,
)
from octants.runtime.cpu.native.structures import STRUCTURES

_PAUSES = {
    "x86_64": "@llvm.x86.sse2.pause()",
    "i686": "@llvm.x86.sse2.pause()",
    "aarch64": "@llvm.aarch64.hint(i32 1)",
    "arm64": "@llvm.aarch64.hint(i32 1)",
}

SYMBOLS = (
    "pthread_create pthread_join pthread_sigmask sigfillset sigaction"
    " pthread_attr_init pthread_attr_setstacksize pthread_attr_destroy"
    " pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock"
    " pthread_cond_init pthread_cond_wait pthread_cond_signal pthread_cond_broadcast"
    " realloc free usleep"
).split()
"""The functions of the C library that it calls where threads are those of POSIX."""

PYTHON_SYMBOLS = (
    "PyEval_SaveThread PyEval_RestoreThread PyLong_AsVoidPtr PyLong_FromLongLong"
).split()
"""The functions of Python that it calls."""

EXPORTS = (
    "octants_prepare octants_call octants_replay octants_parallel_for octants_parallel_sums"
    " octants_serial octants_guard octants_grow octants_acquire octants_release octants_stop"
    " octants_free_record_buffer octants_free_parts octants_after_fork octants_clear"
).split()

_DECLARATIONS = """\
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare i32 @usleep(i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def symbols(system: str) -> list[str]:
    """The functions of the system that it calls, on a system as in `sys.platform`."""
    return windows_threads.SYMBOLS if system == "win32" else SYMBOLS


def support_text(architecture: str, system: str = "") -> str:
    """The module's text for an architecture as in a target triple ("x86_64").

    ``system`` is one as in `sys.platform`: Windows has no POSIX threads, and gets them.
    """
    parts = [launches, record_buffers, parallel_loops, privatised_sums, threads]
    declarations = _DECLARATIONS
    if system == "win32":
        parts.append(windows_threads)
        known = tuple(f"@{name}(" for name in windows_threads.DEFINED)
        lines = declarations.splitlines(keepends=True)
        declarations = "".join(line for line in lines if not any(name in line for name in known))
    text = declarations + "".join(part.TEXT for part in parts)
    pause = _PAUSES.get(architecture, "")
    if pause:
        arguments = "i32" if "hint" in pause else ""
        text += f"declare void {pause.split('(')[0]}({arguments})\n"
    return _expand(text.replace("  PAUSE\n", f"  call void {pause}\n" if pause else ""))


def _expand(text: str) -> str:
    """Insert address computations before each line that names fields."""
    lines: list[str] = []
    text = text.replace("SIZEOF_WORKER", str(ctypes.sizeof(STRUCTURES["worker"])))
    for number, line in enumerate(text.split("\n")):
        for name in dict.fromkeys(re.findall(r"&(\w+\.\w+)", line)):
            variable, field = name.split(".")
            offset = getattr(STRUCTURES[variable], field).offset
            address = f"%{name}.{number}"
            lines.append(f"  {address} = getelementptr i8, ptr %{variable}, i64 {offset}")
            line = re.sub(rf"&{re.escape(name)}\b", address, line)
        lines.append(line)
    return "\n".join(lines)
