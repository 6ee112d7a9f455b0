"""Native code of the pool's threads: start, wait, wake and end (see `language`)."""

from __future__ import annotations

import importlib
from typing import Any

_signal: Any = importlib.import_module("_signal")  # `signal` makes enumerations, which take long
SET_MASK = int(getattr(_signal, "SIG_SETMASK", 2))
WORKER_SPINS = 2000  # pauses before a helper parks: some 50 to 100 us
LAUNCH_SPINS = 2000  # pauses before a launch parks that waits for helpers
STACK_BYTES = 4 << 20

_OPEN = -1 << 63  # the bit of `pool.state` that says that a job is open
_WORKERS = (1 << 32) - 1  # those that count the workers in it

SOURCE = f"""
def octants_prepare(pool):
    pthread_mutex_init(pool.mutex, 0)
    pthread_cond_init(pool.wake, 0)
    pthread_cond_init(pool.done, 0)

# Offer the job to the helpers, which are started by the first one that is worth it.
def open(pool):
    if pool.started < 0 and pool.wakes:
        start(pool)
    job = (atomic_load(pool.state, monotonic) >> 32) + 1
    atomic_store(pool.state, job << 32 | {_OPEN}, seq_cst)
    wake(pool)

# Take the job back, and wait for those that are still at it.
def close(pool):
    atomic_and(pool.state, {~_OPEN}, seq_cst)
    spins = 0
    while atomic_load(pool.state, acquire) & {_WORKERS}:
        spins += 1
        if spins < {LAUNCH_SPINS}:
            pause()
        else:
            pthread_mutex_lock(pool.mutex)
            atomic_store(pool.waiting, 1, seq_cst)
            while atomic_load(pool.state, seq_cst) & {_WORKERS}:
                pthread_cond_wait(pool.done, pool.mutex)
            atomic_store(pool.waiting, 0, seq_cst)
            pthread_mutex_unlock(pool.mutex)
            return

# Wake two parked helpers for a job that is worth it; each of them wakes two more.
def wake(pool):
    if pool.wakes and atomic_load(pool.sleepers, seq_cst) > 0:
        pthread_mutex_lock(pool.mutex)
        pthread_cond_signal(pool.wake)
        pthread_cond_signal(pool.wake)
        pthread_mutex_unlock(pool.mutex)

# Signals are for the threads of Python.
def start(pool):
    sigfillset(pool.all_signals)
    pthread_sigmask({SET_MASK}, pool.all_signals, pool.old_signals)
    pthread_attr_init(pool.attributes)
    pthread_attr_setstacksize(pool.attributes, {STACK_BYTES})
    pool.started = 0
    while pool.started < pool.threads:
        worker = helper(pool, pool.started)
        worker.pool = pool
        if pthread_create(worker.thread, pool.attributes, work, worker):
            break
        pool.started += 1
    pthread_attr_destroy(pool.attributes)
    pthread_sigmask({SET_MASK}, pool.old_signals, 0)

# End the helpers. The caller has the pool.
def octants_stop(pool):
    atomic_store(pool.stop, 1, seq_cst)
    pthread_mutex_lock(pool.mutex)
    pthread_cond_broadcast(pool.wake)
    pthread_mutex_unlock(pool.mutex)
    number = 0
    while number < pool.started:
        worker = helper(pool, number)
        pthread_join(worker.thread[0], 0)
        number += 1
    pool.started = -1
    atomic_store(pool.stop, 0, seq_cst)

# A helper: spins while jobs come quickly, parks when they do not. It enters each job once.
def work(worker):
    pool, last, spins = worker.pool, -1, 0
    while True:
        state = atomic_load(pool.state, acquire)
        if is_offered(state, last):
            spins = 0
            if (state & {_WORKERS}) >= pool.allowed:
                last = state >> 32
            elif exchanges(pool.state, state, state + 1, acq_rel):
                last = state >> 32
                wake(pool)
                take_chunks(pool, worker)
                leave(pool)
        elif atomic_load(pool.stop, monotonic):
            return 0
        elif spins + 1 < {WORKER_SPINS}:
            spins += 1
            pause()
        else:
            spins = 0
            park(pool, last)

# Whether a job is open, and another one than the last.
def is_offered(state, last):
    return state < 0 and state >> 32 != last

# A helper has done its part of a job.
def leave(pool):
    before = atomic_sub(pool.state, 1, seq_cst)
    if before >= 0 and (before & {_WORKERS}) == 1 and atomic_load(pool.waiting, seq_cst):
        pthread_mutex_lock(pool.mutex)
        pthread_cond_signal(pool.done)
        pthread_mutex_unlock(pool.mutex)

def park(pool, last):
    pthread_mutex_lock(pool.mutex)
    atomic_add(pool.sleepers, 1, seq_cst)
    state = atomic_load(pool.state, seq_cst)
    if not is_offered(state, last) and not atomic_load(pool.stop, seq_cst):
        pthread_cond_wait(pool.wake, pool.mutex)
    atomic_sub(pool.sleepers, 1, seq_cst)
    pthread_mutex_unlock(pool.mutex)
"""
