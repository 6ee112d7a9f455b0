"""Kernels for GPUs of AMD."""
