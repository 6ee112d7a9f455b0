"""Decides which parallel loops run in vector lanes, by an estimate of their run time."""
