"""LLVM IR of the pool's threads: start, wait, wake and end (see `assembly`)."""

from __future__ import annotations

import importlib
from typing import Any

_signal: Any = importlib.import_module("_signal")  # `signal` makes enumerations, which take long
SET_MASK = int(getattr(_signal, "SIG_SETMASK", 2))
WORKER_SPINS = 2000  # pauses before a helper parks: some 50 to 100 us
LAUNCH_SPINS = 2000  # pauses before a launch parks that waits for helpers
STACK_BYTES = 4 << 20

TEXT = f"""\
define void @octants_prepare(ptr %pool) {{
  %mutex = call i32 @pthread_mutex_init(ptr &pool.mutex, ptr null)
  %wake = call i32 @pthread_cond_init(ptr &pool.wake, ptr null)
  %done = call i32 @pthread_cond_init(ptr &pool.done, ptr null)
  ret void
}}

; Offer the job to the helpers, which are started by the first one that is worth it.
define internal void @open(ptr %pool) {{
  %started = load i32, ptr &pool.started
  %wakes = load i32, ptr &pool.wakes
  %is_new = icmp slt i32 %started, 0
  %is_worth_it = icmp ne i32 %wakes, 0
  %starts = and i1 %is_new, %is_worth_it
  br i1 %starts, label %start, label %offer
start:
  call void @start(ptr %pool)
  br label %offer
offer:
  %old = load atomic i64, ptr &pool.state monotonic, align 8
  %job = lshr i64 %old, 32
  %next = add i64 %job, 1
  %shifted = shl i64 %next, 32
  %open = or i64 %shifted, -9223372036854775808
  store atomic i64 %open, ptr &pool.state seq_cst, align 8
  call void @wake(ptr %pool)
  ret void
}}

; Take the job back, and wait for those that are still at it.
define internal void @close(ptr %pool) {{
entry:
  %old = atomicrmw and ptr &pool.state, i64 9223372036854775807 seq_cst
  br label %spin
spin:
  %spins = phi i32 [ 0, %entry ], [ %next_spins, %pause ]
  %state = load atomic i64, ptr &pool.state acquire, align 8
  %active = trunc i64 %state to i32
  %is_over = icmp eq i32 %active, 0
  br i1 %is_over, label %exit, label %count
count:
  %next_spins = add i32 %spins, 1
  %patient = icmp ult i32 %next_spins, {LAUNCH_SPINS}
  br i1 %patient, label %pause, label %park
pause:
  PAUSE
  br label %spin
park:
  %locked = call i32 @pthread_mutex_lock(ptr &pool.mutex)
  store atomic i32 1, ptr &pool.waiting seq_cst, align 4
  br label %check
check:
  %now = load atomic i64, ptr &pool.state seq_cst, align 8
  %left = trunc i64 %now to i32
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %leave, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr &pool.done, ptr &pool.mutex)
  br label %check
leave:
  store atomic i32 0, ptr &pool.waiting seq_cst, align 4
  %unlocked = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  br label %exit
exit:
  ret void
}}

; Wake two parked helpers for a job that is worth it; each of them wakes two more.
define internal void @wake(ptr %pool) {{
  %wakes = load i32, ptr &pool.wakes
  %shall = icmp ne i32 %wakes, 0
  br i1 %shall, label %check, label %exit
check:
  %sleepers = load atomic i32, ptr &pool.sleepers seq_cst, align 4
  %some = icmp sgt i32 %sleepers, 0
  br i1 %some, label %signal, label %exit
signal:
  %locked = call i32 @pthread_mutex_lock(ptr &pool.mutex)
  %first = call i32 @pthread_cond_signal(ptr &pool.wake)
  %second = call i32 @pthread_cond_signal(ptr &pool.wake)
  %unlocked = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  br label %exit
exit:
  ret void
}}

; Signals are for the threads of Python.
define internal void @start(ptr %pool) {{
  %filled = call i32 @sigfillset(ptr &pool.all_signals)
  %blocked = call i32 @pthread_sigmask(i32 {SET_MASK}, ptr &pool.all_signals, ptr &pool.old_signals)
  %attributes = call i32 @pthread_attr_init(ptr &pool.attributes)
  %sized = call i32 @pthread_attr_setstacksize(ptr &pool.attributes, i64 {STACK_BYTES})
  %wanted = load i32, ptr &pool.threads
  %workers = load ptr, ptr &pool.workers
  store i32 0, ptr &pool.started
  br label %next
next:
  %number = load i32, ptr &pool.started
  %more = icmp slt i32 %number, %wanted
  br i1 %more, label %create, label %finish
create:
  %wide = sext i32 %number to i64
  %offset = mul i64 %wide, SIZEOF_WORKER
  %worker = getelementptr i8, ptr %workers, i64 %offset
  store ptr %pool, ptr &worker.pool
  %refused = call i32 @pthread_create(ptr &worker.thread, ptr &pool.attributes, ptr @work, \
ptr %worker)
  %created = icmp eq i32 %refused, 0
  br i1 %created, label %count, label %finish
count:
  %one_more = add i32 %number, 1
  store i32 %one_more, ptr &pool.started
  br label %next
finish:
  %destroyed = call i32 @pthread_attr_destroy(ptr &pool.attributes)
  %unblocked = call i32 @pthread_sigmask(i32 {SET_MASK}, ptr &pool.old_signals, ptr null)
  ret void
}}

; End the helpers. The caller has the pool.
define void @octants_stop(ptr %pool) {{
entry:
  store atomic i32 1, ptr &pool.stop seq_cst, align 4
  %locked = call i32 @pthread_mutex_lock(ptr &pool.mutex)
  %status = call i32 @pthread_cond_broadcast(ptr &pool.wake)
  %unlocked = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  %started = load i32, ptr &pool.started
  %workers = load ptr, ptr &pool.workers
  br label %next
next:
  %number = phi i32 [ 0, %entry ], [ %following, %join ]
  %more = icmp slt i32 %number, %started
  br i1 %more, label %join, label %exit
join:
  %wide = sext i32 %number to i64
  %offset = mul i64 %wide, SIZEOF_WORKER
  %worker = getelementptr i8, ptr %workers, i64 %offset
  %thread = load ptr, ptr &worker.thread
  %joined = call i32 @pthread_join(ptr %thread, ptr null)
  %following = add i32 %number, 1
  br label %next
exit:
  store i32 -1, ptr &pool.started
  store atomic i32 0, ptr &pool.stop seq_cst, align 4
  ret void
}}

; A helper: spins while jobs come quickly, parks when they do not. It enters each job once.
define internal ptr @work(ptr %worker) {{
entry:
  %pool = load ptr, ptr &worker.pool
  br label %poll
poll:
  %last = phi i64 [ -1, %entry ], [ %last, %again ], [ %last, %lost ], [ %last, %awake ], \
[ %job, %left ]
  %spins = phi i32 [ 0, %entry ], [ %next_spins, %again ], [ 0, %lost ], [ 0, %awake ], [ 0, %left ]
  %state = load atomic i64, ptr &pool.state acquire, align 8
  %job = lshr i64 %state, 32
  %is_open = icmp slt i64 %state, 0
  %is_other = icmp ne i64 %job, %last
  %is_new = and i1 %is_open, %is_other
  br i1 %is_new, label %ask, label %idle
idle:
  %stop = load atomic i32, ptr &pool.stop monotonic, align 4
  %goes_on = icmp eq i32 %stop, 0
  br i1 %goes_on, label %count, label %exit
count:
  %next_spins = add i32 %spins, 1
  %patient = icmp ult i32 %next_spins, {WORKER_SPINS}
  br i1 %patient, label %again, label %park
again:
  PAUSE
  br label %poll
park:
  %locked = call i32 @pthread_mutex_lock(ptr &pool.mutex)
  %one_more = atomicrmw add ptr &pool.sleepers, i32 1 seq_cst
  %now = load atomic i64, ptr &pool.state seq_cst, align 8
  %job_now = lshr i64 %now, 32
  %opened = icmp slt i64 %now, 0
  %changed = icmp ne i64 %job_now, %last
  %called = and i1 %opened, %changed
  %stop_now = load atomic i32, ptr &pool.stop seq_cst, align 4
  %stopped = icmp ne i32 %stop_now, 0
  %stays = or i1 %called, %stopped
  br i1 %stays, label %awake, label %sleep
sleep:
  %slept = call i32 @pthread_cond_wait(ptr &pool.wake, ptr &pool.mutex)
  br label %awake
awake:
  %one_less = atomicrmw sub ptr &pool.sleepers, i32 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  br label %poll
ask:
  %inside = trunc i64 %state to i32
  %allowed = load i32, ptr &pool.allowed
  %may = icmp slt i32 %inside, %allowed
  br i1 %may, label %join, label %left
join:
  %entered = add i64 %state, 1
  %pair = cmpxchg ptr &pool.state, i64 %state, i64 %entered acq_rel monotonic
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %run, label %lost
lost:
  br label %poll
run:
  call void @wake(ptr %pool)
  call void @take_chunks(ptr %pool, ptr %worker)
  %before = atomicrmw sub ptr &pool.state, i64 1 seq_cst
  %is_last = icmp sge i64 %before, 0
  %active = trunc i64 %before to i32
  %alone = icmp eq i32 %active, 1
  %ends = and i1 %is_last, %alone
  %waiting = load atomic i32, ptr &pool.waiting seq_cst, align 4
  %awaited = icmp ne i32 %waiting, 0
  %tells = and i1 %ends, %awaited
  br i1 %tells, label %tell, label %left
tell:
  %lock = call i32 @pthread_mutex_lock(ptr &pool.mutex)
  %status = call i32 @pthread_cond_signal(ptr &pool.done)
  %unlock = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  br label %left
left:
  br label %poll
exit:
  ret ptr null
}}
"""
