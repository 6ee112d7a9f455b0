"""Checks the text of kernels for what Metal's language forbids, where no compiler of it is.

Clang checks the address spaces: those of Metal are spaces of the language C of clang's, and casts
of pointers are `reinterpret_cast`, which keeps the space, since casts of C would change it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

import pytest

from tests.metal.cpp import ENTRY, INCLUDE, SHARED, clang

_WORDS = (
    "double|goto|new|delete|virtual|throw|try|catch|typeid|dynamic_cast|thread_local|long long"
    "|va_list|asm"
)
_FORBIDDEN = re.compile(rf"\b({_WORDS})\b")
_FUNCTION = re.compile(r"^(?:static \w+|.*void) (\w+)\(", re.MULTILINE)
_POINTER = re.compile(r"(\w+) (\w+)\*")
_CAST = re.compile(
    r"\(((?:coherent\(device\) )?(?:device|threadgroup|constant|thread) \w+\*)\)\s*(\(|\w+)"
)
_CHAINED = re.compile(r"\bconst \w+ (v\d+) = [^;]*;\s*const \w+ v\d+ = [^;]*\b\1\b")
_SPACES = ("device", "constant", "threadgroup", "thread")
_INCLUDE = "#include <metal_stdlib>\n"
_MOST = 100  # texts that clang checks at once


def problems(text: str) -> list[str]:
    """What of a text Metal's language forbids, but for address spaces."""
    found = [f"`{match[0]}`" for match in _FORBIDDEN.finditer(text)]
    found += [
        f"`{m[0]}` has no address space" for m in _POINTER.finditer(text) if m[1] not in _SPACES
    ]
    if _CHAINED.search(text):
        found.append("constants that depend on each other: clang evaluates them by recursion")
    starts = list(_FUNCTION.finditer(text))
    called = [set(re.findall(r"\b(\w+)\(", body)) for body in _bodies(text, starts)]
    for number, (start, calls) in enumerate(zip(starts, called, strict=True)):
        for other in starts[number:]:
            if other[1] in calls:
                found.append(f"`{start[1]}` calls `{other[1]}`, which is not written before it")
    found += [f"`&{m[1]}` is a pointer to a function" for m in re.finditer(r"&(f_\w+)", text)]
    return found


def _bodies(text: str, starts: Sequence[re.Match[str]]) -> list[str]:
    ends = [*(start.start() for start in starts[1:]), len(text)][: len(starts)]
    return [text[start.end() : end] for start, end in zip(starts, ends, strict=True)]


def check_address_spaces(texts: Sequence[str]) -> None:
    """Let clang check texts, with an address space for each of Metal's; nothing is run."""
    found = clang()
    if found is None:
        pytest.skip("no clang++ here, which checks address spaces")
    command = [found, "-fsyntax-only", "-std=c++14", "-w", "-DCHECK_ADDRESS_SPACES", INCLUDE]
    for first in range(0, len(texts), _MOST):
        some = texts[first : first + _MOST]
        source = _INCLUDE + "".join(map(_as_namespace, range(len(some)), some))
        done = subprocess.run(
            [*command, "-x", "c++", "-"], input=source, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]


def _as_namespace(number: int, text: str) -> str:
    """A text among others, with casts that keep the address space."""
    assert text.startswith(_INCLUDE), "the text begins with something else"
    text = SHARED.sub(r"\1static threadgroup \2", ENTRY.sub("", text[len(_INCLUDE) :]))
    text = _CAST.sub(_reinterpreted, text)
    return f"namespace text_{number} {{\n{text}\n}}\n"


def _reinterpreted(match: re.Match[str]) -> str:
    kind, operand = match.groups()
    return f"reinterpret_cast<{kind}>" + (operand if operand == "(" else f"({operand})")


def check(texts: Sequence[str]) -> None:
    """All checks of texts."""
    for text in texts:
        found = problems(text)
        assert not found, f"{found}\n{text[:20000]}"
    check_address_spaces(texts)
