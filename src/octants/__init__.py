"""Octants: parallel numerical kernels in Python, with gradients that are right.

``import octants as qd``; `init` first, then fields and ndarrays, and functions of the language
decorated with `kernel`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octants.garbage_collection import Uncollected as _Uncollected

with _Uncollected():
    from octants import ad as ad
    from octants import graph as graph
    from octants import math as math
    from octants import simt as simt
    from octants import types as types
    from octants._quadrants_names import *  # noqa: F403
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
    from octants.diagnostics.exceptions import *  # noqa: F403
    from octants.lang.directives import *  # noqa: F403
    from octants.lang.exported_names import *  # noqa: F403
    from octants.launch.streams import Event as Event
    from octants.launch.streams import Stream as Stream
    from octants.launch.streams import create_event as create_event
    from octants.launch.streams import create_stream as create_stream
    from octants.types.parameter_annotations import (
        SparseMatrixBuilderAnnotation as sparse_matrix_builder,  # noqa: F401, N813
    )
    from octants.version import __version__ as __version__

graph_do_while = graph.do_while
graph_parallel = graph.parallel
graph_parallel_context = graph.parallel_context
_sparse = _Deferred("octants.sparse")
_tree.deactivate_cells = lambda block: _sparse.deactivate(block)  # noqa: PLW0108
_MODULES_OF_NAMES = {
    "BitpackedFields": "data.bitpacked_fields",
    "GUI": "ui",
    "GraphStatus": "launch.segments.checkpoint_status",
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
    from octants.launch.segments.checkpoint_status import GraphStatus as GraphStatus
    from octants.ui import GUI as GUI
    from octants.ui import hex_to_rgb as hex_to_rgb
    from octants.ui import rgb_to_hex as rgb_to_hex
else:
    sys.meta_path.append(_Finder())
    _find = _names_of(
        "octants",
        submodules=(
            "_lib",
            "ad",
            "algorithms",
            "compat",
            "experimental",
            "graph",
            "interop",
            "jax",
            "lang",
            "linalg",
            "math",
            "profiler",
            "simt",
            "sparse",
            "tools",
            "torch",
            "types",
            "ui",
        ),
        sources=_MODULES_OF_NAMES,
    )

    def __getattr__(name):
        if name.startswith("Taichi") and f"Octants{name[6:]}" in globals():
            return globals()[f"Octants{name[6:]}"]  # the exceptions by their names in Taichi
        return _find(name)
