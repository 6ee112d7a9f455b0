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
from octants.runtime.cpu.native.parallel_loops import BY_CHUNK, BY_WORKER, SHARED

LIMIT = abi.PARTS_LIMIT
KEPT = 1 << 24  # bytes of privatised copies that stay allocated between launches

TEXT = f"""\
; As `octants_parallel_for`, for a task that adds to arrays. `bytes` is the size of a part, 0 if
; it needs none; `worth` the most bytes of all parts together that are worth it; `width` the least
; length of alternating chunks, 0 if none alternate. Flags: 1, the order is fixed; 2, the last
; chunk is a neighbour of the first one.
define void @octants_parallel_sums(ptr %context, ptr %task, ptr %parameters, \
i64 %lower, i64 %upper, i64 %grain, i64 %tile, i64 %bytes, i64 %worth, i64 %width, i32 %flags) {{
  store i64 0, ptr &context.part_count
  call void @run_loop(ptr %context, ptr %task, ptr %parameters, i64 %lower, i64 %upper, \
i64 %grain, i64 %tile, i64 %bytes, i64 %worth, i64 %width, i32 %flags)
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
