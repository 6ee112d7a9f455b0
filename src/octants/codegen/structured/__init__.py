"""Code for machines whose control flow is structured: SPIR-V, and texts of shaders."""
