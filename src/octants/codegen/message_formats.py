"""Formats of a kernel's messages, as the host reads them on all targets."""

from __future__ import annotations

import string
from dataclasses import replace

from octants import abi
from octants.artifact import MessageFormat
from octants.diagnostics.span import Span
from octants.types.scalars import i64


def shortened(message: MessageFormat) -> MessageFormat:
    """Truncate a message to the number of values that a failure can hold."""
    limit = abi.MAXIMUM_FAILURE_VALUES
    if len(message.dtypes) <= limit:
        return message
    parts: list[str | tuple[str]] = []
    values = 0
    for part in message.parts:
        values += isinstance(part, tuple)
        parts.append(part if values <= limit or isinstance(part, str) else "...")
    return replace(message, parts=tuple(parts), dtypes=message.dtypes[:limit])


def memory_message(location: Span | None) -> MessageFormat:
    """Return the message of a launch that ran out of memory for the record of a loop."""
    parts = ("one work item needs ", ("",), " bytes")
    return MessageFormat("memory", parts, (i64.name,), location)


def parts_of(message: str) -> tuple[str | tuple[str], ...]:
    """Split a format string into literal texts and format specifications."""
    parts: list[str | tuple[str]] = []
    for text, name, specification, _ in string.Formatter().parse(message):
        if text:
            parts.append(text)
        if name is not None:
            parts.append((specification or "",))
    return tuple(parts)
