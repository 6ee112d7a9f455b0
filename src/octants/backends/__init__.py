"""What kernels can run on: a row for each arch, each with code generation and a device."""
