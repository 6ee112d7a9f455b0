"""The archs that kernels can run on: a row for each, with code generation and a device."""
