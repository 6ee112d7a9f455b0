"""Tapes: launches and host writes are recorded, and reversed last to first.

* `tape` is the recorder, with a fast path for launches that overwrite nothing (`fast_recording`).
* `tape_entries` are what it records, `tape_losses` where adjoints begin. `batched_tape` propagates
  several adjoints, whose memory is in `batched_gradients`; `scalar_argument_gradients` collects
  those of by-value arguments.
* Checks: `memory_overlaps`, `untracked_writes`, `backward_guard`, `gradient_check`. `block_ends`
  ends a tape when Ctrl-C kept Python from it.
"""
