"""LLVM IR of parallel loops: splits them into chunks, and assigns these (see `assembly`)."""

from __future__ import annotations

PARTS = 8  # chunks for each thread of an even loop
WAKING_GRAINS = 16  # a shorter loop is shared with spinning helpers, but wakes none

TEXT = f"""\
; Run a serial task that has a record buffer.
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
  %was_refused = load i64, ptr &worker.failed
  %is_done = icmp eq i64 %was_refused, 0
  br i1 %is_done, label %next, label %leave
leave:
  %item = load i64, ptr &worker.item
  store i64 0, ptr &worker.failed
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
