"""Derivatives of one kernel, as transformations of its module: no launches, no memory, no devices.

Derivatives of several launches (tapes, snapshots, custom gradients) are in `octants.ad`, which
calls this package through `octants.launch`. Read the files in this order:

1. `derivative_rules`: the derivatives of scalar operations, one table for both modes.
2. `forward`: forward mode, in one pass over a module.
3. `reverse`: reverse mode. It runs the three steps that have folders, and then improves the result.
4. `facts` **analyses** a kernel and its tasks; nothing there depends on how loops are recorded.
   Begin with `facts.task_facts` and `facts.activity`.
5. `emit` **emits** the reverse of a task: a sweep forward, which records what each iteration of a
   loop begins with, and one backward, which replays iterations from their records. Begin with
   `emit.reverse_task`, `emit.primal_emitter`, `emit.backward_sweep`, `emit.loop_recording`.
6. `plan` **plans** how each loop is recorded: whole, in blocks between checkpoints, or with the
   loop around it. It reads a first draft of the task, with all loops recorded whole.
7. `improve` rewrites the reverse kernel: smaller records, loops without conditions about records.
8. `variants` makes other kernels of a primal or reverse kernel: with logs, counts, fingerprints, or
   several adjoints.

The rules of the algorithm, and the files that follow each, are in docs/inside_gradients.md.
"""
