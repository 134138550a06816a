from __future__ import annotations

import mujoco
import numpy as np

from engine.humanoid.model import load_humanoid
from engine.motion.dynamic_filter import GRAVITY
from engine.motion.features import (
    REF_FULL_SIZE,
    REF_SRB_SIZE,
    angular_velocity,
    before_flight,
    full_features,
    linear_velocity,
    mean_inertia_b,
    srb_features,
    srb_motion,
)
from engine.rotation import matrix_from_6d, quat_exp, quat_from_axis_angle, quat_mul, quat_rotate, quat_to_matrix, rot_z
from engine.skeleton import BODY_NAMES, HINGE_AXIS, JOINT_TYPES, TOTAL_MASS, forward_kinematics
from tests.engine.motion.synthetic import UP, walk

FPS = 30.0


def _features(root: np.ndarray, local: np.ndarray, contact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pos, quat = forward_kinematics(root, local)
    srb = srb_motion(pos, quat, quat[:, 0], contact, FPS)
    return srb_features(srb, contact), full_features(srb.com_pos_w, srb.srb_quat_w, pos, quat)


def _walk() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    root, local = walk(1.5, turn_rad_s=0.4)
    return root, local, np.arange(len(root)) // 8 % 4


def test_features_do_not_change_when_the_motion_is_turned_and_moved() -> None:
    root, local, contact = _walk()
    turn = quat_from_axis_angle(UP, 2.2)
    moved = local.copy()
    moved[:, 0] = quat_mul(turn, local[:, 0])
    got = _features(quat_rotate(turn, root) + np.array([7.0, -3.0, 0.0]), moved, contact)
    for a, b in zip(_features(root, local, contact), got, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-9)


def test_layout_of_the_single_rigid_body_features() -> None:
    root, local, contact = _walk()
    pos, quat = forward_kinematics(root, local)
    srb = srb_motion(pos, quat, quat[:, 0], contact, FPS)
    s = srb_features(srb, contact)
    assert s.shape == (len(root), REF_SRB_SIZE)
    t = 17
    yaw = rot_z(0.4 * t / FPS)
    np.testing.assert_allclose(s[t, 0], srb.com_pos_w[t, 2])
    np.testing.assert_allclose(matrix_from_6d(s[t, 1:7]), yaw.T @ quat_to_matrix(quat[t, 0]), atol=1e-9)
    np.testing.assert_allclose(s[t, 7:10], yaw.T @ srb.com_vel_w[t], atol=1e-9)
    np.testing.assert_allclose(s[t, 10:13], [0.0, 0.0, 0.4], atol=1e-6)
    for foot, body, at in ((0, 14, 13), (1, 11, 22)):
        np.testing.assert_allclose(s[t, at : at + 3], yaw.T @ (srb.foot_pos_w[t, foot] - srb.com_pos_w[t]), atol=1e-9)
        np.testing.assert_allclose(
            matrix_from_6d(s[t, at + 3 : at + 9]), yaw.T @ quat_to_matrix(quat[t, body]), atol=1e-9
        )
    np.testing.assert_array_equal(s[t, 31:35], np.eye(4)[contact[t]])


def test_layout_of_the_full_body_features() -> None:
    root, local, contact = _walk()
    pos, quat = forward_kinematics(root, local)
    srb = srb_motion(pos, quat, quat[:, 0], contact, FPS)
    full = full_features(srb.com_pos_w, srb.srb_quat_w, pos, quat)
    assert full.shape == (len(root), REF_FULL_SIZE)
    t, body = 9, 5
    yaw = rot_z(0.4 * t / FPS)
    part = full.reshape(len(root), 15, 9)[t, body]
    ground = srb.com_pos_w[t] * np.array([1.0, 1.0, 0.0])
    np.testing.assert_allclose(part[:3], yaw.T @ (pos[t, body] - ground), atol=1e-9)
    np.testing.assert_allclose(matrix_from_6d(part[3:]), yaw.T @ quat_to_matrix(quat[t, body]), atol=1e-9)


def test_standing_soles_are_on_the_ground_and_swinging_ones_not_below() -> None:
    root, local, contact = _walk()
    root = root - np.array([0.0, 0.0, 0.02])
    pos, quat = forward_kinematics(root, local)
    feet = srb_motion(pos, quat, quat[:, 0], contact, FPS).foot_pos_w
    assert (feet[..., 2] >= 0).all()
    assert (feet[(contact & 1) > 0, 0, 2] == 0).all()
    assert (feet[(contact & 2) > 0, 1, 2] == 0).all()


def test_velocities_are_central_differences() -> None:
    t = np.arange(20) / FPS
    omega = np.array([0.3, -0.7, 1.1])
    np.testing.assert_allclose(angular_velocity(quat_exp(t[:, None] * omega), FPS), np.tile(omega, (20, 1)), atol=1e-9)
    root = np.stack([t**2, 0 * t, 0.9 + 0 * t], -1)
    local = np.zeros((20, 15, 4))
    local[..., 0] = 1
    pos, quat = forward_kinematics(root, local)
    vel = srb_motion(pos, quat, quat[:, 0], np.full(20, 3), FPS).com_vel_w
    np.testing.assert_allclose(vel[1:-1, 0], 2 * t[1:-1], atol=1e-9)


def test_before_a_flight_the_velocity_is_that_of_free_fall_to_the_next_frame() -> None:
    t = np.arange(30) / FPS
    push, fly = t < 10.5 / FPS, t > 10.5 / FPS
    contact = np.where(push | (t > 20.5 / FPS), 3, 0)
    up, along = np.where(push, 9.0 * t**2, 0.0), 1.3 * t
    speed = 2.6
    since = t - 10 / FPS
    up = np.where(fly, up[10] + speed * since - 0.5 * GRAVITY * since**2, up)
    pos = np.stack([along, 0 * t, 0.9 + up], -1)
    take_off = before_flight(contact)
    assert np.flatnonzero(take_off).tolist() == [10]
    vel = linear_velocity(pos, FPS, take_off)
    np.testing.assert_allclose(vel[10], [1.3, 0.0, speed], atol=1e-9)
    np.testing.assert_allclose(vel[11:20, 2], speed - GRAVITY * since[11:20], atol=1e-9)
    np.testing.assert_allclose(np.delete(vel, 10, 0), np.delete(linear_velocity(pos, FPS), 10, 0), atol=0)
    # the body turns faster in flight than before it: at take-off the flight's rate counts
    rate = np.array([0.0, -1.5, 0.2])
    quat = quat_exp(np.where(fly, since, 0.2 * since)[:, None] * rate)
    spin = angular_velocity(quat, FPS, take_off)
    np.testing.assert_allclose(spin[10], rate, atol=1e-9)
    np.testing.assert_allclose(angular_velocity(quat, FPS)[10], 0.6 * rate, atol=1e-9)


def test_a_clip_that_ends_on_the_ground_takes_no_flight_from_beyond_it() -> None:
    assert not before_flight(np.array([3, 3, 1])).any()
    assert before_flight(np.array([0, 2, 0])).tolist() == [False, True, False]


def test_centre_of_mass_and_inertia_agree_with_mujoco() -> None:
    root, local, contact = _walk()
    model = load_humanoid()
    data = mujoco.MjData(model)
    pos, quat = forward_kinematics(root, local)
    srb = srb_motion(pos, quat, quat[:, 0], contact, FPS)
    names = {mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, i): i for i in range(model.nbody)}
    t = 11
    for i, (name, kind) in enumerate(zip(BODY_NAMES, JOINT_TYPES, strict=True)):
        joint = model.body_jntadr[names[name]]
        if joint < 0:
            continue
        at = model.jnt_qposadr[joint]
        if kind == "free":
            data.qpos[at : at + 7] = [*root[t], *local[t, i]]
        elif kind == "ball":
            data.qpos[at : at + 4] = local[t, i]
        else:
            half = local[t, i]
            data.qpos[at] = 2 * np.arctan2(half[1:] @ HINGE_AXIS, half[0])
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.subtree_com[names["root"]], srb.com_pos_w[t], atol=1e-6)
    # inertia of the frozen pose: rotational block of the free joint in the mass matrix, moved to the centre of mass
    dense = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, dense)
    armature = np.diag(model.dof_armature[3:6])
    about_root = dense[3:6, 3:6] - armature
    r = quat_to_matrix(quat[t, 0]).T @ (srb.com_pos_w[t] - root[t])
    about_com = about_root - TOTAL_MASS * (r @ r * np.eye(3) - np.outer(r, r))
    np.testing.assert_allclose(
        mean_inertia_b(pos[t : t + 1], quat[t : t + 1], quat[t : t + 1, 0]), about_com, atol=1e-4
    )
