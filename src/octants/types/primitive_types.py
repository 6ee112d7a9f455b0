"""The scalar types under all their names, and sets of them."""

from __future__ import annotations

from typing import Any

from octants.types.scalars import (
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u1,
    u8,
    u16,
    u32,
    u64,
)

int8, int16, int32, int64 = i8, i16, i32, i64
uint1, uint8, uint16, uint32, uint64 = u1, u8, u16, u32, u64
float16, float32, float64 = f16, f32, f64

real_types: set[Any] = {f16, f32, f64, float}
integer_types: set[Any] = {i8, i16, i32, i64, u1, u8, u16, u32, u64, int, bool}
all_types: set[Any] = real_types | integer_types
real_type_ids = {id(dtype) for dtype in real_types}
integer_type_ids = {id(dtype) for dtype in integer_types}
type_ids = {id(dtype) for dtype in all_types}

__all__ = [
    "u1",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "f32",
    "f64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint1",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "real_types",
    "integer_types",
    "all_types",
    "real_type_ids",
    "integer_type_ids",
    "type_ids",
]
