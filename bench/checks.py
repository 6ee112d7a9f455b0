"""How far results are off those of a reference in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from processes import Contender, Failed


def compare(folder: Path, name: str, size: tuple[int, int], reference: Contender) -> dict[str, Any]:
    """How far values and gradients are off, relative to the largest element of the reference.

    That is Octants where the reference cannot be run.
    """
    path = folder / reference.name
    try:
        reference.ask("prepare", name=name, size=size, results=str(path))
    except Failed:
        path = folder / "octants"
    result: dict[str, Any] = {"reference": path.name}
    for found in sorted(folder.glob("*.gradient.npy")):
        key = found.name.removesuffix(".gradient.npy")
        if key != path.name:
            kinds = ("value", "gradient")
            result[key] = {kind: off(folder / key, path, kind) for kind in kinds}
    return result


def off(path: Path, reference: Path, kind: str) -> float:
    """The greatest difference of stored results."""
    ours, exact = (np.load(f"{one}.{kind}.npy").astype(np.float64) for one in (path, reference))
    difference = float(np.abs(ours - exact).max()) / max(float(np.abs(exact).max()), 1e-30)
    return difference if np.isfinite(difference) else float("inf")
