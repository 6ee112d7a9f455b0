"""From modules to artifacts: operations are written once, over an interface that targets implement.

`instruction_writer` is that interface, `function_emitter` a function under construction;
`operations` has the handlers that all targets share, from `arithmetic`, `memory`, `atomics`,
`messages` and `record_buffer_access`; `cooperation` has barriers and subgroup operations. `llvm`
writes code for CPUs and for GPUs of NVIDIA and AMD, `structured` for machines with structured
control flow: `spirv` and `metal`.
"""
