"""Loops of launches, reversed in bounded memory.

`checkpointed_loops` is the loop, `snapshot_schedule` plans it, `checkpoint_snapshots` holds its
state, `checkpointed_steps` runs its steps, and `step_repeatability` checks that they repeat.
"""
