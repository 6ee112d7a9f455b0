"""Native code that launches kernels from Python, and interrupts them (see `language`)."""

from __future__ import annotations

import importlib
from typing import Any

from octants.artifact import SYSTEM
from octants.runtime.cpu.native.privatised_sums import KEPT

_signal: Any = importlib.import_module("_signal")  # `signal` makes enumerations, which take long
INTERRUPT = int(_signal.SIGINT)

ROW = "entry", "block", "storage", "nbytes", "number"
"""The 8-byte words of a row of `octants_replay`: a launch with the parameter block at `block`,
`nbytes` at `storage` that are zeroed before it, and its number. Without an `entry` it is a copy of
`nbytes` from `storage` to `block`.
"""
STATUS_BITS = 3
_NUMBER = SYSTEM.index("launch")

VARIABLES = ("guarded_context",)
"""The launch that Ctrl-C shall stop: one of the main thread, so there is one at most."""

SOURCE = f"""
def argument(arguments, position):
    return PyLong_AsVoidPtr(arguments[position])

# A function of Python: run a kernel, given as integers, without the global lock.
def octants_call(self, arguments, count):
    kernel, block, context = argument(arguments, 0), argument(arguments, 1), argument(arguments, 2)
    interruptible = argument(arguments, 3)
    thread = PyEval_SaveThread()
    status = launch(kernel, block, context, interruptible)
    PyEval_RestoreThread(thread)
    return PyLong_FromLongLong(status)

# A function of Python: run rows of a table (see `ROW`), given as the addresses of the first one and
# of the end, without the global lock. It ends after a launch with a status, or at the end, and
# returns the number of rows that it ran, with the status in the lowest {STATUS_BITS} bits.
def octants_replay(self, arguments, count):
    row, end, context = argument(arguments, 0), argument(arguments, 1), argument(arguments, 2)
    interruptible, later = argument(arguments, 3), argument(arguments, 4)
    thread = PyEval_SaveThread()
    done = status = 0
    while row != end and status == 0:
        kernel, block, storage, nbytes = row[0], row[1], row[2], row[3]
        if kernel == 0:
            memcpy(block, storage, nbytes)
        else:
            block[{_NUMBER}] = row[4] + later
            if nbytes:
                memset(storage, 0, nbytes)
            status = launch(kernel, block, context, interruptible)
        row, done = row + {8 * len(ROW)}, done + 1
    PyEval_RestoreThread(thread)
    return PyLong_FromLongLong(done << {STATUS_BITS} | status)

# Run a kernel. Status: 1 if there are messages, a failure or an overflow, 2 if it was interrupted,
# 4 if the record buffers have become larger than they should be between launches.
def launch(kernel, block, context, interruptible):
    messages = context.messages
    block[0] = messages
    messages.cursor, messages.end, messages.count = 0, -1, 0
    messages.failed = messages.overflow_need = 0
    atomic_store(context.interrupted, 0, monotonic)
    context.interruptible, context.guarded = interruptible, 0
    kernel(block, context)
    if context.part_capacity > {KEPT}:
        octants_free_parts(context)
    if context.guarded:
        atomic_store(guarded_context, 0, seq_cst)
        sigaction({INTERRUPT}, context.saved, 0)
    speaks = (messages.count | messages.failed | messages.overflow_need) != 0
    pool, interrupted = context.pool, atomic_load(context.interrupted, monotonic)
    is_large = atomic_load(pool.record_buffer_bytes, monotonic) > pool.record_buffer_kept
    return speaks | interrupted << 1 | is_large << 2

# Set ranges of memory to zero, given a table of addresses and bytes.
def octants_clear(table, count):
    end = table + 16 * count
    while table != end:
        memset(table[0], 0, table[1])
        table += 16

# Work begins that may take long: put a handler before the one that is there.
def octants_guard(context):
    if context.guarded or not context.interruptible:
        return
    context.guarded = 1
    if context.changed[0] == 0:
        sigaction({INTERRUPT}, 0, context.saved)
        memcpy(context.changed, context.saved, 256)
        context.changed[0] = on_interrupt
    atomic_store(guarded_context, context, seq_cst)
    sigaction({INTERRUPT}, context.changed, context.saved)

def on_interrupt(signal, information, machine):
    context = atomic_load(guarded_context, seq_cst)
    if context:
        atomic_store(context.interrupted, 1, seq_cst)
        handler = context.saved[0]
        if handler != 0 and handler != 1:
            handler(signal, information, machine)

# In the child of a fork, a launch of another thread is gone, and with it the context to interrupt.
def octants_after_fork():
    context = atomic_load(guarded_context, seq_cst)
    if context:
        atomic_store(guarded_context, 0, seq_cst)
        sigaction({INTERRUPT}, context.saved, 0)
"""
