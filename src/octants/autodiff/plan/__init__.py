"""How each loop of a task is recorded: `recording_plan.plan` makes a frozen `RecordingPlan`.

`stored_nests` finds inner loops that are recorded with the loop around them, `records_in_registers`
those that code generation unrolls.
"""
