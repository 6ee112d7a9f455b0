"""Generate code for machines with structured control flow: SPIR-V, and shading languages."""
