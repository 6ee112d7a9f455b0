"""Facts of a kernel and its tasks that reverse mode finds before it plans how to record loops.

`kernel_facts.Analysis` has the facts of a kernel, `task_facts.TaskFacts` those of a task. `races`,
`cooperative_tasks` and `lost_gradients` also refuse kernels without a derivative, or warn of them.
"""
