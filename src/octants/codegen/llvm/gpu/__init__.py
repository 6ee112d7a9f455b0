"""Generate code for GPUs that LLVM supports: one thread runs one work item at a time."""
