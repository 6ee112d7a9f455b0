"""LLVM IR of the workers' record buffers: how they grow, and what happens when memory runs out.

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

from octants import abi

SLACK = abi.RECORD_BUFFER_ALIGNMENT - 16
"""The most bytes of an allocation before its record buffer: allocations are at multiples of 16."""

PATIENCE = 10_000  # milliseconds that a launch waits for others that hold record buffers

TEXT = f"""\
; Grow a record buffer to hold %bytes, doubling it up to the share; if that fails, to just %bytes.
; One record buffer grows at a time, so that no other one fails while this one asks for too much. An
; invalid position is a very large number.
define ptr @octants_grow(ptr %context, ptr %worker, i64 %bytes) {{
  %pool = load ptr, ptr &context.pool
  store i64 %bytes, ptr &worker.need
  %wild = icmp ugt i64 %bytes, {abi.MAXIMUM_RECORD_BUFFER}
  br i1 %wild, label %refuse, label %lock
lock:
  %pair = cmpxchg ptr &pool.growing, i32 0, i32 1 acquire monotonic
  %held = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %held, label %choose, label %wait
wait:
  PAUSE
  br label %lock
choose:
  %flag = load i64, ptr &pool.record_buffer_exact
  %is_exact = icmp ne i64 %flag, 0
  br i1 %is_exact, label %exact, label %double
double:
  %capacity = load i64, ptr &worker.capacity
  %twice = shl i64 %capacity, 1
  %more = call i64 @llvm.umax.i64(i64 %twice, i64 %bytes)
  %page = add i64 %more, 65535
  %rounded = and i64 %page, -65536
  %share = load i64, ptr &worker.share
  %most = call i64 @llvm.umax.i64(i64 %share, i64 %bytes)
  %generous = call i64 @llvm.umin.i64(i64 %rounded, i64 %most)
  %first = call ptr @resize(ptr %pool, ptr %worker, i64 %generous)
  %refused = icmp eq ptr %first, null
  br i1 %refused, label %exact, label %unlock
exact:
  %second = call ptr @resize(ptr %pool, ptr %worker, i64 %bytes)
  br label %unlock
unlock:
  %grown = phi ptr [ %first, %double ], [ %second, %exact ]
  store atomic i32 0, ptr &pool.growing release, align 4
  ret ptr %grown
refuse:
  ret ptr null
}}

; The sum of all record buffers never passes the limit. A vector that crosses the end of a cache
; line takes two accesses, so a record buffer begins with a line, and moves if its allocation moves
; to another position in a line.
define internal ptr @resize(ptr %pool, ptr %worker, i64 %bytes) {{
  %capacity = load i64, ptr &worker.capacity
  %growth = sub i64 %bytes, %capacity
  %limit = load i64, ptr &pool.record_buffer_limit
  %most = sub i64 %limit, %growth
  %all = load atomic i64, ptr &pool.record_buffer_bytes monotonic, align 8
  %too_much = icmp sgt i64 %all, %most
  br i1 %too_much, label %refuse, label %ask
ask:
  %memory = load ptr, ptr &worker.record_memory
  %before_it = ptrtoint ptr %memory to i64
  %old = load i64, ptr &worker.record_buffer
  %old_offset = sub i64 %old, %before_it
  %all_bytes = add i64 %bytes, {SLACK}
  %found = call ptr @realloc(ptr %memory, i64 %all_bytes)
  %none = icmp eq ptr %found, null
  br i1 %none, label %refuse, label %align
align:
  %found_at = ptrtoint ptr %found to i64
  %beyond = add i64 %found_at, {abi.RECORD_BUFFER_ALIGNMENT - 1}
  %start = and i64 %beyond, -{abi.RECORD_BUFFER_ALIGNMENT}
  %offset = sub i64 %start, %found_at
  %new = getelementptr i8, ptr %found, i64 %offset
  %stays = icmp eq i64 %offset, %old_offset
  %is_empty = icmp eq i64 %capacity, 0
  %is_in_place = or i1 %stays, %is_empty
  br i1 %is_in_place, label %keep, label %move
move:
  %contents = getelementptr i8, ptr %found, i64 %old_offset
  call void @llvm.memmove.p0.p0.i64(ptr %new, ptr %contents, i64 %capacity, i1 false)
  br label %keep
keep:
  store ptr %found, ptr &worker.record_memory
  store ptr %new, ptr &worker.record_buffer
  store i64 %bytes, ptr &worker.capacity
  %before = atomicrmw add ptr &pool.record_buffer_bytes, i64 %growth monotonic
  ret ptr %new
refuse:
  ret ptr null
}}

define void @octants_free_record_buffer(ptr %pool, ptr %worker) {{
  %capacity = load i64, ptr &worker.capacity
  %memory = load ptr, ptr &worker.record_memory
  store ptr null, ptr &worker.record_memory
  store ptr null, ptr &worker.record_buffer
  store i64 0, ptr &worker.capacity
  %before = atomicrmw sub ptr &pool.record_buffer_bytes, i64 %capacity monotonic
  call void @free(ptr %memory)
  ret void
}}

; A worker begins with a job, or with a part of the launch that is not shared.
define internal void @begin_share(ptr %context, ptr %worker) {{
  %pool = load ptr, ptr &context.pool
  %share = load i64, ptr &pool.record_buffer_share
  store i64 %share, ptr &worker.share
  store i64 0, ptr &worker.last
  ret void
}}

; Run items on a worker that shares nothing; again with smaller shares where memory is refused.
define internal void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %worker, \
i64 %begin, i64 %end) {{
entry:
  br label %run
run:
  %item = phi i64 [ %begin, %entry ], [ %stopped, %relieved ]
  call void %task(ptr %parameters, ptr %context, ptr %worker, i64 %item, i64 %end)
  %refused = load i64, ptr &worker.failed
  %is_done = icmp eq i64 %refused, 0
  br i1 %is_done, label %exit, label %again
again:
  store i64 0, ptr &worker.failed
  %stopped = load i64, ptr &worker.item
  %stops = call i1 @stops(ptr %context)
  br i1 %stops, label %exit, label %relieve
relieve:
  %pool = load ptr, ptr &context.pool
  call void @octants_free_record_buffer(ptr %pool, ptr %worker)
  call void @relieve(ptr %pool)
  %has_gone_on = icmp sgt i64 %stopped, %item
  br i1 %has_gone_on, label %relieved, label %smaller
smaller:
  call void @lower_share(ptr %worker)
  %last = load i64, ptr &worker.last
  %is_last = icmp ne i64 %last, 0
  br i1 %is_last, label %wait, label %relieved
wait:
  call void @wait_for_others(ptr %context)
  br label %relieved
relieved:
  br label %run
exit:
  ret void
}}

; Let record buffers be freed that no launch uses.
define internal void @relieve(ptr %pool) {{
  %others = load ptr, ptr &pool.relieve
  %has_others = icmp ne ptr %others, null
  br i1 %has_others, label %ask, label %exit
ask:
  call void %others()
  br label %exit
exit:
  ret void
}}

; Wait for the launches that hold record buffers. The caller holds none, so that they get what they
; need.
define internal void @wait_for_others(ptr %context) {{
entry:
  %pool = load ptr, ptr &context.pool
  br label %poll
poll:
  %spins = phi i32 [ 0, %entry ], [ %next_spins, %sleep ]
  %bytes = load atomic i64, ptr &pool.record_buffer_bytes monotonic, align 8
  %others = icmp sgt i64 %bytes, 0
  %is_patient = icmp ult i32 %spins, {PATIENCE}
  %stops = call i1 @stops(ptr %context)
  %goes_on = xor i1 %stops, true
  %either = and i1 %others, %is_patient
  %waits = and i1 %either, %goes_on
  br i1 %waits, label %sleep, label %exit
sleep:
  %slept = call i32 @usleep(i32 1000)
  call void @relieve(ptr %pool)
  %next_spins = add i32 %spins, 1
  br label %poll
exit:
  ret void
}}

; A quarter of the share, or of what was asked for if that is less; the last one is of one byte.
define internal void @lower_share(ptr %worker) {{
  %share = load i64, ptr &worker.share
  %need = load i64, ptr &worker.need
  %known = call i64 @llvm.umin.i64(i64 %share, i64 %need)
  %quarter = lshr i64 %known, 2
  %lower = call i64 @llvm.umax.i64(i64 %quarter, i64 1)
  store i64 %lower, ptr &worker.share
  %is_least = icmp ule i64 %lower, 1
  %last = zext i1 %is_least to i64
  store i64 %last, ptr &worker.last
  ret void
}}

; Run what workers have left of a job, after all have left it: on the launching thread, which
; has the only record buffer.
define internal void @run_left(ptr %pool, ptr %own) {{
entry:
  store atomic i32 0, ptr &pool.refused monotonic, align 4
  %workers = load ptr, ptr &pool.workers
  %count = load i32, ptr &pool.threads
  br label %free
free:
  %k = phi i32 [ 0, %entry ], [ %following, %freed ]
  %has_more = icmp slt i32 %k, %count
  br i1 %has_more, label %freed, label %own_items
freed:
  %wide = sext i32 %k to i64
  %offset = mul i64 %wide, SIZEOF_WORKER
  %worker = getelementptr i8, ptr %workers, i64 %offset
  call void @octants_free_record_buffer(ptr %pool, ptr %worker)
  %following = add i32 %k, 1
  br label %free
own_items:
  call void @octants_free_record_buffer(ptr %pool, ptr %own)
  call void @run_left_of(ptr %pool, ptr %own, ptr %own)
  br label %next
next:
  %number = phi i32 [ 0, %own_items ], [ %number_after, %run ]
  %has_another = icmp slt i32 %number, %count
  br i1 %has_another, label %run, label %exit
run:
  %number_wide = sext i32 %number to i64
  %distance = mul i64 %number_wide, SIZEOF_WORKER
  %other = getelementptr i8, ptr %workers, i64 %distance
  call void @run_left_of(ptr %pool, ptr %own, ptr %other)
  %number_after = add i32 %number, 1
  br label %next
exit:
  ret void
}}

define internal void @run_left_of(ptr %pool, ptr %own, ptr %worker) {{
  %begin = load i64, ptr &worker.left
  %end = load i64, ptr &worker.left_end
  store i64 0, ptr &worker.left
  store i64 0, ptr &worker.left_end
  %context = load ptr, ptr &pool.context
  %stops = call i1 @stops(ptr %context)
  %some = icmp slt i64 %begin, %end
  %goes_on = xor i1 %stops, true
  %shall = and i1 %some, %goes_on
  br i1 %shall, label %run, label %exit
run:
  %task = load ptr, ptr &pool.task
  %parameters = load ptr, ptr &pool.parameters
  call void @take_part(ptr %context, ptr %own, i64 %begin)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 %begin, i64 %end)
  br label %exit
exit:
  ret void
}}
"""
