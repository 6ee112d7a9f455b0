"""The layout of the memory that compiled code and the runtime share: offsets in bytes.

A kernel's entry is ``void entry(ptr parameters, ptr context)``. The parameter block is laid out by
`artifact.ParameterLayout`. The context is the launch's own; compiled code reads these words of it:

    parallel_for  void (ptr context, ptr task, ptr parameters, i64 lower, i64 upper, i64 grain,
                  i64 tile) runs `task` over [lower, upper) on all threads, at least `grain` items
                  at a time, and a multiple of `tile` but for the last ones
    grow          ptr (ptr context, ptr worker, i64 bytes): the worker's record buffer, grown to so
                  many bytes, or null if memory is refused
    parallel_sums void (ptr context, ptr task, ptr parameters, i64 lower, i64 upper, i64 grain,
                  i64 tile, i64 bytes, i64 worth, i64 width, i32 flags), the same for a task that
                  adds to arrays; see `runtime.cpu.native.privatised_sums`
    guard         void (ptr context), called before work that may take long: lets Ctrl-C stop it
    worker        ptr: the worker of the calling thread
    interrupted   i32: not zero when the launch shall end; polled by loops
    parts         ptr: after a loop, the parts that workers have added to; so many bytes from one to
                  the next, so many of them, and for each a byte at `part_flags` that says whether
                  it was used
    serial        void (ptr context, ptr task, ptr parameters) runs a serial task that records

A task is ``void task(ptr parameters, ptr context, ptr worker, i64 begin, i64 end)``. A worker has
these words; no two threads share one at a time:

    record_buffer ptr: its record buffer, and
    capacity      i64: the bytes that the record buffer can hold
    share         i64: the bytes that the records of its work items should take
    failed        i64: 1 if a task ended early for lack of memory; then
    item          i64: is the first work item that is not done: it has changed nothing yet
    last          i64: not zero where a lack of memory is a failure at once
    part          i64: the address of its part, 0 where it adds plainly to the targets themselves,
                  `PART_SHARED` where it has to do so atomically
"""

from __future__ import annotations

CONTEXT_PARALLEL_FOR = 0
CONTEXT_GROW = 8
CONTEXT_GUARD = 16
CONTEXT_WORKER = 24
CONTEXT_INTERRUPTED = 32
CONTEXT_SERIAL = 40
CONTEXT_PARALLEL_SUMS = 48
CONTEXT_PARTS = 56
CONTEXT_PART_FLAGS = 64
CONTEXT_PART_BYTES = 72
CONTEXT_PART_COUNT = 80

WORKER_RECORD_BUFFER = 0
WORKER_CAPACITY = 8
WORKER_SHARE = 16
WORKER_FAILED = 24
WORKER_ITEM = 32
WORKER_LAST = 40
WORKER_PART = 48
MAXIMUM_RECORD_BUFFER = 1 << 60
"""More bytes than any record buffer has: a larger need is refused, so no position overflows."""

RECORD_BUFFER_ALIGNMENT = 64
"""Where the record buffer of a worker begins, in bytes: with a cache line."""

PART_SHARED = -1
PARTS_LIMIT = 1 << 28
"""The most bytes of all parts of a loop."""

PART_ALIGNMENT = 64
"""Where each of the arrays in a part begins, in bytes."""

# The message buffer: a header, then what was printed. A printed message is a word with its id in
# the low and its task in the high half, a word with the work item, and a word for each value:
# integers extended to 64 bits, floats as f64. Messages are written to `cursor` and up, which counts
# words and runs on when the buffer is full; `end` is the least cursor at which one did not fit. The
# first failure is separate: that of the lowest work item of the first task that has one. So is the
# worst overflow of a record buffer: that of the largest need, of the first task and lowest work
# item that has it. Other work items go on after it.
MESSAGES_CURSOR = 0
MESSAGES_END = 8
MESSAGES_CAPACITY = 16
MESSAGES_COUNT = 24
MESSAGES_FAILED = 32  # i32: 1 once something failed; the launch ends after the task
MESSAGES_LOCK = 36  # i32, held while a failure is written
MESSAGES_FAILURE_ID = 40  # i32
MESSAGES_FAILURE_TASK = 44  # i32
MESSAGES_FAILURE_ITEM = 48
MESSAGES_FAILURE_VALUES = 56
MAXIMUM_FAILURE_VALUES = 72
MESSAGES_OVERFLOW_NEED = 632  # iterations; 0: nothing has overflowed
MESSAGES_OVERFLOW_ID = 640  # i32
MESSAGES_OVERFLOW_TASK = 644  # i32
MESSAGES_OVERFLOW_ITEM = 648
MESSAGES_HEADER = 704

# GPUs. A kernel is a list of `artifact.Dispatch`es, run in order. Each is a function
# ``entry(parameters, launch)`` that is run by a number of threads; `parameters` is the parameter
# block, `launch` has these words of 8 bytes, which the host fills. Thread t of n runs the work
# items lower + t, lower + t + n, ... of [lower, upper).
LAUNCH_LOWER = 0  # i64
LAUNCH_UPPER = 8  # i64
LAUNCH_BOUNDS = 16  # where the device keeps both, for a domain that it computes itself
LAUNCH_RECORD_BUFFERS = 24  # the address of the record buffers of all threads
LAUNCH_CAPACITY = 32  # i64: the bytes that the record buffer of one thread holds, a multiple of 4
LAUNCH_SHARE = 40  # i64: what the records of a work item should take of them
LAUNCH_FAILURES = 48  # the address of the report on work items that ran out of space for records
LAUNCH_RETRY = 56  # i64: 1 runs only those that ran out of space for records before
LAUNCH_SIZE = 64

PUSHED_SLOTS, MANY_PUSHED_SLOTS = 6, 22
"""The slots of a parameter block, behind those of the system, that a launch on Vulkan pushes, so
that its kernels read them without a load. Besides the launch words and two more, these are 128
bytes, which every device takes, or 256."""

# The record buffers of 32 threads stand together, interleaved by words of 4 bytes: word w of thread
# t is word t // 32 * 32 * capacity / 4 + 32 * w + t % 32 of all, so that threads that work in step
# touch neighbouring words. A member of a record is within one word, or takes two whole ones.
RECORD_BUFFER_LANES = 32
RECORD_BUFFER_WORD = 4

# A work item whose record buffer would have to hold more ends before it has changed anything. It
# notes what it would need, and itself; run again, it takes itself from the list first.
REFUSED_NEED = 0  # u64: the most bytes that any of them needs
REFUSED_COUNT = 8  # u64: how many there are
REFUSED_ITEMS = 16  # u32 words: bit i % 32 of word i // 32 stands for the item lower + i
