"""The functions and the values of the language, which ``octants`` exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.lang.atomics_and_random import assume_in_range as assume_in_range
from octants.lang.atomics_and_random import atomic_add as atomic_add
from octants.lang.atomics_and_random import atomic_and as atomic_and
from octants.lang.atomics_and_random import atomic_cas as atomic_cas
from octants.lang.atomics_and_random import atomic_exchange as atomic_exchange
from octants.lang.atomics_and_random import atomic_max as atomic_max
from octants.lang.atomics_and_random import atomic_min as atomic_min
from octants.lang.atomics_and_random import atomic_mul as atomic_mul
from octants.lang.atomics_and_random import atomic_or as atomic_or
from octants.lang.atomics_and_random import atomic_sub as atomic_sub
from octants.lang.atomics_and_random import atomic_xor as atomic_xor
from octants.lang.atomics_and_random import random as random
from octants.lang.atomics_and_random import rescale_index as rescale_index
from octants.lang.atomics_and_random import volatile_load as volatile_load
from octants.lang.composed_functions import frexp as frexp
from octants.lang.composed_functions import randn as randn
from octants.lang.linear_algebra import eig as eig
from octants.lang.linear_algebra import make_spd as make_spd
from octants.lang.linear_algebra import outer as outer
from octants.lang.linear_algebra import polar_decompose as polar_decompose
from octants.lang.linear_algebra import solve as solve
from octants.lang.linear_algebra import svd as svd
from octants.lang.linear_algebra import sym_eig as sym_eig
from octants.lang.scalar_functions import abs as abs  # noqa: A004
from octants.lang.scalar_functions import acos as acos
from octants.lang.scalar_functions import acosh as acosh
from octants.lang.scalar_functions import asin as asin
from octants.lang.scalar_functions import asinh as asinh
from octants.lang.scalar_functions import atan as atan
from octants.lang.scalar_functions import atan2 as atan2
from octants.lang.scalar_functions import atanh as atanh
from octants.lang.scalar_functions import bit_cast as bit_cast
from octants.lang.scalar_functions import bit_shr as bit_shr
from octants.lang.scalar_functions import cast as cast
from octants.lang.scalar_functions import cbrt as cbrt
from octants.lang.scalar_functions import ceil as ceil
from octants.lang.scalar_functions import clz as clz
from octants.lang.scalar_functions import cos as cos
from octants.lang.scalar_functions import cosh as cosh
from octants.lang.scalar_functions import erf as erf
from octants.lang.scalar_functions import exp as exp
from octants.lang.scalar_functions import exp2 as exp2
from octants.lang.scalar_functions import expm1 as expm1
from octants.lang.scalar_functions import ffs as ffs
from octants.lang.scalar_functions import floor as floor
from octants.lang.scalar_functions import isinf as isinf
from octants.lang.scalar_functions import isnan as isnan
from octants.lang.scalar_functions import log as log
from octants.lang.scalar_functions import log1p as log1p
from octants.lang.scalar_functions import log2 as log2
from octants.lang.scalar_functions import log10 as log10
from octants.lang.scalar_functions import max as max  # noqa: A004
from octants.lang.scalar_functions import min as min  # noqa: A004
from octants.lang.scalar_functions import one as one
from octants.lang.scalar_functions import popcnt as popcnt
from octants.lang.scalar_functions import pow as pow  # noqa: A004
from octants.lang.scalar_functions import raw_div as raw_div
from octants.lang.scalar_functions import raw_mod as raw_mod
from octants.lang.scalar_functions import round as round  # noqa: A004
from octants.lang.scalar_functions import rsqrt as rsqrt
from octants.lang.scalar_functions import select as select
from octants.lang.scalar_functions import sign as sign
from octants.lang.scalar_functions import sin as sin
from octants.lang.scalar_functions import sinh as sinh
from octants.lang.scalar_functions import sqrt as sqrt
from octants.lang.scalar_functions import stop_grad as stop_grad
from octants.lang.scalar_functions import tan as tan
from octants.lang.scalar_functions import tanh as tanh
from octants.lang.scalar_functions import trunc as trunc
from octants.lang.scalar_functions import zero as zero
from octants.lang.sparse import activate as activate
from octants.lang.sparse import append as append
from octants.lang.sparse import deactivate as deactivate
from octants.lang.sparse import is_active as is_active
from octants.lang.sparse import length as length
from octants.lang.sparse import no_activate as no_activate
from octants.types.enums import Layout as Layout
from octants.types.matrix_values import Matrix as Matrix
from octants.types.matrix_values import Vector as Vector
from octants.types.parameter_annotations import ref as ref
from octants.types.structs import Struct as Struct

if TYPE_CHECKING:
    from octants.types.structs import dataclass as dataclass
    from octants.types.typing_stubs import *  # noqa: F403
else:
    from octants.types.parameter_annotations import Template as Template
    from octants.types.primitive_types import *  # noqa: F403
    from octants.types.structs import dataclass as dataclass
