"""Kernels, their specialisations, and how they are launched, forward and in reverse."""
