"""Kernels, their specialisations, and how they are launched, forward and in reverse.

Read `kernel` (what users call), `specialisation` (a kernel compiled for one key of arguments) and
`bound_code` (its code, bound to arguments). `kernel_cache` finds it on disk, `kernel_device` the
device; `persistent_storage` is memory that outlives a launch. The folders:

* `warm` makes repeated calls fast.
* `gradients` has the reverse and forward kernels of one kernel, for ``kernel.grad`` and for the
  tapes of `octants.ad`.
* `checks` has variants that check a launch. `segments` are kernels between whose parts the host
  decides.
"""
