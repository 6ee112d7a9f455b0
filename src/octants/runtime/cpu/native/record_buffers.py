"""Native code of the workers' record buffers: how they grow, and what follows if memory runs out.

The system, or the limit of all record buffers together, may refuse memory to a record buffer. The
launch then takes the next of these steps until it works:

1. Fewer workers. The worker that failed leaves the job, and no chunks are handed out. When all
   workers have left and all record buffers are free, the launching thread runs the rest of their
   items alone. Half as many helpers as before go on with the other items.
2. Smaller shares. An item that fails alone runs again with a quarter of the share, which makes for
   shorter blocks and fewer checkpoints (see `abi`).
3. The least share, once no other launch holds a record buffer, or waiting for that takes too long.
   A failure now is an error.

A task returns the item at which it ended; that item has changed nothing yet, the ones before it are
complete. A task that cannot return it fails at once.
"""

from __future__ import annotations

import ctypes

from octants import abi
from octants.runtime.cpu.native.structures import Worker

SLACK = abi.RECORD_BUFFER_ALIGNMENT - 16
"""The most bytes of an allocation before its record buffer: allocations are at multiples of 16."""

PATIENCE = 10_000  # milliseconds that a launch waits for others that hold record buffers

_ALIGNMENT = abi.RECORD_BUFFER_ALIGNMENT

SOURCE = f"""
# Grow a record buffer to hold so many bytes, doubling it up to the share; if that fails, to just
# these. One record buffer grows at a time, so that no other one fails while this one asks for too
# much. An invalid position is a very large number.
def octants_grow(context, worker, bytes):
    pool = context.pool
    worker.need = bytes
    if unsigned_min(bytes, {abi.MAXIMUM_RECORD_BUFFER}) != bytes:
        return 0
    while not exchanges(pool.growing, 0, 1, acquire):
        pause()
    grown = 0
    if not pool.record_buffer_exact:
        generous = max(worker.capacity << 1, bytes) + 65535 & -65536
        grown = resize(pool, worker, min(generous, max(worker.share, bytes)))
    if not grown:
        grown = resize(pool, worker, bytes)
    atomic_store(pool.growing, 0, release)
    return grown

# The sum of all record buffers never passes the limit. A vector that crosses the end of a cache
# line takes two accesses, so a record buffer begins with a line, and moves if its allocation moves
# to another position in a line.
def resize(pool, worker, bytes):
    memory, capacity = worker.record_memory, worker.capacity
    growth = bytes - capacity
    if atomic_load(pool.record_buffer_bytes, monotonic) > pool.record_buffer_limit - growth:
        return 0
    old_offset = worker.record_buffer - memory
    memory = realloc(memory, bytes + {SLACK})
    if not memory:
        return 0
    buffer = memory + {_ALIGNMENT - 1} & -{_ALIGNMENT}
    if capacity and buffer - memory != old_offset:
        memmove(buffer, memory + old_offset, capacity)
    worker.record_memory, worker.record_buffer, worker.capacity = memory, buffer, bytes
    atomic_add(pool.record_buffer_bytes, growth, monotonic)
    return buffer

def octants_free_record_buffer(pool, worker):
    memory, capacity = worker.record_memory, worker.capacity
    worker.record_memory = worker.record_buffer = worker.capacity = 0
    atomic_sub(pool.record_buffer_bytes, capacity, monotonic)
    free(memory)

# A worker begins with a job, or with a part of the launch that is not shared.
def begin_share(context, worker):
    worker.share, worker.last = context.pool.record_buffer_share, 0

# Run items on a worker that shares nothing; again with smaller shares where memory is refused.
def run_items(context, task, parameters, worker, item, end):
    task(parameters, context, worker, item, end)
    while worker.failed:
        worker.failed, stopped = 0, worker.item
        if stops(context):
            return
        octants_free_record_buffer(context.pool, worker)
        relieve(context.pool)
        if stopped <= item:
            lower_share(worker)
            if worker.last:
                wait_for_others(context)
        item = stopped
        task(parameters, context, worker, item, end)

# Let record buffers be freed that no launch uses.
def relieve(pool):
    free_others = pool.relieve
    if free_others:
        free_others()

# Wait for the launches that hold record buffers. The caller holds none, so that they get what they
# need.
def wait_for_others(context):
    pool, waited = context.pool, 0
    while atomic_load(pool.record_buffer_bytes, monotonic) > 0 and waited < {PATIENCE}:
        if stops(context):
            return
        usleep(1000)
        relieve(pool)
        waited += 1

# A quarter of the share, or of what was asked for if that is less; the last one is of one byte.
def lower_share(worker):
    lower = max(unsigned_min(worker.share, worker.need) >> 2, 1)
    worker.share, worker.last = lower, lower == 1

# Run what workers have left of a job, after all have left it: on the launching thread, which
# has the only record buffer.
def run_left(pool, own):
    atomic_store(pool.refused, 0, monotonic)
    number = 0
    while number < pool.threads:
        octants_free_record_buffer(pool, helper(pool, number))
        number += 1
    octants_free_record_buffer(pool, own)
    run_left_of(pool, own, own)
    number = 0
    while number < pool.threads:
        run_left_of(pool, own, helper(pool, number))
        number += 1

def run_left_of(pool, own, worker):
    begin, end, context = worker.left, worker.left_end, pool.context
    worker.left = worker.left_end = 0
    if begin < end and not stops(context):
        take_part(context, own, begin)
        run_items(context, pool.task, pool.parameters, own, begin, end)

def helper(pool, number):
    return pool.workers + number * {ctypes.sizeof(Worker)}
"""
