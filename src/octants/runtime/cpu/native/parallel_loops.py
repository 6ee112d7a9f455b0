"""LLVM IR of parallel loops: splits them into chunks, and assigns these (see `assembly`)."""

from __future__ import annotations

PARTS = 8  # chunks for each thread of a loop of even chunks
FIXED_CHUNKS = 128  # chunks of a loop whose order is fixed
FIXED_PARTS = 16  # chunks of such a loop if each has a privatised copy
SHARED_GRAINS = 2  # the least share of a thread; sharing less takes longer than running it
WAKING_GRAINS = 16  # a shorter loop is shared with spinning helpers, but wakes none

NONE, BY_WORKER, BY_CHUNK, SHARED = range(4)  # the kind of a worker's privatised copy

TEXT = f"""\
; Run a serial task that has a record buffer.
define void @octants_serial(ptr %context, ptr %task, ptr %parameters) {{
  call void @octants_guard(ptr %context)
  %own = load ptr, ptr &context.worker
  call void @begin_share(ptr %context, ptr %own)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 0, i64 1)
  ret void
}}

; Run a task that adds to no array over [lower, upper).
define void @octants_parallel_for(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %grain, i64 %tile) {{
  call void @run_loop(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %grain, i64 %tile, i64 0, i64 0, i64 0, i32 0)
  ret void
}}

; Run a task over [lower, upper): at once if it is small, on the pool if that is free, with as many
; helpers as have work that is worth it. Helpers that spin may always join; parked ones, which take
; some 50 us to come, are woken for long work.
; Ctrl-C is looked for between chunks, whose length is bounded for that; where the grain is 1, by
; the items. Chunks are whole tiles, but for the last one. For a task that adds to arrays, see
; `octants_parallel_sums`.
define internal void @run_loop(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %grain, i64 %tile, i64 %bytes, i64 %worth, i64 %width, i32 %flags) {{
  %some = icmp slt i64 %lower, %upper
  br i1 %some, label %measure, label %exit
measure:
  %worker = load ptr, ptr &context.worker
  %count = sub i64 %upper, %lower
  %few = call i64 @llvm.smax.i64(i64 %grain, i64 %tile)
  %is_small = icmp ule i64 %count, %few
  %is_light = icmp ugt i64 %grain, 1
  %is_brief = and i1 %is_small, %is_light
  br i1 %is_brief, label %small, label %guard
guard:
  call void @octants_guard(ptr %context)
  br i1 %is_small, label %small, label %large
small:
  call void @begin_share(ptr %context, ptr %worker)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %worker, \
i64 %lower, i64 %upper)
  ret void
large:
  %pool = load ptr, ptr &context.pool
  %threads = load i32, ptr &pool.threads
  %others = sext i32 %threads to i64
  %helpers = call i64 @helpers_worth_sharing(i64 %others, i64 %count, i64 %grain)
  %all = add i64 %helpers, 1
  %fixed_bit = and i32 %flags, 1
  %is_fixed = icmp ne i32 %fixed_bit, 0
  %has_parts = icmp ne i64 %bytes, 0
  %alternates = icmp ne i64 %width, 0
  %loose = mul i64 %all, {PARTS}
  %firm = select i1 %has_parts, i64 {FIXED_PARTS}, i64 {FIXED_CHUNKS}
  %pieces = select i1 %is_fixed, i64 %firm, i64 %loose
  %padded = add i64 %count, %pieces
  %before = sub i64 %padded, 1
  %even = udiv i64 %before, %pieces
  %quarter = lshr i64 %grain, 2
  %least = call i64 @llvm.smax.i64(i64 %quarter, i64 1)
  %enough = call i64 @llvm.smax.i64(i64 %even, i64 %least)
  %polled = shl i64 %grain, 6
  %bounded = call i64 @llvm.smin.i64(i64 %enough, i64 %polled)
  %polls = xor i1 %is_fixed, true
  %must_poll = and i1 %polls, %is_light
  %handy = select i1 %must_poll, i64 %bounded, i64 %enough
  %wide = call i64 @llvm.smax.i64(i64 %handy, i64 %width)
  %more = add i64 %wide, %tile
  %raised = sub i64 %more, 1
  %excess = urem i64 %raised, %tile
  %chunk = sub i64 %raised, %excess
  %to_last = add i64 %count, %chunk
  %last = sub i64 %to_last, 1
  %chunks = udiv i64 %last, %chunk
  store i64 %lower, ptr &context.sum_lower
  store i64 %chunk, ptr &context.sum_chunk
  %has_helpers = icmp sgt i64 %helpers, 0
  br i1 %is_fixed, label %fixed, label %free
free:
  br i1 %has_helpers, label %try, label %in_order
try:
  %got = call i32 @octants_acquire(ptr %pool)
  %is_ours = icmp ne i32 %got, 0
  br i1 %is_ours, label %ours, label %in_order
ours:
  %scarce = icmp slt i64 %chunks, %all
  %stuck = and i1 %alternates, %scarce
  br i1 %stuck, label %choose, label %part
part:
  br i1 %has_parts, label %ask, label %choose
ask:
  %given = call i1 @make_parts(ptr %context, i64 %others, i64 %bytes, i64 %worth)
  %by_worker = select i1 %given, i32 {BY_WORKER}, i32 {SHARED}
  br label %choose
fixed:
  br i1 %has_parts, label %ask_fixed, label %try_fixed
ask_fixed:
  %further = sub i64 %chunks, 1
  %given_fixed = call i1 @make_parts(ptr %context, i64 %further, i64 %bytes, i64 %worth)
  br i1 %given_fixed, label %try_fixed, label %in_order
try_fixed:
  %by_chunk = phi i32 [ {NONE}, %fixed ], [ {BY_CHUNK}, %ask_fixed ]
  br i1 %has_helpers, label %try_pool, label %choose
try_pool:
  %got_fixed = call i32 @octants_acquire(ptr %pool)
  br label %choose
choose:
  %mode = phi i32 [ {SHARED}, %ours ], [ {NONE}, %part ], [ %by_worker, %ask ], \
[ %by_chunk, %try_fixed ], [ %by_chunk, %try_pool ]
  %has_pool = phi i32 [ 1, %ours ], [ 1, %part ], [ 1, %ask ], [ 0, %try_fixed ], \
[ %got_fixed, %try_pool ]
  store i32 %mode, ptr &context.sum_mode
  call void @begin_share(ptr %context, ptr %worker)
  %is_shared = icmp eq i32 %mode, {SHARED}
  %is_unshared = xor i1 %is_shared, true
  %alternating = and i1 %alternates, %is_unshared
  %wraps_bit = and i32 %flags, 2
  %may_wrap = icmp ne i32 %wraps_bit, 0
  %wraps = and i1 %may_wrap, %alternating
  %whole = udiv i64 %count, %chunk
  %pairs = and i64 %whole, -2
  %paired = mul i64 %pairs, %chunk
  %ring = add i64 %lower, %paired
  %end = select i1 %wraps, i64 %ring, i64 %upper
  %wakes = call i32 @is_worth_waking(i64 %count, i64 %grain)
  %holds = icmp ne i32 %has_pool, 0
  %joining = select i1 %holds, i64 %helpers, i64 0
  %phases = select i1 %alternating, i64 2, i64 1
  %stride = mul i64 %phases, %chunk
  br label %phase
phase:
  %number = phi i64 [ 0, %choose ], [ %next_phase, %phase ]
  %skipped = mul i64 %number, %chunk
  %begin = add i64 %lower, %skipped
  call void @run_phase(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %end, \
i64 %chunk, i64 %stride, i64 %joining, i32 %wakes)
  %next_phase = add i64 %number, 1
  %again = icmp slt i64 %next_phase, %phases
  br i1 %again, label %phase, label %finish
finish:
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %end, i64 %upper, \
i64 %chunk, i64 %chunk)
  store i32 {NONE}, ptr &context.sum_mode
  store i64 0, ptr &worker.part
  br i1 %holds, label %release, label %exit
release:
  call void @octants_release(ptr %pool)
  ret void
in_order:
  call void @begin_share(ptr %context, ptr %worker)
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %chunk, i64 %chunk)
  ret void
exit:
  ret void
}}

; Every `stride` items a chunk of [begin, upper), with up to `helpers` of the pool.
define internal void @run_phase(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride, i64 %helpers, i32 %wakes) {{
  %shares = icmp ne i64 %helpers, 0
  br i1 %shares, label %share, label %alone
alone:
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride)
  ret void
share:
  call void @run_job(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride, i64 %helpers, i32 %wakes)
  ret void
}}

define internal void @run_strided(ptr %context, ptr %task, ptr %parameters, \
i64 %first, i64 %upper, i64 %chunk, i64 %stride) {{
entry:
  %own = load ptr, ptr &context.worker
  br label %next
next:
  %begin = phi i64 [ %first, %entry ], [ %following, %run ]
  %more = icmp slt i64 %begin, %upper
  br i1 %more, label %poll, label %exit
poll:
  %stops = call i1 @stops(ptr %context)
  br i1 %stops, label %exit, label %run
run:
  %full = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %upper)
  call void @take_part(ptr %context, ptr %own, i64 %begin)
  call void @run_items(ptr %context, ptr %task, ptr %parameters, ptr %own, i64 %begin, i64 %end)
  %following = add i64 %begin, %stride
  br label %next
exit:
  ret void
}}

define internal i64 @helpers_worth_sharing(i64 %most, i64 %count, i64 %grain) {{
  %share = mul i64 %grain, {SHARED_GRAINS}
  %shares = udiv i64 %count, %share
  %others = sub i64 %shares, 1
  %some = call i64 @llvm.smax.i64(i64 %others, i64 0)
  %few = call i64 @llvm.smin.i64(i64 %some, i64 %most)
  %is_heavy = icmp ule i64 %grain, 1
  %helpers = select i1 %is_heavy, i64 %most, i64 %few
  ret i64 %helpers
}}

define internal i32 @is_worth_waking(i64 %count, i64 %grain) {{
  %waking = mul i64 %grain, {WAKING_GRAINS}
  %is_long = icmp ugt i64 %count, %waking
  %is_heavy = icmp ule i64 %grain, 1
  %is_worth_it = or i1 %is_long, %is_heavy
  %wakes = zext i1 %is_worth_it to i32
  ret i32 %wakes
}}

; Run a chunk of [lower, upper) every `stride` items on the pool, which the launch has, with up to
; `helpers` of its threads.
define internal void @run_job(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %chunk, i64 %stride, i64 %helpers, i32 %wakes) {{
entry:
  %own = load ptr, ptr &context.worker
  %pool = load ptr, ptr &context.pool
  %most = trunc i64 %helpers to i32
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
  %allowed = phi i32 [ %most, %entry ], [ %fewer, %slice ]
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
