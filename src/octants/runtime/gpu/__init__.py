"""The GPU runtime over a driver protocol.

Record-buffer capacity, messages, staging, dispatches and the `Device` interface are written once,
over the verbs in `driver`. A folder for each API (`runtime.cuda`, `runtime.vulkan`) implements
these verbs.
"""
