"""What the GPUs that LLVM generates code for have in common; a work item is one thread's turn."""
