"""Scenes of Genesis on Octants and on Quadrants: the same numbers, and the times of both.

    python bench/genesis_scenes.py                     all scenes, each with a cold and a warm cache
    python bench/genesis_scenes.py --only boxes mpm    some of them
    python bench/genesis_scenes.py --once              with a cold cache alone
    python bench/genesis_scenes.py --docs              also into bench/results and docs/genesis.md

Each run of a scene is a process of its own; nothing of Genesis is changed. A scene returns
positions, contact counts or gradients, which have to agree. It is built and stepped (or
differentiated) once, which is what ``build`` and ``first`` measure, and then again for ``step``.
The two systems run one after the other. Times are those of the clock on the wall, and of the
processor, which tell more where other programs run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from genesis_table import replace_table
from machine import describe_machine
from workers import outcome, report

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "genesis.json"
SYSTEMS = ("quadrants", "octants")
SCENES: dict[str, Scene] = {}


class Scene:
    """A scene: `run(gs, watch)` returns arrays by name, which agree to ``tolerance``."""

    def __init__(self, run: Any, precision: str, tolerance: float, is_field: bool) -> None:
        self.run = run
        self.precision = precision
        self.tolerance = tolerance
        self.is_field = is_field


def scene(
    precision: str = "64", tolerance: float = 1e-6, is_field: bool = False, suffix: str = ""
) -> Callable[[Any], Any]:
    """Register a scene under the name of its function."""

    def register(function: Any) -> Any:
        SCENES[function.__name__ + suffix] = Scene(function, precision, tolerance, is_field)
        return function

    return register


class Watch:
    """Notes times by name: of the clock on the wall, and of all threads of this process."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.cpu_times: dict[str, float] = {}

    def time(self, name: str, function: Callable[[], Any], count: int = 1) -> Any:
        """Call a function ``count`` times and note the median time of a call, in seconds."""
        walls, cpus, result = [], [], None
        for _ in range(count):
            wall, cpu = time.perf_counter(), time.process_time()
            result = function()
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
        self.times[name] = float(np.median(walls))
        self.cpu_times[name] = float(np.median(cpus))
        return result

    def build_and_step(self, made: Any, steps: int) -> None:
        """Build a scene and step it: once, and then ``steps`` times."""
        self.time("build", made.build)
        self.time("first", made.step)
        self.time("step", made.step, steps)


def array(value: Any) -> Any:
    """Anything that holds numbers as an array of numpy."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype=float)


# -- rigid bodies ----------------------------------------------------------------------------------


@scene()
@scene(is_field=True, suffix="_fields")
def boxes(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01))
    made.add_entity(gs.morphs.Plane())
    fallen = [
        made.add_entity(gs.morphs.Box(size=(0.2,) * 3, pos=(0.05 * i, 0.02 * i, 0.12 + 0.21 * i)))
        for i in range(3)
    ]
    watch.build_and_step(made, 60)
    contacts = made.sim.rigid_solver.collider.get_contacts()
    return {
        "pos": [array(box.get_pos()) for box in fallen],
        "quat": [array(box.get_quat()) for box in fallen],
        "contacts": len(contacts["geom_a"]),
    }


@scene()
def franka(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01))
    made.add_entity(gs.morphs.Plane())
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    watch.time("build", made.build)
    arm.set_dofs_kp(np.array([4500, 4500, 3500, 3500, 2000, 2000, 2000, 100, 100.0]))
    arm.set_dofs_kv(np.array([450, 450, 350, 350, 200, 200, 200, 10, 10.0]))
    target = arm.inverse_kinematics(
        link=arm.get_link("hand"),
        pos=np.array([0.55, 0.1, 0.4]),
        quat=np.array([0.0, 1.0, 0.0, 0.0]),
    )
    arm.control_dofs_position(target)
    watch.time("first", made.step)
    watch.time("step", made.step, 40)
    return {
        "target": array(target),
        "qpos": array(arm.get_qpos()),
        "qvel": array(arm.get_dofs_velocity()),
    }


# -- particles and elements ------------------------------------------------------------------------


@scene(precision="32", tolerance=2e-4)
def mpm(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=4e-3, substeps=10),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(-0.3, -0.3, -0.1), upper_bound=(0.3, 0.3, 0.6), grid_density=32
        ),
    )
    made.add_entity(gs.morphs.Plane())
    cube = made.add_entity(
        material=gs.materials.MPM.Elastic(),
        morph=gs.morphs.Box(pos=(0.0, 0.0, 0.12), size=(0.15, 0.15, 0.15)),
    )
    watch.build_and_step(made, 10)
    return {"pos": array(cube.get_state().pos), "vel": array(cube.get_state().vel) / 10}


@scene(precision="32", tolerance=2e-4)
def sph(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=4e-3, substeps=4),
        sph_options=gs.options.SPHOptions(
            lower_bound=(-0.3, -0.3, 0.0), upper_bound=(0.3, 0.3, 0.6), particle_size=0.02
        ),
    )
    made.add_entity(gs.morphs.Plane())
    water = made.add_entity(
        material=gs.materials.SPH.Liquid(sampler="regular"),
        morph=gs.morphs.Box(pos=(0.0, 0.0, 0.15), size=(0.15, 0.15, 0.15)),
    )
    watch.build_and_step(made, 10)
    return {"pos": array(water.get_state().pos), "vel": array(water.get_state().vel) / 10}


@scene(precision="32", tolerance=2e-4)
def pbd(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=4e-3, substeps=5))
    made.add_entity(gs.morphs.Plane())
    cloth = made.add_entity(
        material=gs.materials.PBD.Cloth(),
        morph=gs.morphs.Mesh(file="meshes/cloth.obj", scale=0.5, pos=(0.0, 0.0, 0.2)),
    )
    watch.build_and_step(made, 10)
    return {"pos": array(cloth._solver.particles.pos.to_numpy())}


@scene()
def fem(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=5e-4, substeps=5),
        fem_options=gs.options.FEMOptions(damping=45.0, use_implicit_solver=False),
    )
    made.add_entity(gs.morphs.Plane())
    ball = made.add_entity(
        material=gs.materials.FEM.Elastic(E=1e5, nu=0.4, rho=1000.0, model="stable_neohookean"),
        morph=gs.morphs.Sphere(pos=(0.0, 0.0, 0.11), radius=0.1),
    )
    watch.build_and_step(made, 20)
    return {"pos": array(ball.get_state().pos), "vel": array(ball.get_state().vel)}


# -- gradients -------------------------------------------------------------------------------------


def torch_input(gs: Any, values: Any) -> Any:
    """What a gradient is taken with respect to."""
    torch = importlib.import_module("torch")
    return torch.tensor(values, dtype=gs.tc_float, requires_grad=True)


def differentiate(
    made: Any, watch: Watch, start: Callable[[], Any], loss: Callable[[], Any], steps: int
) -> dict[str, Any]:
    """The gradient of a loss after some steps with respect to what `start` returns; twice."""
    gradients = []
    for name in ("first", "step"):
        made.reset()
        inputs = start()

        def forward() -> Any:
            for _ in range(steps):
                made.step()
            return loss()

        value = watch.time("forward", forward)
        watch.time(name, value.backward)
        gradients.append(array(inputs.grad))
    return {"loss": array(value), "gradient": gradients[0], "again": gradients[1]}


@scene()
def grad_mpm(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=2e-3, substeps=5, requires_grad=True),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(-0.3, -0.3, -0.1), upper_bound=(0.3, 0.3, 0.6), grid_density=32
        ),
    )
    made.add_entity(gs.morphs.Plane())
    cube = made.add_entity(
        material=gs.materials.MPM.Elastic(),
        morph=gs.morphs.Box(pos=(0.0, 0.0, 0.1), size=(0.1, 0.1, 0.1)),
    )
    watch.time("build", made.build)

    def start() -> Any:
        velocity = torch_input(gs, [[0.3, 0.1, -1.0]])
        cube.set_velocity(velocity)
        return velocity

    def loss() -> Any:
        return cube.get_state().pos[..., 0].mean()

    return differentiate(made, watch, start, loss, 6)


def rigid_scene(gs: Any) -> Any:
    return gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=0.01, requires_grad=True),
        rigid_options=gs.options.RigidOptions(
            enable_self_collision=False, use_contact_island=False, use_hibernation=False
        )
        if "use_contact_island" in gs.options.RigidOptions.model_fields
        else gs.options.RigidOptions(enable_self_collision=False),
    )


@scene(tolerance=1e-5)
def grad_contact(gs: Any, watch: Watch) -> dict[str, Any]:
    made = rigid_scene(gs)
    made.add_entity(gs.morphs.Plane())
    box = made.add_entity(gs.morphs.Box(size=(0.2,) * 3, pos=(0.0, 0.0, 0.1)))
    watch.time("build", made.build)

    def start() -> Any:
        velocity = torch_input(gs, [1.0, 0.2, 0.0, 0.0, 0.0, 0.1])
        box.set_dofs_velocity(velocity)
        return velocity

    def loss() -> Any:
        return (box.get_state().pos ** 2).sum()

    return differentiate(made, watch, start, loss, 6)


@scene(tolerance=1e-5)
def grad_arm(gs: Any, watch: Watch) -> dict[str, Any]:
    made = rigid_scene(gs)
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    watch.time("build", made.build)

    def start() -> Any:
        velocity = torch_input(gs, [0.3, -0.2, 0.1, 0.2, 0.1, -0.1, 0.2, 0.0, 0.0])
        arm.set_dofs_velocity(velocity)
        return velocity

    def loss() -> Any:
        state = made.sim.rigid_solver.get_state()
        return (state.links_pos[:, -1] ** 2).sum()

    return differentiate(made, watch, start, loss, 4)


@scene()
def grad_tool(gs: Any, watch: Watch) -> dict[str, Any]:
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(
            dt=2e-3, substeps=5, requires_grad=True, gravity=(0, 0, -1)
        ),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(0.0, -1.0, 0.0),
            upper_bound=(1.0, 1.0, 0.55),
            grid_density=23,
        ),
        tool_options=gs.options.ToolOptions(floor_height=0.0),
    )
    made.add_entity(gs.morphs.Plane())
    tool = made.add_entity(
        morph=gs.morphs.Mesh(file="meshes/sphere.obj", scale=0.1, pos=(0.4, 0.3, 0.2)),
        material=gs.materials.Tool(friction=8.0, sdf_res=16),
    )
    cube = made.add_entity(
        morph=gs.morphs.Box(pos=(0.4, 0.42, 0.2), size=(0.12, 0.12, 0.12)),
        material=gs.materials.MPM.Elastic(),
    )
    watch.time("build", made.build)

    def start() -> Any:
        velocity = torch_input(gs, [[0.1, 3.0, 0.0]])
        tool.set_velocity(vel=velocity)
        return velocity

    def loss() -> Any:
        return cube.get_state().pos[..., 1].mean()

    return differentiate(made, watch, start, loss, 6)


# -- one run ---------------------------------------------------------------------------------------


def run_scene(name: str, system: str) -> None:
    """Run a scene in this process and print its times and numbers as a line of JSON."""
    if system == "octants":
        compat = importlib.import_module("octants.compat")
        compat.install()
    gs = importlib.import_module("genesis")
    chosen, watch = SCENES[name], Watch()
    gs.init(
        backend=gs.cpu,
        seed=0,
        precision=chosen.precision,
        logging_level="error",
        performance_mode=chosen.is_field,
    )
    numbers = chosen.run(gs, watch)
    given = {key: np.asarray(value, dtype=float).tolist() for key, value in numbers.items()}
    report({"times": watch.times, "cpu_times": watch.cpu_times, "numbers": given})


def launch(name: str, system: str, cache: str, timeout: float) -> dict[str, Any]:
    """Run a scene in a process of its own; its times and numbers, or its error."""
    environment = dict(os.environ)
    for prefix in ("OCTANTS_", "QD_"):
        environment[f"{prefix}OFFLINE_CACHE_FILE_PATH"] = str(Path(cache) / prefix)
    command = [sys.executable, __file__, "--run", name, "--system", system]
    return outcome(command, timeout, environment)


# -- the comparison --------------------------------------------------------------------------------


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest difference of two sets of numbers, relative where they are above 1."""
    worst = 0.0
    for name, expected in theirs.items():
        a, b = np.asarray(ours[name]), np.asarray(expected)
        if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return float("inf")
        if a.size:
            worst = max(worst, float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(b)))))
    return worst


def compare(name: str, is_once: bool, timeout: float) -> dict[str, Any]:
    """Run a scene in both systems; a row of the results."""
    row: dict[str, Any] = {"scene": name, "tolerance": SCENES[name].tolerance}
    with tempfile.TemporaryDirectory() as cache:
        for state in ("cold",) if is_once else ("cold", "warm"):
            for system in SYSTEMS:
                row[f"{system} {state}"] = launch(name, system, cache, timeout)
    runs = [value for key, value in row.items() if isinstance(value, dict)]
    row["errors"] = [run["error"] for run in runs if "error" in run]
    if not row["errors"]:
        reference = runs[0]["numbers"]
        row["difference"] = max(difference(run["numbers"], reference) for run in runs)
        row["largest"] = max(float(np.max(np.abs(np.asarray(v)))) for v in reference.values())
        for run in runs:
            del run["numbers"]
    row["agrees"] = not row["errors"] and row["difference"] <= row["tolerance"]
    return row


def stored(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Store rows beside those of other scenes that a file has; the whole report."""
    found = json.loads(path.read_text())["rows"] if path.exists() else []
    by_name = {row["scene"]: row for row in (*found, *rows)}
    ordered = [by_name[name] for name in SCENES if name in by_name]
    report = {"machine": describe_machine(), "rows": ordered}
    path.write_text(json.dumps(report, indent=1) + "\n")
    return report


def line(row: dict[str, Any]) -> str:
    """A row as a line of text."""
    if row["errors"]:
        return f"{row['scene']:14} FAILED: {row['errors'][0].splitlines()[-1]}"
    cells = [f"{row['scene']:14}", "agrees " if row["agrees"] else "DIFFERS"]
    cells.append(f"difference {row['difference']:.1e} (within {row['tolerance']:.0e})")
    for state in ("cold", "warm"):
        for key in ("build", "first", "step"):
            runs = [row.get(f"{system} {state}", {}) for system in SYSTEMS]
            times = [run.get("times", {}).get(key) for run in runs]
            if None not in times:
                theirs, ours = times
                cells.append(f"{state} {key} {ours:.4g} s (Quadrants {theirs:.4g})")
    return "  ".join(cells)


def main() -> int:
    """Compare scenes; 1 if some differ or fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=SCENES, default=list(SCENES))
    parser.add_argument("--once", action="store_true", help="with a cold cache alone")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each run")
    parser.add_argument("--output", type=Path, default=None, help="where the results are written")
    parser.add_argument("--docs", action="store_true", help="put them into docs/genesis.md")
    parser.add_argument("--run", choices=SCENES, help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_scene(given.run, given.system)
        return 0
    missing = [name for name in ("genesis", "quadrants") if not importlib.util.find_spec(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed; `make test-genesis` installs all")
        return 0
    rows = []
    for name in given.only:
        rows.append(compare(name, given.once, given.timeout))
        print(line(rows[-1]), flush=True)
        if given.output or given.docs:
            output = given.output or RESULTS
            report = stored(output, rows)
            if given.docs:
                replace_table(report, output)
    return 0 if all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
