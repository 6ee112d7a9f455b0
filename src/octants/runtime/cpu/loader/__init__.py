"""Loads object files into executable memory without LLVM."""
