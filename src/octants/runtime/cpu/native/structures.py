"""The structures that the threads of the CPU runtime share, field by field.

Fields that several threads write are 128 bytes apart, so that they do not share a cache line.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char, c_int32, c_int64, c_void_p

from octants import abi

_LINE = 128


class Worker(Structure):
    """The state of one thread: its record buffer (see `abi`), and its handle if it belongs to the
    pool.
    """

    _fields_ = [
        ("record_buffer", c_void_p),
        ("capacity", c_int64),
        ("share", c_int64),
        ("failed", c_int64),
        ("item", c_int64),
        ("last", c_int64),
        ("part", c_int64),
        ("need", c_int64),  # the bytes that were refused
        ("left", c_int64),  # items from here to `left_end` are still to be done, alone
        ("left_end", c_int64),
        ("thread", c_void_p * 1),
        ("pool", c_void_p),
        ("record_memory", c_void_p),  # the allocation that the record buffer is in
        ("_padding", c_char * (_LINE - 104)),
    ]


class ThreadContext(Structure):
    """The context of a launch; one launch at a time uses it."""

    _fields_ = [
        ("parallel_for", c_void_p),
        ("grow", c_void_p),
        ("guard", c_void_p),
        ("worker", c_void_p),
        ("interrupted", c_int32),
        ("interruptible", c_int32),  # whether Ctrl-C may stop the launch
        ("serial", c_void_p),
        ("parallel_sums", c_void_p),
        ("parts", c_void_p),
        ("part_flags", c_void_p),
        ("part_bytes", c_int64),
        ("part_count", c_int64),
        ("pool", c_void_p),
        ("messages", c_void_p),
        ("guarded", c_int32),  # whether the signal handler is installed
        ("sum_mode", c_int32),  # what the part of a worker is, see `privatised_sums`
        ("sum_lower", c_int64),
        ("sum_chunk", c_int64),
        ("part_memory", c_void_p),
        ("part_capacity", c_int64),
        ("_padding", c_char * (2 * _LINE - 144)),
        ("main_worker", Worker),
        ("saved", c_char * 256),  # the `struct sigaction` from before
        ("changed", c_char * 256),
    ]


class Messages(Structure):
    """The head of a message buffer (see `abi`)."""

    _fields_ = [
        ("cursor", c_int64),
        ("end", c_int64),
        ("capacity", c_int64),
        ("count", c_int64),
        ("failed", c_int32),
        ("lock", c_int32),
        ("failure_id", c_int32),
        ("failure_task", c_int32),
        ("failure_item", c_int64),
        ("failure_values", c_int64 * abi.MAXIMUM_FAILURE_VALUES),
        ("overflow_need", c_int64),
        ("overflow_id", c_int32),
        ("overflow_task", c_int32),
        ("overflow_item", c_int64),
    ]


class Pool(Structure):
    """The job that is running, and the threads.

    `state` is one word, so that it changes atomically: the highest bit says that a job is open, the
    31 below count the jobs, the low half counts the workers in it.
    """

    _fields_ = [
        ("state", c_int64),
        ("_padding0", c_char * (_LINE - 8)),
        ("next", c_int64),  # the first item that no worker has taken
        ("_padding1", c_char * (_LINE - 8)),
        ("task", c_void_p),
        ("parameters", c_void_p),
        ("context", c_void_p),
        ("upper", c_int64),
        ("chunk", c_int64),
        ("stride", c_int64),  # from one chunk to the next
        ("_padding2", c_char * (_LINE - 48)),
        ("busy", c_int32),  # whether a launch has the pool
        ("threads", c_int32),  # how many helpers there shall be
        ("started", c_int32),  # how many there are; -1: none were started yet
        ("stop", c_int32),
        ("sleepers", c_int32),  # helpers that wait for `wake`
        ("waiting", c_int32),  # whether the launch waits for `done`
        ("allowed", c_int32),  # how many helpers may take part in the job
        ("refused", c_int32),  # whether a record buffer got no memory: no more chunks are assigned
        ("growing", c_int32),  # whether a record buffer is about to grow
        ("wakes", c_int32),  # whether the job is worth waking parked helpers
        ("record_buffer_bytes", c_int64),  # of all record buffers
        ("record_buffer_limit", c_int64),
        ("record_buffer_kept", c_int64),  # what may stay allocated between launches
        ("record_buffer_exact", c_int64),  # whether a record buffer grows by just what is needed
        ("record_buffer_share", c_int64),  # what the records of a worker's items should take
        ("relieve", c_void_p),  # void (): frees record buffers not in use; null: there is none
        ("workers", c_void_p),
        ("_padding3", c_char * (_LINE - 96)),
        ("mutex", c_char * _LINE),
        ("wake", c_char * _LINE),
        ("done", c_char * _LINE),
        ("attributes", c_char * _LINE),
        ("all_signals", c_char * _LINE),
        ("old_signals", c_char * _LINE),
    ]


STRUCTURES: dict[str, type[Structure]] = {
    "worker": Worker,
    "context": ThreadContext,
    "messages": Messages,
    "pool": Pool,
}


def aligned(structure: type[Structure], count: int = 1) -> tuple[ctypes.Array[c_char], int]:
    """Allocate zeroed structures at a cache line.

    Returns:
        The memory, to be kept alive, and the address of the first structure.
    """
    memory = ctypes.create_string_buffer(count * ctypes.sizeof(structure) + _LINE)
    return memory, ctypes.addressof(memory) + -ctypes.addressof(memory) % _LINE
