"""The scenes of Genesis that `genesis_scenes.py` runs on Octants and on Quadrants.

A scene is a function that is given Genesis, and returns a `Program`. Its numbers have to agree
within the scene's tolerance: by default 1e-6 in f64, after contacts; in f32 as far as rounding
goes after that many steps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SCENES: dict[str, Scene] = {}


def nothing() -> None:
    """What a program does where it has nothing to do."""


@dataclass
class Program:
    """What a scene does: `build`, `start`, and steps, `prepare` before each of them.

    `observe` comes after each of the first ``steps`` steps, and `numbers` after one more. Times are
    those of `build`, of `start` with the first `step`, and of a `step` after these.
    """

    build: Callable[[], Any]
    step: Callable[[], Any]
    numbers: Callable[[], dict[str, Any]]
    steps: int
    start: Callable[[], Any] = nothing
    prepare: Callable[[], Any] = nothing
    observe: Callable[[], Any] = nothing


@dataclass(frozen=True)
class Scene:
    """How a program is made, in which precision, and how far its numbers may differ."""

    open: Callable[[Any], Program]
    precision: str
    tolerance: float
    is_field: bool
    is_timed: bool


def scene(
    precision: str = "64",
    tolerance: float = 1e-6,
    is_field: bool = False,
    is_timed: bool = True,
    suffix: str = "",
) -> Callable[[Any], Any]:
    """Register a scene under the name of its function."""

    def register(function: Any) -> Any:
        made = Scene(function, precision, tolerance, is_field, is_timed)
        SCENES[function.__name__ + suffix] = made
        return function

    return register


def array(value: Any) -> Any:
    """Anything that holds numbers as an array of numpy."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype=float)


def contact_count(made: Any) -> int:
    """How many contacts the rigid bodies of a scene have now."""
    return len(array(made.sim.rigid_solver.collider.get_contacts()["geom_a"]))


# -- rigid bodies ----------------------------------------------------------------------------------


@scene()
@scene(is_field=True, suffix="_fields")
def boxes(gs: Any) -> Program:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01))
    made.add_entity(gs.morphs.Plane())
    fallen = [
        made.add_entity(gs.morphs.Box(size=(0.2,) * 3, pos=(0.05 * i, 0.02 * i, 0.12 + 0.21 * i)))
        for i in range(3)
    ]
    counts: list[int] = []

    def numbers() -> dict[str, Any]:
        return {
            "pos": [array(box.get_pos()) for box in fallen],
            "quat": [array(box.get_quat()) for box in fallen],
            "contacts": counts,
        }

    return Program(
        made.build, made.step, numbers, 60, observe=lambda: counts.append(contact_count(made))
    )


@scene()
def franka(gs: Any) -> Program:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01))
    made.add_entity(gs.morphs.Plane())
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    target: list[Any] = []

    def start() -> None:
        arm.set_dofs_kp(np.array([4500, 4500, 3500, 3500, 2000, 2000, 2000, 100, 100.0]))
        arm.set_dofs_kv(np.array([450, 450, 350, 350, 200, 200, 200, 10, 10.0]))
        found = arm.inverse_kinematics(
            link=arm.get_link("hand"),
            pos=np.array([0.55, 0.1, 0.4]),
            quat=np.array([0.0, 1.0, 0.0, 0.0]),
        )
        arm.control_dofs_position(found)
        target.append(array(found))

    def numbers() -> dict[str, Any]:
        return {
            "target": target,
            "qpos": array(arm.get_qpos()),
            "qvel": array(arm.get_dofs_velocity()),
        }

    return Program(made.build, made.step, numbers, 40, start=start)


# -- particles and elements ------------------------------------------------------------------------


@scene(precision="32", tolerance=2e-4)
def mpm(gs: Any) -> Program:
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
    return Program(made.build, made.step, lambda: particles(cube), 10)


def particles(entity: Any) -> dict[str, Any]:
    """Positions, and velocities in tenths of a metre per second."""
    state = entity.get_state()
    return {"pos": array(state.pos), "vel": array(state.vel) / 10}


@scene(precision="32", tolerance=2e-4)
def sph(gs: Any) -> Program:
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
    return Program(made.build, made.step, lambda: particles(water), 10)


@scene(precision="32", tolerance=2e-4)
def pbd(gs: Any) -> Program:
    made = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=4e-3, substeps=5))
    made.add_entity(gs.morphs.Plane())
    cloth = made.add_entity(
        material=gs.materials.PBD.Cloth(),
        morph=gs.morphs.Mesh(file="meshes/cloth.obj", scale=0.5, pos=(0.0, 0.0, 0.2)),
    )
    return Program(
        made.build, made.step, lambda: {"pos": cloth._solver.particles.pos.to_numpy()}, 10
    )


@scene()
def fem(gs: Any) -> Program:
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
    return Program(made.build, made.step, lambda: particles(ball), 20)


# -- gradients -------------------------------------------------------------------------------------


def differentiate(
    gs: Any,
    made: Any,
    values: Any,
    apply: Callable[[Any], Any],
    loss: Callable[[], Any],
    count: int,
) -> Program:
    """The gradient of a loss after some steps with respect to values that `apply` is given.

    A step is a backward pass; steps forward, after a reset, come before each.
    """
    torch = importlib.import_module("torch")
    inputs, losses = [], []
    # Where an input is not on the device of Genesis, what it gets as a gradient is a lost copy.
    kind = {"dtype": gs.tc_float, "device": gs.device}

    def prepare() -> None:
        made.reset()
        inputs.append(torch.tensor(values, **kind, requires_grad=True))
        apply(inputs[-1])
        for _ in range(count):
            made.step()
        losses.append(loss())

    def numbers() -> dict[str, Any]:
        first, again = (array(given.grad) for given in (inputs[0], inputs[1]))
        return {"loss": array(losses[0]), "gradient": first, "gradient again": again}

    def backward() -> None:
        losses[-1].backward()

    return Program(made.build, backward, numbers, 1, prepare=prepare)


@scene()
def grad_mpm(gs: Any) -> Program:
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

    def loss() -> Any:
        return cube.get_state().pos[..., 0].mean()

    return differentiate(
        gs,
        made,
        [[0.3, 0.1, -1.0]],
        cube.set_velocity,
        loss,
        6,
    )


def differentiable(gs: Any) -> Any:
    """A scene of rigid bodies with gradients."""
    return gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=0.01, requires_grad=True),
        rigid_options=gs.options.RigidOptions(enable_self_collision=False),
    )


@scene()
def grad_contact(gs: Any) -> Program:
    made = differentiable(gs)
    made.add_entity(gs.morphs.Plane())
    box = made.add_entity(gs.morphs.Box(size=(0.2,) * 3, pos=(0.0, 0.0, 0.1)))

    def loss() -> Any:
        return (box.get_state().pos ** 2).sum()

    return differentiate(
        gs,
        made,
        [1.0, 0.2, 0.0, 0.0, 0.0, 0.1],
        box.set_dofs_velocity,
        loss,
        6,
    )


@scene()
def grad_arm(gs: Any) -> Program:
    made = differentiable(gs)
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))

    def loss() -> Any:
        return (made.sim.rigid_solver.get_state().links_pos[:, -1] ** 2).sum()

    return differentiate(
        gs,
        made,
        [0.3, -0.2, 0.1, 0.2, 0.1, -0.1, 0.2, 0.0, 0.0],
        arm.set_dofs_velocity,
        loss,
        4,
    )


@scene()
def grad_tool(gs: Any) -> Program:
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
    # With another scale than one Genesis 1.4.5 scales the distance field the wrong way round:
    # all of the scene is inside, and rounding decides where the surface is.
    tool = made.add_entity(
        morph=gs.morphs.Mesh(file="meshes/sphere.obj", scale=1.0, pos=(0.4, -0.16, 0.2)),
        material=gs.materials.Tool(friction=8.0, sdf_res=16),
    )
    cube = made.add_entity(
        morph=gs.morphs.Box(pos=(0.4, 0.42, 0.2), size=(0.12, 0.12, 0.12)),
        material=gs.materials.MPM.Elastic(),
    )

    def loss() -> Any:
        return cube.get_state().pos[..., 1].mean()

    return differentiate(
        gs,
        made,
        [[0.1, 3.0, 0.0]],
        lambda velocity: tool.set_velocity(vel=velocity),
        loss,
        6,
    )
