"""Sparse linear systems: matrices that kernels fill, solvers, and solvers without a matrix.

Matrices and direct solvers run on the host, by scipy and QDLDL (``pip install 'octants[linalg]'``);
solvers without a matrix run kernels on the device. A Tape goes through the solves.
"""

from __future__ import annotations

from octants.linalg.matrix_free import LinearOperator as LinearOperator
from octants.linalg.matrix_free import MatrixFreeBICGSTAB as MatrixFreeBICGSTAB
from octants.linalg.matrix_free import MatrixFreeCG as MatrixFreeCG
from octants.linalg.solvers import SparseCG as SparseCG
from octants.linalg.solvers import SparseSolver as SparseSolver
from octants.linalg.sparse_matrix import SparseMatrix as SparseMatrix
from octants.linalg.sparse_matrix_builder import SparseMatrixBuilder as SparseMatrixBuilder
