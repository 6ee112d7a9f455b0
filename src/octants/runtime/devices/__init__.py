"""Devices without a driver: the interpreter, a null device, and what serial devices share."""
