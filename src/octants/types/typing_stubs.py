"""The words of annotations as type checkers see them; nothing here exists in a running program.

To mypy and pyright a scalar type is the Python type of its numbers: ``x: qd.f32`` is a float, and
``qd.field(qd.f32, 8)[0]`` is one, too. ``qd.types.NDArray[qd.f32, Literal[2]]`` takes all arrays
that kernels take, of any library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import TypeVar

    E_co = TypeVar("E_co", covariant=True, default=Any)
    Axes_co = TypeVar("Axes_co", covariant=True, default=Any)

    class NDArray(Protocol[E_co, Axes_co]):
        """An array argument: a field or ndarray, or an array of numpy, torch or DLPack."""

        @property
        def shape(self) -> tuple[int, ...]: ...
        def __iter__(self) -> Iterator[Any]: ...
        def __getitem__(self, index: Any, /) -> Any: ...
        def __setitem__(self, index: Any, value: Any, /) -> None: ...


__all__ = [
    "NDArray",
    "Template",
    "f16",
    "f32",
    "f64",
    "float16",
    "float32",
    "float64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "u1",
    "uint1",
]

f16 = float
f32 = float
f64 = float
float16 = float
float32 = float
float64 = float
i8 = int
i16 = int
i32 = int
i64 = int
u8 = int
u16 = int
u32 = int
u64 = int
int8 = int
int16 = int
int32 = int
int64 = int
uint8 = int
uint16 = int
uint32 = int
uint64 = int
u1 = bool
uint1 = bool
Template: TypeAlias = Any
