"""LLVM IR as text: `cpu`, work items in vector `lanes`, and the GPUs of `gpu`."""
