"""Emits the reverse of one task: a sweep forward, which records, and a sweep backward.

* The whole: `reverse_task`.
* Copies of the primal computation, in both sweeps: `primal_emitter` with its state, `primal_values`
  and `primal_operations`; `primal_reads` collects what they read.
* Recorded blocks: `replay` selects for each loop a `recording_strategy` (`loop_recording`,
  `fixed_length_blocks`), with `stored_loops` for loops that are recorded together, and `branches`.
* The record buffer: `records`, `checkpoints`, `local_record_blocks`, `record_high_water`.
* Adjoints: `backward_sweep` and `adjoint_values`; a file for each kind of operation that is not
  scalar: `atomics`, `component_access`, `subgroup_adjoints`, `custom_derivatives`.
"""
