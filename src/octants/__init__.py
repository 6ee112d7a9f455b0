"""Octants: parallel numerical kernels in Python, with gradients that are right.

``import octants as qd``; `init` first, then fields and ndarrays, and functions of the language
decorated with `kernel`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octants import ad as ad
from octants import graph as graph
from octants import math as math
from octants import simt as simt
from octants import types as types
from octants._quadrants_names import QuadrantsAssertionError as QuadrantsAssertionError
from octants._quadrants_names import QuadrantsCompilationError as QuadrantsCompilationError
from octants._quadrants_names import QuadrantsIndexError as QuadrantsIndexError
from octants._quadrants_names import QuadrantsNameError as QuadrantsNameError
from octants._quadrants_names import QuadrantsRuntimeError as QuadrantsRuntimeError
from octants._quadrants_names import QuadrantsRuntimeTypeError as QuadrantsRuntimeTypeError
from octants._quadrants_names import QuadrantsSyntaxError as QuadrantsSyntaxError
from octants._quadrants_names import QuadrantsTypeError as QuadrantsTypeError
from octants._quadrants_names import perf_dispatch as perf_dispatch
from octants.api import *  # noqa: F403
from octants.data import tree as _tree
from octants.data.array_base import Tensor as Tensor
from octants.data.array_base import wrap as wrap
from octants.data.axes import axes as axes
from octants.data.axes import i as i
from octants.data.axes import ij as ij
from octants.data.axes import ijk as ijk
from octants.data.axes import ijkl as ijkl
from octants.data.axes import ijl as ijl
from octants.data.axes import ik as ik
from octants.data.axes import ikl as ikl
from octants.data.axes import il as il
from octants.data.axes import j as j
from octants.data.axes import jk as jk
from octants.data.axes import jkl as jkl
from octants.data.axes import jl as jl
from octants.data.axes import k as k
from octants.data.axes import kl as kl
from octants.data.axes import l as l
from octants.data.field import Field as Field
from octants.data.field import MatrixField as MatrixField
from octants.data.field import ScalarField as ScalarField
from octants.data.ndarray import MatrixNdarray as MatrixNdarray
from octants.data.ndarray import Ndarray as Ndarray
from octants.data.ndarray import ScalarNdarray as ScalarNdarray
from octants.data.ndarray import VectorNdarray as VectorNdarray
from octants.data.ndarray import array as array
from octants.data.ndarray import from_numpy as from_numpy
from octants.data.ndarray import ndarray as ndarray
from octants.data.ndarray import zeros as zeros
from octants.data.ndarray_view import BufferView as BufferView
from octants.data.struct_field import StructField as StructField
from octants.data.tensor_factories import Backend as Backend
from octants.data.tensor_factories import MatrixTensor as MatrixTensor
from octants.data.tensor_factories import VectorTensor as VectorTensor
from octants.data.tensor_factories import tensor as tensor
from octants.data.tree import SNode as SNode
from octants.data.tree_roots import FieldsBuilder as FieldsBuilder
from octants.data.tree_roots import deactivate_all_snodes as deactivate_all_snodes
from octants.data.tree_roots import root as root
from octants.data.typing_stubs import field as field
from octants.deferred_import import Deferred as _Deferred
from octants.deferred_import import names_of as _names_of
from octants.diagnostics.absent_names import ModuleFinder as _Finder
from octants.diagnostics.exceptions import InternalError as InternalError
from octants.diagnostics.exceptions import OctantsArgumentError as OctantsArgumentError
from octants.diagnostics.exceptions import OctantsAssertionError as OctantsAssertionError
from octants.diagnostics.exceptions import OctantsAttributeError as OctantsAttributeError
from octants.diagnostics.exceptions import OctantsCallError as OctantsCallError
from octants.diagnostics.exceptions import OctantsCompilationError as OctantsCompilationError
from octants.diagnostics.exceptions import OctantsError as OctantsError
from octants.diagnostics.exceptions import OctantsHostIndexError as OctantsHostIndexError
from octants.diagnostics.exceptions import OctantsImportError as OctantsImportError
from octants.diagnostics.exceptions import OctantsIndexError as OctantsIndexError
from octants.diagnostics.exceptions import OctantsMemoryError as OctantsMemoryError
from octants.diagnostics.exceptions import OctantsNameError as OctantsNameError
from octants.diagnostics.exceptions import OctantsRuntimeError as OctantsRuntimeError
from octants.diagnostics.exceptions import OctantsRuntimeTypeError as OctantsRuntimeTypeError
from octants.diagnostics.exceptions import OctantsSyntaxError as OctantsSyntaxError
from octants.diagnostics.exceptions import OctantsTypeError as OctantsTypeError
from octants.diagnostics.exceptions import OctantsValueError as OctantsValueError
from octants.diagnostics.exceptions import OctantsWarning as OctantsWarning
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
from octants.lang.directives import *  # noqa: F403
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
from octants.launch.streams import Event as Event
from octants.launch.streams import Stream as Stream
from octants.launch.streams import create_event as create_event
from octants.launch.streams import create_stream as create_stream
from octants.types.enums import Layout as Layout
from octants.types.matrix_values import Matrix as Matrix
from octants.types.matrix_values import Vector as Vector
from octants.types.parameter_annotations import (
    SparseMatrixBuilderAnnotation as sparse_matrix_builder,  # noqa: F401, N813
)
from octants.types.parameter_annotations import ref as ref
from octants.types.structs import Struct as Struct
from octants.version import __version__ as __version__

graph_do_while = graph.do_while
graph_parallel = graph.parallel
graph_parallel_context = graph.parallel_context
_sparse = _Deferred("octants.sparse")
_tree.deactivate_cells = lambda block: _sparse.deactivate(block)  # noqa: PLW0108
_MODULES_OF_NAMES = {
    "BitpackedFields": "data.bitpacked_fields",
    "GUI": "ui",
    "GraphStatus": "launch.checkpoint_status",
    "from_dlpack": "data.dlpack_import",
    "hex_to_rgb": "ui",
    "rgb_to_hex": "ui",
}

if TYPE_CHECKING:
    from octants import algorithms as algorithms
    from octants import experimental as experimental
    from octants import interop as interop
    from octants import linalg as linalg
    from octants import profiler as profiler
    from octants import sparse as sparse
    from octants import ui as ui
    from octants.data.bitpacked_fields import BitpackedFields as BitpackedFields
    from octants.data.dlpack_import import from_dlpack as from_dlpack
    from octants.launch.checkpoint_status import GraphStatus as GraphStatus
    from octants.types.structs import dataclass as dataclass
    from octants.types.typing_stubs import *  # noqa: F403
    from octants.ui import GUI as GUI
    from octants.ui import hex_to_rgb as hex_to_rgb
    from octants.ui import rgb_to_hex as rgb_to_hex
else:
    from octants.types.parameter_annotations import Template as Template
    from octants.types.primitive_types import *  # noqa: F403
    from octants.types.structs import dataclass as dataclass

    sys.meta_path.append(_Finder())
    _find = _names_of(
        "octants",
        submodules=(
            "_lib",
            "algorithms",
            "compat",
            "experimental",
            "interop",
            "jax",
            "linalg",
            "profiler",
            "sparse",
            "tools",
            "torch",
            "ui",
        ),
        sources=_MODULES_OF_NAMES,
    )

    def __getattr__(name):
        if name.startswith("Taichi") and f"Octants{name[6:]}" in globals():
            return globals()[f"Octants{name[6:]}"]  # the exceptions by their names in Taichi
        return _find(name)
