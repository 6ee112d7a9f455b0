"""The native part of the CPU runtime, in the language of `language`: its parts, and its symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.deferred_import import Deferred
from octants.runtime.cpu.native import (
    launches,
    parallel_loops,
    privatised_sums,
    record_buffers,
    threads,
    windows_threads,
)

if TYPE_CHECKING:
    from octants.runtime.cpu.native import language
else:
    language = Deferred("octants.runtime.cpu.native.language")

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


def symbols(system: str) -> list[str]:
    """The functions of the system that it calls, on a system as in `sys.platform`."""
    return windows_threads.SYMBOLS if system == "win32" else SYMBOLS


def support_text(architecture: str, system: str = "") -> str:
    """The module's LLVM IR for an architecture as in a target triple ("x86_64").

    ``system`` is one as in `sys.platform`: Windows has no POSIX threads, and gets them.
    """
    parts = [launches, record_buffers, parallel_loops, privatised_sums, threads]
    if system == "win32":
        parts.append(windows_threads)
    source = "".join(part.SOURCE for part in parts)
    return language.translate(source, architecture, launches.VARIABLES)
