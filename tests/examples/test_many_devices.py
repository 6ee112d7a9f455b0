"""The programs of examples/many_devices, by two processes and by one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "examples" / "many_devices"


def run(
    name: str, checks: str, folder: Path, start: Sequence[str] = (), **environment: str
) -> None:
    """Run a program that imports an example, in a process that may start others.

    Args:
        name: the example.
        checks: the program, after the import of all names of the example.
        folder: where to write the program.
        start: a command that starts the process.
        environment: variables to set.
    """
    script = folder / f"run_{name}.py"
    body = textwrap.indent(textwrap.dedent(checks), "    ")
    head = f"import numpy as np\nfrom {name} import *\n" if name else ""
    script.write_text(f"{head}if __name__ == '__main__':\n{body}\n")
    path = os.pathsep.join([str(FOLDER), *sys.path])
    result = subprocess.run(
        [*start, sys.executable, script.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_two_processes_take_the_same_step_as_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checks = """
        found, (one,) = run(2), run(1)
        for losses, first, law in found:
            np.testing.assert_allclose(first, one[1], rtol=1e-12)
            np.testing.assert_allclose(losses, one[0], rtol=1e-9)
            np.testing.assert_allclose(law, one[2], rtol=1e-9)
        assert one[0][-1] < 0.05 * one[0][0]
    """
    run("data_parallel", checks, tmp_path)


def test_gradients_cross_the_borders_of_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checks = """
        loss, gradient = run(2)
        alone, expected = run(1)
        np.testing.assert_allclose(loss, alone, rtol=1e-13)
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-18)
        assert gradient.shape == (ROWS, COLUMNS) and (gradient != 0).all()
    """
    run("halo_exchange", checks, tmp_path)


def test_a_pool_of_processes_finds_what_one_does(tmp_path: Path) -> None:
    checks = """
        angles = [0.4, 0.8, 1.1]
        found = sweep(angles)
        begin()
        for angle, (far, slope) in zip(angles, found):
            assert (far, slope) == at(range_of, 0.01, angle)
            behind, before = (at(range_of, 0.01, angle + step)[0] for step in (1e-6, -1e-6))
            np.testing.assert_allclose(slope, (behind - before) / 2e-6, rtol=1e-3)
    """
    run("parameter_sweep", checks, tmp_path)


def needs(package: str) -> None:
    """Skip the test where a package is not installed; it is not imported here."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_cross_the_borders_of_mpi_processes(tmp_path: Path, processes: int) -> None:
    needs("mpi4py")
    mpiexec = shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    checks = """
        qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_max_num_threads=1, log_level="error")
        total, gradient = solve(start())
        whole = np.concatenate(world.allgather(gradient))
        import halo_exchange_mpi
        halo_exchange_mpi.world = MPI.COMM_SELF
        alone, expected = solve(start())
        np.testing.assert_allclose(total, alone, rtol=1e-13)
        np.testing.assert_allclose(whole, expected, rtol=1e-12, atol=1e-18)
        assert gradient.shape[0] < ROWS == len(whole) and (whole != 0).all()
        step = np.zeros((ROWS, COLUMNS))
        step[5:7] = 1e-6
        ends = [solve(start() + sign * step)[0] for sign in (1, -1)]
        np.testing.assert_allclose(whole[5:7].sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    """
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    many = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    start = [mpiexec, "-n", str(processes)]
    run("halo_exchange_mpi", checks, tmp_path, start, **root, **many)


def test_actors_of_ray_find_what_one_process_does(tmp_path: Path) -> None:
    needs("ray")
    checks = """
        from parameter_sweep import at, begin, range_of
        angles = [0.4, 0.8, 1.1]
        ray.init(num_cpus=2, include_dashboard=False)
        found = sweep(angles)
        ray.shutdown()
        begin()
        assert found == [at(range_of, 0.01, angle) for angle in angles]
    """
    run("parameter_sweep_ray", checks, tmp_path)


def test_shard_map_over_two_devices(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    checks = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import PartitionSpec as P
        import octants as qd
        from sharded import scaled
        jax.config.update("jax_enable_x64", True)
        qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
        scale = qd.jax.function(scaled, out={"y": "x"})
        mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        total = jax.shard_map(
            lambda x, w: jax.lax.psum(scale(x, w).sum(), "d"),
            mesh=mesh, in_specs=(P("d"), P()), out_specs=P(), check_vma=False,
        )
        x, w = jnp.arange(1.0, 9.0), jnp.array([3.0])
        for _ in range(3):
            gx, gw = jax.jit(jax.grad(total, (0, 1)))(x, w)
            np.testing.assert_allclose(gx, 9.0)
            np.testing.assert_allclose(gw, 216.0)
        np.testing.assert_allclose(jax.hessian(total, 1)(x, w), 72.0)
    """
    (tmp_path / "sharded.py").write_text(
        textwrap.dedent("""
            import octants as qd
            vec = qd.types.ndarray(qd.f64, 1)
            @qd.kernel
            def scaled(x: vec, w: vec, y: vec):
                for i in x:
                    y[i] = x[i] * w[0] ** 2
        """)
    )
    run("", checks, tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
