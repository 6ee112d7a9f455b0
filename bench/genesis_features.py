"""More scenes of Genesis: what a user tries next. Only their numbers are compared."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from genesis_programs import Program, array, contact_count, scene

GO2_JOINTS = [
    f"{leg}_{joint}_joint" for leg in ("FR", "FL", "RR", "RL") for joint in ("hip", "thigh", "calf")
]
GO2_STANCE = [0.0, 0.8, -1.5] * 2 + [0.0, 1.0, -1.5] * 2


def rigid(gs: Any, **options: Any) -> Any:
    """A scene of rigid bodies on a plane."""
    made = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=0.01),
        rigid_options=gs.options.RigidOptions(**options),
    )
    made.add_entity(gs.morphs.Plane())
    return made


@scene(is_timed=False)
def go2(gs: Any) -> Program:
    """A robot dog that is controlled in three environments, of which one is reset."""
    made = rigid(gs)
    dog = made.add_entity(gs.morphs.URDF(file="urdf/go2/urdf/go2.urdf", pos=(0, 0, 0.42)))
    noise = np.random.default_rng(1)
    counts: list[Any] = []

    def joints() -> list[int]:
        return [dog.get_joint(name).dofs_idx_local[0] for name in GO2_JOINTS]

    def start() -> None:
        dog.set_dofs_kp([20.0] * 12, joints())
        dog.set_dofs_kv([0.5] * 12, joints())

    def prepare() -> None:
        target = np.array(GO2_STANCE) + 0.1 * noise.standard_normal((3, 12))
        dog.control_dofs_position(target, joints())

    def observe() -> None:
        counts.append(contact_count(made))
        if len(counts) == 15:
            made.reset(envs_idx=[1])

    def numbers() -> dict[str, Any]:
        return {
            "qpos": array(dog.get_qpos()),
            "force": array(dog.get_dofs_control_force()) / 10,
            "contacts": counts,
        }

    return Program(
        lambda: made.build(n_envs=3, env_spacing=(1.0, 1.0)),
        made.step,
        numbers,
        30,
        start=start,
        prepare=prepare,
        observe=observe,
    )


@scene(is_timed=False)
def lidar(gs: Any) -> Program:
    """Rays from a moving box over other bodies; a depth camera and an inertial sensor."""
    made = rigid(gs)
    car = made.add_entity(gs.morphs.Box(size=(0.4, 0.3, 0.2), pos=(0.0, 0.0, 0.3)))
    made.add_entity(gs.morphs.Sphere(radius=0.3, pos=(1.2, 0.4, 0.3)))
    made.add_entity(gs.morphs.Cylinder(radius=0.2, height=0.8, pos=(-0.9, 0.8, 0.4), fixed=True))
    sensors = gs.sensors
    rays = made.add_sensor(
        sensors.Lidar(
            pattern=sensors.SphericalPattern(fov=(360.0, (-30.0, 20.0)), n_points=(48, 8)),
            entity_idx=car.idx,
            pos_offset=(0.0, 0.0, 0.2),
        )
    )
    depth = made.add_sensor(
        sensors.DepthCamera(
            pattern=sensors.DepthCameraPattern(res=(16, 12), fov_horizontal=80.0),
            entity_idx=car.idx,
            pos_offset=(0.25, 0.0, 0.1),
        )
    )
    inertial = made.add_sensor(sensors.IMU(entity_idx=car.idx))
    touch = made.add_sensor(sensors.ContactForce(entity_idx=car.idx))

    def start() -> None:
        car.set_dofs_velocity([0.8, 0.1, 0.0, 0.0, 0.0, 1.0])

    def numbers() -> dict[str, Any]:
        seen, felt = rays.read(), inertial.read()
        return {
            "points": array(seen.points),
            "distances": array(seen.distances),
            "depth": array(depth.read_image()),
            "acceleration": array(felt.lin_acc) / 10,
            "rotation": array(felt.ang_vel),
            "force": array(touch.read()) / 100,
        }

    return Program(made.build, made.step, numbers, 25, start=start)


@scene(is_timed=False)
def randomised(gs: Any) -> Program:
    """Masses, frictions and gains that differ from one environment to another."""
    made = rigid(gs, batch_links_info=True, batch_dofs_info=True)
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    box = made.add_entity(gs.morphs.Box(size=(0.1,) * 3, pos=(0.6, 0.0, 0.05)))

    def start() -> None:
        several = np.arange(4)[:, None]
        box.set_friction_ratio(0.4 + 0.3 * several, links_idx_local=[0])
        box.set_mass(0.5 + 0.25 * np.arange(4))
        arm.set_dofs_kp(np.full(9, 2000.0) + 500.0 * several)
        arm.set_dofs_kv(np.full(9, 200.0) + 20.0 * several)
        arm.set_dofs_armature(np.full(9, 0.1) + 0.05 * several)
        arm.control_dofs_position(
            np.array([0.4, 0.5, 0, -1.5, 0, 2, 0.5, 0.04, 0.04]) * (1 + 0.1 * several)
        )
        box.set_dofs_velocity(np.array([1.0, 0.2, 0, 0, 0, 0.5]) * np.ones((4, 1)))

    def numbers() -> dict[str, Any]:
        return {
            "mass": array(box.get_mass()),
            "pos": array(box.get_pos()),
            "qpos": array(arm.get_qpos()),
        }

    return Program(lambda: made.build(n_envs=4), made.step, numbers, 40, start=start)


@scene(is_timed=False)
def heterogeneous(gs: Any) -> Program:
    """One entity that is a box, a sphere or a cylinder, depending on the environment."""
    made = rigid(gs)
    body = made.add_entity(
        morph=[
            gs.morphs.Box(size=(0.1, 0.15, 0.2), pos=(0.0, 0.0, 0.3)),
            gs.morphs.Sphere(radius=0.1, pos=(0.0, 0.0, 0.3)),
            gs.morphs.Cylinder(radius=0.08, height=0.2, pos=(0.0, 0.0, 0.3)),
        ]
    )

    def start() -> None:
        body.set_dofs_velocity(np.array([[0.4, 0.1, 0, 1.0, 2.0, 0]] * 6))

    def numbers() -> dict[str, Any]:
        return {"pos": array(body.get_pos()), "quat": array(body.get_quat())}

    return Program(lambda: made.build(n_envs=6), made.step, numbers, 60, start=start)


@scene(is_timed=False)
def checkpoint(gs: Any) -> Program:
    """A state that is saved, pickled, loaded as another scene, and reset to."""
    made = rigid(gs)
    box = made.add_entity(
        gs.morphs.Box(size=(0.2, 0.1, 0.1), pos=(0.0, 0.0, 0.4), euler=(20, 30, 0))
    )
    made.add_camera(res=(64, 48), pos=(2.0, 0.0, 1.0), lookat=(0, 0, 0.2), GUI=False)
    found: dict[str, Any] = {}

    def start() -> None:
        for _ in range(20):
            made.step()
        state = made.get_state()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.gstraj"
            made.save_checkpoint(path)
            loaded = gs.Scene.load_checkpoint(path)
        for _ in range(15):
            made.step()
            loaded.step()
        found["pos"] = array(box.get_pos())
        found["loaded"] = array(loaded.entities[1].get_pos())
        rigid_state = pickle.loads(pickle.dumps(array(state.solvers_state[1].qpos)))
        found["saved"] = rigid_state
        made.reset(state)
        for _ in range(15):
            made.step()
        found["reset"] = array(box.get_pos())
        made.reset()

    return Program(
        made.build, made.step, lambda: {**found, "from": array(box.get_pos())}, 3, start=start
    )


@scene(is_timed=False)
def constrained(gs: Any) -> Program:
    """Welds, loops of links, the conjugate-gradient solver, and friction without slip."""
    made = rigid(
        gs,
        constraint_solver=gs.constraint_solver.CG,
        iterations=50,
        noslip_iterations=3,
    )
    arm = made.add_entity(gs.morphs.MJCF(file="xml/four_bar_linkage.xml", pos=(0, 0, 0.5)))
    boxes = [
        made.add_entity(gs.morphs.Box(size=(0.1,) * 3, pos=(0.0, 1.0 + 0.12 * i, 0.2)))
        for i in range(2)
    ]

    def start() -> None:
        links = [box.base_link.idx for box in boxes]
        made.sim.rigid_solver.add_weld_constraint(*links)

    def numbers() -> dict[str, Any]:
        return {
            "linkage": array(arm.get_qpos()),
            "boxes": [array(box.get_pos()) for box in boxes],
            "contacts": contact_count(made),
        }

    return Program(made.build, made.step, numbers, 40, start=start)


@scene(is_timed=False)
def drone(gs: Any) -> Program:
    """A quadcopter whose propellers turn at given speeds."""
    made = rigid(gs)
    flyer = made.add_entity(gs.morphs.Drone(file="urdf/drones/cf2x.urdf", pos=(0.0, 0.0, 0.5)))

    def prepare() -> None:
        flyer.set_propellers_rpm([14600.0, 14620.0, 14640.0, 14600.0])

    def numbers() -> dict[str, Any]:
        return {"pos": array(flyer.get_pos()), "quat": array(flyer.get_quat())}

    return Program(made.build, made.step, numbers, 40, prepare=prepare)


@scene(is_timed=False)
def planning(gs: Any) -> Program:
    """Inverse kinematics of two links and in several environments, and Jacobians."""
    made = rigid(gs)
    arm = made.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    found: dict[str, Any] = {}

    def start() -> None:
        left, right = arm.get_link("left_finger"), arm.get_link("right_finger")
        several = np.linspace(0, 0.1, 3)[:, None]
        found["two links"] = array(
            arm.inverse_kinematics_multilink(
                links=[left, right],
                poss=[
                    np.array([0.5, 0.02, 0.3]) + several * [1, 0, 1],
                    np.array([0.5, -0.02, 0.3]) + several * [1, 0, 1],
                ],
            )
        )
        arm.set_qpos(found["two links"])
        found["jacobian"] = array(arm.get_jacobian(left))
        found["link"] = array(left.get_pos())

    return Program(
        lambda: made.build(n_envs=3),
        made.step,
        lambda: {**found, "qpos": array(arm.get_qpos())},
        5,
        start=start,
    )
