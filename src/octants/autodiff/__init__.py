"""Derivatives of one kernel, as transformations of its module: no launches, no memory, no devices.

`reverse` makes the kernel that propagates adjoints, `forward` the one that computes tangents.
Derivatives of several launches (tapes, snapshots, custom gradients) are in `octants.ad`, which
calls this package through `octants.launch`. The files, in the order in which a kernel passes
through them:

* Analyse: `analyse` (a kernel), `task_facts` (a task), `activity`, `hazardous_reads`,
  `idempotent_tasks`, `order_dependent_updates`, `induction_variables`, `deeply_nested_ifs`; `races`
  and `lost_gradients` refuse kernels, or warn of them.
* Plan: `recording_plan` decides how each loop is recorded, with `stored_nests` and
  `records_in_registers`.
* Emit: `reverse_task` runs `replay` (the primal again, with records) and `backward_sweep` (the
  adjoints). The replay consists of `primal_sweep`, `branches`, `loop_recording`,
  `fixed_length_blocks` and `stored_loops`; the record buffer of `records`, `checkpoints`,
  `local_record_blocks` and `record_high_water`; the backward sweep of `adjoint_values`, `atomics`,
  `subgroup_adjoints` and `derivative_rules`.
* Improve: `recorded_results` and `loop_unswitching` rewrite the reverse kernel; `primal_reads`
  finds what it reads.
* Variants of a kernel: `atomic_logs`, `record_counts_for_explain` (with `count_records_below`),
  `read_fingerprint`.
"""
