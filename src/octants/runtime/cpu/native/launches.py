"""LLVM IR that launches kernels from Python, and interrupts them (see `assembly`)."""

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
_NUMBER = 8 * SYSTEM.index("launch")

TEXT = f"""\
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

; A function of Python: run rows of a table (see `ROW`), given as the addresses of the first one and
; of the end, without the global lock. It ends after a launch with a status, or at the end, and
; returns the number of rows that it ran, with the status in the lowest {STATUS_BITS} bits.
define ptr @octants_replay(ptr %self, ptr %arguments, i64 %count) {{
begin:
  %first = call ptr @argument(ptr %arguments, i64 0)
  %end = call ptr @argument(ptr %arguments, i64 1)
  %context = call ptr @argument(ptr %arguments, i64 2)
  %flag = call ptr @argument(ptr %arguments, i64 3)
  %interruptible = ptrtoint ptr %flag to i32
  %offset = call ptr @argument(ptr %arguments, i64 4)
  %later = ptrtoint ptr %offset to i64
  %thread = call ptr @PyEval_SaveThread()
  br label %loop
loop:
  %row = phi ptr [ %first, %begin ], [ %after_copy, %copy ], [ %after, %launch ]
  %done = phi i64 [ 0, %begin ], [ %copied, %copy ], [ %launched, %launch ]
  %is_end = icmp eq ptr %row, %end
  br i1 %is_end, label %finish, label %body
body:
  %kernel = load ptr, ptr %row
  %block_slot = getelementptr i64, ptr %row, i64 1
  %block = load ptr, ptr %block_slot
  %storage_slot = getelementptr i64, ptr %row, i64 2
  %storage = load ptr, ptr %storage_slot
  %size_slot = getelementptr i64, ptr %row, i64 3
  %size = load i64, ptr %size_slot
  %is_copy = icmp eq ptr %kernel, null
  br i1 %is_copy, label %copy, label %prepare
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %storage, i64 %size, i1 false)
  %after_copy = getelementptr i64, ptr %row, i64 {len(ROW)}
  %copied = add i64 %done, 1
  br label %loop
prepare:
  %number_slot = getelementptr i64, ptr %row, i64 4
  %captured = load i64, ptr %number_slot
  %number = add i64 %captured, %later
  %place = getelementptr i8, ptr %block, i64 {_NUMBER}
  store i64 %number, ptr %place
  %is_plain = icmp eq i64 %size, 0
  br i1 %is_plain, label %launch, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %storage, i8 0, i64 %size, i1 false)
  br label %launch
launch:
  %status = call i32 @launch(ptr %kernel, ptr %block, ptr %context, i32 %interruptible)
  %after = getelementptr i64, ptr %row, i64 {len(ROW)}
  %launched = add i64 %done, 1
  %is_silent = icmp eq i32 %status, 0
  br i1 %is_silent, label %loop, label %finish
finish:
  %count_done = phi i64 [ %done, %loop ], [ %launched, %launch ]
  %last = phi i32 [ 0, %loop ], [ %status, %launch ]
  call void @PyEval_RestoreThread(ptr %thread)
  %wide = zext i32 %last to i64
  %shifted = shl i64 %count_done, {STATUS_BITS}
  %both = or i64 %shifted, %wide
  %result = call ptr @PyLong_FromLongLong(i64 %both)
  ret ptr %result
}}

define internal ptr @argument(ptr %arguments, i64 %position) {{
  %slot = getelementptr ptr, ptr %arguments, i64 %position
  %object = load ptr, ptr %slot
  %value = call ptr @PyLong_AsVoidPtr(ptr %object)
  ret ptr %value
}}

; Run a kernel. Status: 1 if there are messages, a failure or an overflow, 2 if it was interrupted,
; 4 if the record buffers have become larger than they should be between launches.
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
  br i1 %is_much, label %free, label %check_guard
free:
  call void @octants_free_parts(ptr %context)
  br label %check_guard
check_guard:
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
  %record_buffers = load atomic i64, ptr &pool.record_buffer_bytes monotonic, align 8
  %kept = load i64, ptr &pool.record_buffer_kept
  %is_large = icmp sgt i64 %record_buffers, %kept
  %large = zext i1 %is_large to i32
  %high = shl i32 %large, 2
  %both = or i32 %low, %middle
  %status = or i32 %both, %high
  ret i32 %status
}}

; Set ranges of memory to zero, given a table of addresses and bytes.
define void @octants_clear(ptr %table, i64 %count) {{
begin:
  %is_empty = icmp eq i64 %count, 0
  br i1 %is_empty, label %exit, label %loop
loop:
  %number = phi i64 [ 0, %begin ], [ %next, %loop ]
  %position = shl i64 %number, 1
  %slot = getelementptr i64, ptr %table, i64 %position
  %address = load ptr, ptr %slot
  %size_slot = getelementptr i64, ptr %slot, i64 1
  %size = load i64, ptr %size_slot
  call void @llvm.memset.p0.i64(ptr %address, i8 0, i64 %size, i1 false)
  %next = add i64 %number, 1
  %is_done = icmp eq i64 %next, %count
  br i1 %is_done, label %exit, label %loop
exit:
  ret void
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
  %is_none = icmp eq ptr %context, null
  br i1 %is_none, label %exit, label %tell
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

; In the child of a fork, a launch of another thread is gone, and with it the context to interrupt.
define void @octants_after_fork() {{
  %context = load atomic ptr, ptr @guarded_context seq_cst, align 8
  %is_none = icmp eq ptr %context, null
  br i1 %is_none, label %exit, label %restore
restore:
  store atomic ptr null, ptr @guarded_context seq_cst, align 8
  %restored = call i32 @sigaction(i32 {INTERRUPT}, ptr &context.saved, ptr null)
  br label %exit
exit:
  ret void
}}
"""
