"""The native part of the CPU runtime, as LLVM IR, and its functions in Python."""
