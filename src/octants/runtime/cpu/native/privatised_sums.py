"""Native code that lets workers add to one array without atomics (see `language`).

Workers add plainly where no other worker does. If neighbours conflict, chunks with even numbers run
first, then those with odd numbers, so that neighbours never run at the same time. If the target is
privatised, the thread of the launch adds to it directly, and each other worker adds to a copy,
which is zeroed on first use. Generated code adds the copies to the target afterwards.

A loop of a *fixed* order is split into chunks in a way that does not depend on the threads, and
each chunk but the first has a copy. Where copies would take too much memory, such a loop runs in
order on one thread; the workers of other loops add atomically.
"""

from __future__ import annotations

import ctypes

from octants import abi
from octants.runtime.cpu.native.parallel_loops import BY_CHUNK, BY_WORKER, SHARED
from octants.runtime.cpu.native.structures import Worker

LIMIT = abi.PARTS_LIMIT
KEPT = 1 << 24  # bytes of privatised copies that stay allocated between launches

SOURCE = f"""
# As `octants_parallel_for`, for a task that adds to arrays. `bytes` is the size of a part, 0 if
# it needs none; `worth` the most bytes of all parts together that are worth it; `width` the least
# length of alternating chunks, 0 if none alternate. Flags: 1, the order is fixed; 2, the last
# chunk is a neighbour of the first one.
def octants_parallel_sums(
    context, task, parameters, lower, upper, grain, tile, bytes, worth, width, flags
):
    context.part_count = 0
    run_loop(context, task, parameters, lower, upper, grain, tile, bytes, worth, width, flags)

# Give a worker the part to which it adds in the chunk that begins at an item.
def take_part(context, worker, begin):
    mode = context.sum_mode
    if mode == {SHARED}:
        worker.part = {abi.PART_SHARED}
        return
    if mode == {BY_WORKER} and worker != context.worker:
        number = (worker - context.pool.workers) // {ctypes.sizeof(Worker)}
    elif mode == {BY_CHUNK}:
        number = (begin - context.sum_lower) // context.sum_chunk - 1
        if number < 0:
            worker.part = 0
            return
    else:
        return
    part, flag = context.parts + number * context.part_bytes, context.part_flags + number
    worker.part = part
    if not byte(flag):
        memset(flag, 1, 1)
        memset(part, 0, context.part_bytes)

# Memory for so many parts, behind a byte for each that says whether it is used.
def make_parts(context, count, bytes, worth):
    most, each = min(worth, {LIMIT}), bytes + 63 & -64
    if each > most or count * each > most:
        return 0
    head = count + 127 & -64
    total = head + count * each
    if total > context.part_capacity:
        memory = realloc(context.part_memory, total)
        if not memory:
            return 0
        context.part_memory, context.part_capacity = memory, total
    memory = context.part_memory
    memset(memory, 0, head)
    context.part_flags, context.parts = memory, memory + head
    context.part_bytes, context.part_count = each, count
    return 1

def octants_free_parts(context):
    memory = context.part_memory
    context.part_memory = context.part_capacity = 0
    free(memory)
"""
