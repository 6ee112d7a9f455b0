"""Transformations of a module, one verb per file; `pipeline` orders them.

The folders:

* `tasks` cuts a kernel; `checks` adds what debug modes check.
* `arithmetic` makes operations fewer or faster; `sums` the updates of arrays.
* `loops` unrolls and fuses; `code_motion` hoists and sinks; `storage` moves values between
  registers and memory.
* `cooperation` runs the work items of a block in one thread.

The docstring of a pass shows IR before and after it. Such a picture leaves out the name of the
kernel and of its only task, and the yield at its end. Work items begin at 0: those of
``parallel (%2: i32 < shape<@x, 0>())`` are as many as `x` has elements. Arrays that are the same
after the pass are named once.
"""
