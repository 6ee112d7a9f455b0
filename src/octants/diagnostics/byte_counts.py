"""Amounts as people write them."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """A number of bytes for people: ``1.5 GiB``."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
