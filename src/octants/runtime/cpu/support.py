"""The native part of the runtime, as LLVM IR: pool, launches, interrupts; tapes are in `tapes`.

In the text ``&pool.next`` is the address of a field (see `layout`) of what ``%pool`` points to.
"""

from __future__ import annotations

import ctypes
import importlib
import re
from typing import Any

from octants.runtime.cpu import tapes
from octants.runtime.cpu.layout import STRUCTURES
from octants.runtime.cpu.sums import KEPT, SUMS

WORKER_SPINS = 2000  # pauses before a helper parks: some 50 to 100 us
LAUNCH_SPINS = 2000  # pauses before a launch parks that waits for helpers
PARTS = 8  # chunks for each thread of an even loop
WAKING_GRAINS = 16  # what is less is shared with helpers that spin, but wakes none
STACK_BYTES = 4 << 20
_signal: Any = importlib.import_module("_signal")  # `signal` makes enumerations, which take long
INTERRUPT = int(_signal.SIGINT)
SET_MASK = int(getattr(_signal, "SIG_SETMASK", 2))

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
"""What it calls of the C library."""

PYTHON_SYMBOLS = (
    "PyEval_SaveThread PyEval_RestoreThread PyLong_AsVoidPtr PyLong_FromLongLong"
).split()
"""What it calls of Python."""

EXPORTS = (
    "octants_prepare octants_call octants_parallel_for octants_parallel_sums octants_serial"
    " octants_guard octants_grow octants_acquire octants_release octants_stop octants_free_tape"
    " octants_free_parts octants_after_fork"
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
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_LAUNCH = f"""\
; A function of Python: run a kernel, given as integers, without the global lock.
define ptr @octants_call(ptr %self, ptr %arguments, i64 %count) {{
  %kernel = call ptr @argument(ptr %arguments, i64 0)
  %block = call ptr @argument(ptr %arguments, i64 1)
  %context = call ptr @argument(ptr %arguments, i64 2)
  %flag = call ptr @argument(ptr %arguments, i64 3)
  %interruptible = ptrtoint ptr %flag to i32
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @launch(ptr %kernel, ptr %block, ptr %context, i32 %interruptible)
  call void @PyEval_RestoreThread(ptr %thread)
  %wide = zext i32 %status to i64
  %result = call ptr @PyLong_FromLongLong(i64 %wide)
  ret ptr %result
}}

define internal ptr @argument(ptr %arguments, i64 %position) {{
  %place = getelementptr ptr, ptr %arguments, i64 %position
  %object = load ptr, ptr %place
  %value = call ptr @PyLong_AsVoidPtr(ptr %object)
  ret ptr %value
}}

; Run a kernel. Status: 1 if there are messages, a failure or an overflow, 2 if it was interrupted,
; 4 if the tapes have become larger than they should be between launches.
define internal i32 @launch(ptr %kernel, ptr %block, ptr %context, i32 %interruptible) {{
  %messages = load ptr, ptr &context.messages
  store ptr %messages, ptr %block
  store i64 0, ptr &messages.cursor
  store i64 -1, ptr &messages.end
  store i64 0, ptr &messages.count
  store i32 0, ptr &messages.failed
  store i64 0, ptr &messages.overflow_need
  store atomic i32 0, ptr &context.interrupted monotonic, align 4
  store i32 %interruptible, ptr &context.interruptible
  store i32 0, ptr &context.guarded
  call void %kernel(ptr %block, ptr %context)
  %parts = load i64, ptr &context.part_capacity
  %is_much = icmp ugt i64 %parts, {KEPT}
  br i1 %is_much, label %free, label %look
free:
  call void @octants_free_parts(ptr %context)
  br label %look
look:
  %guarded = load i32, ptr &context.guarded
  %is_guarded = icmp ne i32 %guarded, 0
  br i1 %is_guarded, label %unguard, label %report
unguard:
  store atomic ptr null, ptr @guarded_context seq_cst, align 8
  %restored = call i32 @sigaction(i32 {INTERRUPT}, ptr &context.saved, ptr null)
  br label %report
report:
  %count = load i64, ptr &messages.count
  %failed = load i32, ptr &messages.failed
  %interrupted = load atomic i32, ptr &context.interrupted monotonic, align 4
  %need = load i64, ptr &messages.overflow_need
  %said = or i64 %count, %need
  %has_said = icmp ne i64 %said, 0
  %has_failed = icmp ne i32 %failed, 0
  %speaks = or i1 %has_said, %has_failed
  %low = zext i1 %speaks to i32
  %middle = shl i32 %interrupted, 1
  %pool = load ptr, ptr &context.pool
  %tapes = load atomic i64, ptr &pool.tape_bytes monotonic, align 8
  %kept = load i64, ptr &pool.tape_kept
  %is_large = icmp sgt i64 %tapes, %kept
  %large = zext i1 %is_large to i32
  %high = shl i32 %large, 2
  %both = or i32 %low, %middle
  %status = or i32 %both, %high
  ret i32 %status
}}

; The launch that Ctrl-C shall stop: one of the main thread, so there is one at most.
@guarded_context = internal global ptr null

; Work begins that may take long: put a handler before the one that is there.
define void @octants_guard(ptr %context) {{
  %interruptible = load i32, ptr &context.interruptible
  %guarded = load i32, ptr &context.guarded
  %unguarded = icmp eq i32 %guarded, 0
  %may = icmp ne i32 %interruptible, 0
  %shall = and i1 %unguarded, %may
  br i1 %shall, label %install, label %exit
install:
  store i32 1, ptr &context.guarded
  %handler = load ptr, ptr &context.changed
  %is_known = icmp ne ptr %handler, null
  br i1 %is_known, label %write, label %read
read:
  %found = call i32 @sigaction(i32 {INTERRUPT}, ptr null, ptr &context.saved)
  call void @llvm.memcpy.p0.p0.i64(ptr &context.changed, ptr &context.saved, i64 256, i1 false)
  store ptr @on_interrupt, ptr &context.changed
  br label %write
write:
  store atomic ptr %context, ptr @guarded_context seq_cst, align 8
  %written = call i32 @sigaction(i32 {INTERRUPT}, ptr &context.changed, ptr &context.saved)
  br label %exit
exit:
  ret void
}}

define internal void @on_interrupt(i32 %signal, ptr %information, ptr %machine) {{
  %context = load atomic ptr, ptr @guarded_context seq_cst, align 8
  %nobody = icmp eq ptr %context, null
  br i1 %nobody, label %exit, label %tell
tell:
  store atomic i32 1, ptr &context.interrupted seq_cst, align 4
  %handler = load ptr, ptr &context.saved
  %number = ptrtoint ptr %handler to i64
  %is_function = icmp ugt i64 %number, 1
  br i1 %is_function, label %pass, label %exit
pass:
  call void %handler(i32 %signal, ptr %information, ptr %machine)
  br label %exit
exit:
  ret void
}}

; In the child of a fork a launch of another thread is gone, and with it whom to tell.
define void @octants_after_fork() {{
  %context = load atomic ptr, ptr @guarded_context seq_cst, align 8
  %nobody = icmp eq ptr %context, null
  br i1 %nobody, label %exit, label %restore
restore:
  store atomic ptr null, ptr @guarded_context seq_cst, align 8
  %restored = call i32 @sigaction(i32 {INTERRUPT}, ptr &context.saved, ptr null)
  br label %exit
exit:
  ret void
}}
"""

_PARALLEL = f"""\
; Run a serial task that has a tape.
define void @octants_serial(ptr %context, ptr %task, ptr %parameters) {{
  call void @octants_guard(ptr %context)
  %own = load ptr, ptr &context.worker
  call void @begin_share(ptr %context, ptr %own)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 0, i64 1)
  ret void
}}

; Run a task over [lower, upper): at once if it is small, on the pool if that is free. Helpers that
; spin are always welcome; parked ones, which take some 50 us to come, are woken for long work.
; Ctrl-C is looked for between chunks, whose length is bounded for that; where the grain is 1, by
; the items. Chunks are whole tiles, but for the last one.
define void @octants_parallel_for(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %grain, i64 %tile) {{
  %some = icmp slt i64 %lower, %upper
  br i1 %some, label %measure, label %exit
measure:
  %count = sub i64 %upper, %lower
  %own = load ptr, ptr &context.worker
  %is_light = icmp ugt i64 %grain, 1
  %few_items = call i64 @llvm.smax.i64(i64 %grain, i64 %tile)
  %is_small = icmp ule i64 %count, %few_items
  br i1 %is_small, label %few, label %large
few:
  br i1 %is_light, label %small, label %single
single:
  call void @octants_guard(ptr %context)
  br label %small
small:
  call void @begin_share(ptr %context, ptr %own)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 %lower, i64 %upper)
  ret void
large:
  call void @octants_guard(ptr %context)
  %pool = load ptr, ptr &context.pool
  %helpers = load i32, ptr &pool.threads
  %wide = sext i32 %helpers to i64
  %all = add i64 %wide, 1
  %parts = mul i64 %all, {PARTS}
  %even = udiv i64 %count, %parts
  %quarter = lshr i64 %grain, 2
  %least = call i64 @llvm.smax.i64(i64 %quarter, i64 1)
  %enough = call i64 @llvm.smax.i64(i64 %even, i64 %least)
  %most = shl i64 %grain, 6
  %bounded = call i64 @llvm.smin.i64(i64 %enough, i64 %most)
  %some_items = select i1 %is_light, i64 %bounded, i64 %enough
  %rounded = add i64 %some_items, %tile
  %raised = sub i64 %rounded, 1
  %excess = urem i64 %raised, %tile
  %chunk = sub i64 %raised, %excess
  %has_helpers = icmp sgt i32 %helpers, 0
  br i1 %has_helpers, label %try, label %alone
try:
  %free = call i32 @octants_acquire(ptr %pool)
  %is_free = icmp ne i32 %free, 0
  br i1 %is_free, label %all_of_them, label %alone
alone:
  call void @begin_share(ptr %context, ptr %own)
  call void @run_alone(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, i64 %chunk)
  ret void
all_of_them:
  %wakes = call i32 @is_worth_waking(i64 %count, i64 %grain)
  call void @run_job(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %chunk, i64 %chunk, i32 %wakes)
  call void @octants_release(ptr %pool)
  ret void
exit:
  ret void
}}

define internal i32 @is_worth_waking(i64 %count, i64 %grain) {{
  %waking = mul i64 %grain, {WAKING_GRAINS}
  %is_long = icmp ugt i64 %count, %waking
  %is_heavy = icmp ule i64 %grain, 1
  %is_worth_it = or i1 %is_long, %is_heavy
  %wakes = zext i1 %is_worth_it to i32
  ret i32 %wakes
}}

; Run a chunk of [lower, upper) every `stride` items on the pool, which the launch has.
define internal void @run_job(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %chunk, i64 %stride, i32 %wakes) {{
entry:
  %own = load ptr, ptr &context.worker
  %pool = load ptr, ptr &context.pool
  %helpers = load i32, ptr &pool.threads
  store ptr %task, ptr &pool.task
  store ptr %parameters, ptr &pool.parameters
  store ptr %context, ptr &pool.context
  store i64 %upper, ptr &pool.upper
  store i64 %chunk, ptr &pool.chunk
  store i64 %stride, ptr &pool.stride
  store i32 %wakes, ptr &pool.wakes
  store atomic i64 %lower, ptr &pool.next monotonic, align 8
  br label %share
share:
  %allowed = phi i32 [ %helpers, %entry ], [ %fewer, %slice ]
  store i32 %allowed, ptr &pool.allowed
  call void @open(ptr %pool)
  call void @take_chunks(ptr %pool, ptr %own)
  call void @close(ptr %pool)
  %refused = load i32, ptr &pool.refused
  %was_refused = icmp ne i32 %refused, 0
  br i1 %was_refused, label %slice, label %exit
slice:
  %fewer = lshr i32 %allowed, 1
  call void @run_left(ptr %pool, ptr %own)
  %is_last = icmp eq i32 %allowed, 0
  br i1 %is_last, label %rest, label %share
rest:
  %next = load atomic i64, ptr &pool.next monotonic, align 8
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %next, i64 %upper, \
i64 %chunk, i64 %stride)
  br label %exit
exit:
  ret void
}}

define internal void @run_alone(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %chunk) {{
entry:
  %own = load ptr, ptr &context.worker
  br label %run
run:
  %begin = phi i64 [ %lower, %entry ], [ %end, %next ]
  %full = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %upper)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 %begin, i64 %end)
  %more = icmp slt i64 %end, %upper
  br i1 %more, label %next, label %exit
next:
  %stops = call i1 @stops(ptr %context)
  br i1 %stops, label %exit, label %run
exit:
  ret void
}}

; Chunks are taken in order, so that of all items that would fail the lowest one is always run.
define internal void @take_chunks(ptr %pool, ptr %worker) {{
  %task = load ptr, ptr &pool.task
  %parameters = load ptr, ptr &pool.parameters
  %context = load ptr, ptr &pool.context
  %upper = load i64, ptr &pool.upper
  %chunk = load i64, ptr &pool.chunk
  %stride = load i64, ptr &pool.stride
  call void @begin_share(ptr %context, ptr %worker)
  br label %next
next:
  %stops = call i1 @stops(ptr %context)
  %refused = load atomic i32, ptr &pool.refused monotonic, align 4
  %is_refused = icmp ne i32 %refused, 0
  %ends = or i1 %stops, %is_refused
  br i1 %ends, label %exit, label %take
take:
  %begin = atomicrmw add ptr &pool.next, i64 %stride monotonic
  %more = icmp slt i64 %begin, %upper
  br i1 %more, label %run, label %exit
run:
  %full = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %upper)
  call void @take_part(ptr %context, ptr %worker, i64 %begin)
  call void %task(ptr %parameters, ptr %context, ptr %worker, i64 %begin, i64 %end)
  %was_refused = load i64, ptr &worker.refused
  %is_done = icmp eq i64 %was_refused, 0
  br i1 %is_done, label %next, label %leave
leave:
  %item = load i64, ptr &worker.item
  store i64 0, ptr &worker.refused
  store i64 %item, ptr &worker.left
  store i64 %end, ptr &worker.left_end
  store atomic i32 1, ptr &pool.refused monotonic, align 4
  br label %exit
exit:
  store i64 0, ptr &worker.part
  ret void
}}

define internal i1 @stops(ptr %context) {{
  %messages = load ptr, ptr &context.messages
  %interrupted = load atomic i32, ptr &context.interrupted monotonic, align 4
  %failed = load atomic i32, ptr &messages.failed monotonic, align 4
  %either = or i32 %interrupted, %failed
  %stops = icmp ne i32 %either, 0
  ret i1 %stops
}}

define i32 @octants_acquire(ptr %pool) {{
  %pair = cmpxchg ptr &pool.busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %pair, 1
  %result = zext i1 %free to i32
  ret i32 %result
}}

define void @octants_release(ptr %pool) {{
  store atomic i32 0, ptr &pool.busy release, align 4
  ret void
}}
"""

_POOL = f"""\
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
  %turn = phi i32 [ 0, %entry ], [ %turns, %pause ]
  %state = load atomic i64, ptr &pool.state acquire, align 8
  %active = trunc i64 %state to i32
  %is_over = icmp eq i32 %active, 0
  br i1 %is_over, label %exit, label %count
count:
  %turns = add i32 %turn, 1
  %patient = icmp ult i32 %turns, {LAUNCH_SPINS}
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
  br i1 %shall, label %look, label %exit
look:
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
  %told = call i32 @pthread_cond_broadcast(ptr &pool.wake)
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
  br label %look
look:
  %last = phi i64 [ -1, %entry ], [ %last, %again ], [ %last, %lost ], [ %last, %awake ], \
[ %job, %left ]
  %turn = phi i32 [ 0, %entry ], [ %turns, %again ], [ 0, %lost ], [ 0, %awake ], [ 0, %left ]
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
  %turns = add i32 %turn, 1
  %patient = icmp ult i32 %turns, {WORKER_SPINS}
  br i1 %patient, label %again, label %park
again:
  PAUSE
  br label %look
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
  br label %look
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
  br label %look
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
  %told = call i32 @pthread_cond_signal(ptr &pool.done)
  %unlock = call i32 @pthread_mutex_unlock(ptr &pool.mutex)
  br label %left
left:
  br label %look
exit:
  ret ptr null
}}
"""


def support_text(architecture: str) -> str:
    """The whole module for an architecture as triples name it ("x86_64")."""
    text = _DECLARATIONS + _LAUNCH + tapes.TEXT + _PARALLEL + SUMS + _POOL
    pause = _PAUSES.get(architecture, "")
    if pause:
        arguments = "i32" if "hint" in pause else ""
        text += f"declare void {pause.split('(')[0]}({arguments})\n"
    return _expand(text.replace("  PAUSE\n", f"  call void {pause}\n" if pause else ""))


def _expand(text: str) -> str:
    """Put an address computation before each line that names fields."""
    lines: list[str] = []
    text = text.replace("SIZEOF_WORKER", str(ctypes.sizeof(STRUCTURES["worker"])))
    for number, line in enumerate(text.split("\n")):
        for name in dict.fromkeys(re.findall(r"&(\w+\.\w+)", line)):
            variable, field = name.split(".")
            offset = getattr(STRUCTURES[variable], field).offset
            place = f"%{name}.{number}"
            lines.append(f"  {place} = getelementptr i8, ptr %{variable}, i64 {offset}")
            line = re.sub(rf"&{re.escape(name)}\b", place, line)
        lines.append(line)
    return "\n".join(lines)
