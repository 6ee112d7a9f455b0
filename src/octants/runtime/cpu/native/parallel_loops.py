"""Native code of parallel loops: splits them into chunks, and assigns these (see `language`)."""

from __future__ import annotations

PARTS = 8  # chunks for each thread of a loop of even chunks
FIXED_CHUNKS = 128  # chunks of a loop whose order is fixed
FIXED_PARTS = 16  # chunks of such a loop if each has a privatised copy
SHARED_GRAINS = 2  # the least share of a thread; sharing less takes longer than running it
WAKING_GRAINS = 16  # a shorter loop is shared with spinning helpers, but wakes none

NONE, BY_WORKER, BY_CHUNK, SHARED = range(4)  # the kind of a worker's privatised copy

SOURCE = f"""
# Run a serial task that has a record buffer.
def octants_serial(context, task, parameters):
    octants_guard(context)
    begin_share(context, context.worker)
    run_items(context, task, parameters, context.worker, 0, 1)

# Run a task that adds to no array over [lower, upper).
def octants_parallel_for(context, task, parameters, lower, upper, grain, tile):
    run_loop(context, task, parameters, lower, upper, grain, tile, 0, 0, 0, 0)

# Run a task over [lower, upper): at once if it is small, on the pool if that is free, with as many
# helpers as have work that is worth it. Helpers that spin may always join; parked ones, which take
# some 50 us to come, are woken for long work.
# Ctrl-C is looked for between chunks, whose length is bounded for that; where the grain is 1, by
# the items. Chunks are whole tiles, but for the last one. For a task that adds to arrays, see
# `octants_parallel_sums`.
def run_loop(
    context, task, parameters, lower, upper, grain, tile, bytes, worth, width, flags
):
    if lower >= upper:
        return
    worker, pool, count = context.worker, context.pool, upper - lower
    is_small, is_light = count <= max(grain, tile), grain > 1
    if not (is_small and is_light):
        octants_guard(context)
    begin_share(context, worker)
    if is_small:
        run_items(context, task, parameters, worker, lower, upper)
        return
    others = pool.threads
    helpers = helpers_worth_sharing(others, count, grain)
    is_fixed, has_parts = flags & 1, bytes != 0
    pieces = (helpers + 1) * {PARTS}
    if is_fixed:
        pieces = {FIXED_PARTS} if has_parts else {FIXED_CHUNKS}
    chunk = max((count + pieces - 1) // pieces, max(grain >> 2, 1))
    if is_light and not is_fixed:
        chunk = min(chunk, grain << 6)
    chunk = max(chunk, width) + tile - 1
    chunk -= chunk % tile
    chunks = (count + chunk - 1) // chunk
    context.sum_lower, context.sum_chunk = lower, chunk
    mode = {NONE}
    if is_fixed:
        is_in_order = has_parts and not make_parts(context, chunks - 1, bytes, worth)
        has_pool = helpers and not is_in_order and octants_acquire(pool)
        if has_parts:
            mode = {BY_CHUNK}
    else:
        has_pool = helpers and octants_acquire(pool)
        is_in_order = not has_pool
        if has_pool and width and chunks <= helpers:
            mode = {SHARED}
        elif has_pool and has_parts:
            mode = {BY_WORKER} if make_parts(context, others, bytes, worth) else {SHARED}
    if is_in_order:
        run_strided(context, task, parameters, lower, upper, chunk, chunk)
        return
    context.sum_mode = mode
    alternates, end = width and mode != {SHARED}, upper
    if alternates and flags & 2:
        end = lower + (count // chunk & -2) * chunk
    wakes, phases = is_worth_waking(count, grain), 2 if alternates else 1
    begin = lower
    while begin < lower + phases * chunk:
        if has_pool:
            run_job(context, task, parameters, begin, end, chunk, phases * chunk, helpers, wakes)
        else:
            run_strided(context, task, parameters, begin, end, chunk, phases * chunk)
        begin += chunk
    run_strided(context, task, parameters, end, upper, chunk, chunk)
    context.sum_mode, worker.part = {NONE}, 0
    if has_pool:
        octants_release(pool)

# Run a chunk of [begin, upper) every `stride` items on the thread of the launch.
def run_strided(context, task, parameters, begin, upper, chunk, stride):
    worker = context.worker
    while begin < upper and not stops(context):
        take_part(context, worker, begin)
        run_items(context, task, parameters, worker, begin, min(begin + chunk, upper))
        begin += stride

def helpers_worth_sharing(most, count, grain):
    if grain <= 1:
        return most
    return min(max(count // (grain * {SHARED_GRAINS}) - 1, 0), most)

def is_worth_waking(count, grain):
    return grain <= 1 or count > grain * {WAKING_GRAINS}

# The same on the pool, which the launch has, with up to `allowed` of its threads.
def run_job(context, task, parameters, lower, upper, chunk, stride, allowed, wakes):
    worker, pool = context.worker, context.pool
    pool.task, pool.parameters, pool.context = task, parameters, context
    pool.upper, pool.chunk, pool.stride, pool.wakes = upper, chunk, stride, wakes
    atomic_store(pool.next, lower, monotonic)
    while True:
        pool.allowed = allowed
        open(pool)
        take_chunks(pool, worker)
        close(pool)
        if not pool.refused:
            return
        run_left(pool, worker)
        if allowed == 0:
            break
        allowed = allowed >> 1
    following = atomic_load(pool.next, monotonic)
    run_strided(context, task, parameters, following, upper, chunk, stride)

# Chunks are taken in order, so that of all items that would fail the lowest one is always run.
def take_chunks(pool, worker):
    task, parameters, context = pool.task, pool.parameters, pool.context
    upper, chunk, stride = pool.upper, pool.chunk, pool.stride
    begin_share(context, worker)
    while not stops(context) and not atomic_load(pool.refused, monotonic):
        begin = atomic_add(pool.next, stride, monotonic)
        if begin >= upper:
            break
        end = min(begin + chunk, upper)
        take_part(context, worker, begin)
        task(parameters, context, worker, begin, end)
        if worker.failed:
            worker.failed, worker.left, worker.left_end = 0, worker.item, end
            atomic_store(pool.refused, 1, monotonic)
            break
    worker.part = 0

def stops(context):
    interrupted = atomic_load(context.interrupted, monotonic)
    return interrupted | atomic_load(context.messages.failed, monotonic)

def octants_acquire(pool):
    return exchanges(pool.busy, 0, 1, acquire)

def octants_release(pool):
    atomic_store(pool.busy, 0, release)
"""
