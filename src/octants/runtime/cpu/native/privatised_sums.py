"""LLVM IR that lets workers add to one array without atomics.

Workers add plainly where no other worker does. If neighbours conflict, chunks with even numbers run
first, then those with odd numbers, so that neighbours never run at the same time. If the target is
privatised, the thread of the launch adds to it directly, and each other worker adds to a copy,
which is zeroed on first use. Generated code adds the copies to the target afterwards.

A loop of a *fixed* order is split into chunks in a way that does not depend on the threads, and
each chunk but the first has a copy. Where copies would take too much memory, such a loop runs in
order on one thread; the workers of other loops add atomically.
"""

from __future__ import annotations

from octants import abi
from octants.runtime.cpu.native.parallel_loops import PARTS

FIXED_CHUNKS = 128  # chunks of a loop whose order is fixed
FIXED_PARTS = 16  # chunks of such a loop if each has a privatised copy
LIMIT = abi.PARTS_LIMIT
KEPT = 1 << 24  # bytes of privatised copies that stay allocated between launches

NONE, BY_WORKER, BY_CHUNK, SHARED = range(4)  # the kind of a worker's copy

TEXT = f"""\
; As `octants_parallel_for`, for a task that adds to arrays. `bytes` is the size of a part, 0 if
; it needs none; `worth` the most bytes of all parts together that are worth it; `width` the least
; length of alternating chunks, 0 if none alternate. Flags: 1, the order is fixed; 2, the last
; chunk is a neighbour of the first one.
define void @octants_parallel_sums(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %grain, i64 %tile, i64 %bytes, i64 %worth, i64 %width, i32 %flags) {{
  store i64 0, ptr &context.part_count
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
  %helpers = load i32, ptr &pool.threads
  %others = sext i32 %helpers to i64
  %all = add i64 %others, 1
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
  %has_helpers = icmp sgt i32 %helpers, 0
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
  %phases = select i1 %alternating, i64 2, i64 1
  %stride = mul i64 %phases, %chunk
  br label %phase
phase:
  %number = phi i64 [ 0, %choose ], [ %next_phase, %phase ]
  %skipped = mul i64 %number, %chunk
  %begin = add i64 %lower, %skipped
  call void @run_phase(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %end, \
i64 %chunk, i64 %stride, i32 %has_pool, i32 %wakes)
  %next_phase = add i64 %number, 1
  %again = icmp slt i64 %next_phase, %phases
  br i1 %again, label %phase, label %finish
finish:
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %end, i64 %upper, \
i64 %chunk, i64 %chunk)
  store i32 {NONE}, ptr &context.sum_mode
  store i64 0, ptr &worker.part
  %holds = icmp ne i32 %has_pool, 0
  br i1 %holds, label %release, label %exit
release:
  call void @octants_release(ptr %pool)
  ret void
in_order:
  call void @begin_share(ptr %context, ptr %worker)
  call void @run_alone(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, i64 %chunk)
  ret void
exit:
  ret void
}}

; Every `stride` items a chunk of [begin, upper), on the pool or not.
define internal void @run_phase(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride, i32 %has_pool, i32 %wakes) {{
  %shares = icmp ne i32 %has_pool, 0
  br i1 %shares, label %share, label %alone
alone:
  call void @run_strided(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride)
  ret void
share:
  call void @run_job(ptr %context, ptr %task, ptr %parameters, i64 %begin, i64 %upper, \
i64 %chunk, i64 %stride, i32 %wakes)
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

; Give a worker the part to which it adds in the chunk that begins at an item.
define internal void @take_part(ptr %context, ptr %worker, i64 %begin) {{
  %mode = load i32, ptr &context.sum_mode
  switch i32 %mode, label %exit [ i32 {BY_WORKER}, label %own
                                  i32 {BY_CHUNK}, label %cut
                                  i32 {SHARED}, label %shared ]
shared:
  store i64 {abi.PART_SHARED}, ptr &worker.part
  br label %exit
own:
  %launching = load ptr, ptr &context.worker
  %is_own = icmp eq ptr %worker, %launching
  br i1 %is_own, label %exit, label %helper
helper:
  %pool = load ptr, ptr &context.pool
  %first_worker = load ptr, ptr &pool.workers
  %worker_address = ptrtoint ptr %worker to i64
  %origin = ptrtoint ptr %first_worker to i64
  %distance = sub i64 %worker_address, %origin
  %helper_number = sdiv i64 %distance, SIZEOF_WORKER
  br label %find
cut:
  %lower = load i64, ptr &context.sum_lower
  %chunk = load i64, ptr &context.sum_chunk
  %position = sub i64 %begin, %lower
  %piece = sdiv i64 %position, %chunk
  %piece_number = sub i64 %piece, 1
  %is_first = icmp slt i64 %piece_number, 0
  br i1 %is_first, label %target, label %find
target:
  store i64 0, ptr &worker.part
  br label %exit
find:
  %number = phi i64 [ %helper_number, %helper ], [ %piece_number, %cut ]
  %flags = load ptr, ptr &context.part_flags
  %flag = getelementptr i8, ptr %flags, i64 %number
  %bytes = load i64, ptr &context.part_bytes
  %offset = mul i64 %number, %bytes
  %parts = load ptr, ptr &context.parts
  %part = getelementptr i8, ptr %parts, i64 %offset
  %address = ptrtoint ptr %part to i64
  store i64 %address, ptr &worker.part
  %used = load i8, ptr %flag
  %is_used = icmp ne i8 %used, 0
  br i1 %is_used, label %exit, label %zero
zero:
  store i8 1, ptr %flag
  call void @llvm.memset.p0.i64(ptr %part, i8 0, i64 %bytes, i1 false)
  br label %exit
exit:
  ret void
}}

; Memory for so many parts, behind a byte for each that says whether it is used.
define internal i1 @make_parts(ptr %context, i64 %count, i64 %bytes, i64 %worth) {{
  %most = call i64 @llvm.smin.i64(i64 %worth, i64 {LIMIT})
  %each = add i64 %bytes, 63
  %rounded = and i64 %each, -64
  %too_large = icmp sgt i64 %rounded, %most
  br i1 %too_large, label %refuse, label %multiply
multiply:
  %all = mul i64 %count, %rounded
  %too_much = icmp sgt i64 %all, %most
  br i1 %too_much, label %refuse, label %measure
measure:
  %flags = add i64 %count, 127
  %head = and i64 %flags, -64
  %total = add i64 %head, %all
  %capacity = load i64, ptr &context.part_capacity
  %old = load ptr, ptr &context.part_memory
  %fits = icmp ule i64 %total, %capacity
  br i1 %fits, label %lay_out, label %ask
ask:
  %new = call ptr @realloc(ptr %old, i64 %total)
  %none = icmp eq ptr %new, null
  br i1 %none, label %refuse, label %keep
keep:
  store ptr %new, ptr &context.part_memory
  store i64 %total, ptr &context.part_capacity
  br label %lay_out
lay_out:
  %memory = load ptr, ptr &context.part_memory
  %parts = getelementptr i8, ptr %memory, i64 %head
  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 %head, i1 false)
  store ptr %memory, ptr &context.part_flags
  store ptr %parts, ptr &context.parts
  store i64 %rounded, ptr &context.part_bytes
  store i64 %count, ptr &context.part_count
  ret i1 true
refuse:
  ret i1 false
}}

define void @octants_free_parts(ptr %context) {{
  %memory = load ptr, ptr &context.part_memory
  store ptr null, ptr &context.part_memory
  store i64 0, ptr &context.part_capacity
  call void @free(ptr %memory)
  ret void
}}
"""
