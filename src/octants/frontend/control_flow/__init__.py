"""Control flow: conditions and loops, as SSA.

Read `control_flow_joins` first: which variables branches and loops carry. Then:

* `conditions`, and `early_exits`, which are flags.
* `loops` builds serial loops and selects the others: `parallel_loops`, `unrolled_loops`. What they
  run over is in `loop_domains`.
* Work items that cooperate: `thread_block_loops`, `cooperation`. Loops that may run at the same
  time: `stream_parallel`.
"""
