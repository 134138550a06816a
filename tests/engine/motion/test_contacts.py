from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.motion.clip import Clip
from engine.motion.contacts import (
    contact_class,
    label_agreement,
    label_contacts,
    labels_of_class,
    remove_false_flights,
)
from engine.motion.legs import foot_points
from engine.motion.reader import read_motion
from engine.motion.retarget import FPS, retarget
from engine.skeleton import forward_kinematics
from tests.engine.motion.synthetic import CONTACT, walk


def _point(fps: float) -> np.ndarray:
    """A point that stands 0-0.4 s, lifts and travels, and hangs still 30 cm up from 0.7 s on."""
    t = np.arange(round(1.2 * fps)) / fps
    moving = np.clip((t - 0.4) / 0.3, 0, 1)
    return np.stack([0.6 * moving, 0 * t, 0.3 * moving], axis=-1)


def test_labels_are_the_same_at_30_and_120_fps_and_in_any_unit() -> None:
    want = label_contacts(_point(30), 30, CONTACT)
    assert want[:12].all()
    assert not want[14:].any()
    np.testing.assert_array_equal(label_contacts(_point(120), 120, CONTACT)[::4], want)
    np.testing.assert_array_equal(label_contacts(100 * _point(30), 30, CONTACT, unit_m=0.01), want)
    np.testing.assert_array_equal(label_contacts(_point(120) / 0.0254, 120, CONTACT, unit_m=0.0254)[::4], want)


def test_a_still_foot_in_the_air_is_not_in_contact() -> None:
    still = np.tile([0.0, 0.0, 0.3], (30, 1))
    assert not label_contacts(still, 30, CONTACT).any()


def test_a_low_foot_that_slides_is_not_in_contact_unless_the_character_travels_fast() -> None:
    t = np.arange(30) / 30
    slides = np.stack([0.6 * t, 0 * t, 0 * t + 0.01], axis=-1)
    assert not label_contacts(slides, 30, CONTACT).any()
    assert label_contacts(slides, 30, CONTACT, travel_m_s=4.0).all()


def test_the_feet_of_a_walk_alternate() -> None:
    root, local = walk(4.0)
    points = foot_points(*forward_kinematics(root, local))
    labels = label_contacts(np.stack([points["heel"], points["toe"]], 2), FPS, CONTACT)
    classes = contact_class(labels)
    alone = [c for c in classes if c in (1, 2)]
    changes = [a for a, b in zip(alone, [*alone[1:], 0], strict=True) if a != b]
    assert len(changes) >= 6
    assert all(a != b for a, b in pairwise(changes))
    assert (classes == 0).mean() < 0.05


def test_classes_count_the_left_foot_as_one_and_the_right_as_two() -> None:
    labels = np.array([[[0, 0], [0, 0]], [[1, 0], [0, 0]], [[0, 0], [0, 1]], [[0, 1], [1, 1]]], bool)
    np.testing.assert_array_equal(contact_class(labels), [0, 1, 2, 3])


def test_short_flights_keep_the_stance_before_them() -> None:
    contact = np.array([0, 1, 1, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0])
    high = np.full(13, 0.2)
    fall = -0.5 * 9.81 * (np.arange(13) / 30) ** 2
    got = remove_false_flights(contact, fall, high, 30, 2, CONTACT)
    np.testing.assert_array_equal(got, [1, 1, 1, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1])


def test_a_flight_in_which_nothing_falls_or_no_foot_leaves_the_ground_is_none() -> None:
    contact = np.array([3, 3, 0, 0, 0, 0, 3, 3])
    fall = -0.5 * 9.81 * (np.arange(8) / 30) ** 2
    stance = np.full(8, 3)
    np.testing.assert_array_equal(remove_false_flights(contact, fall, np.full(8, 0.2), 30, 0, CONTACT), contact)
    np.testing.assert_array_equal(remove_false_flights(contact, 0 * fall, np.full(8, 0.2), 30, 0, CONTACT), stance)
    np.testing.assert_array_equal(remove_false_flights(contact, fall, np.zeros(8), 30, 0, CONTACT), stance)


def test_labels_follow_the_classes() -> None:
    labels = np.zeros((3, 2, 2), bool)
    labels[0, 0, 0] = labels[1, 1, 1] = True
    got = labels_of_class(labels, np.array([1, 1, 3]))
    np.testing.assert_array_equal(contact_class(got), [1, 1, 3])
    assert got[0, 0].tolist() == [True, False]


@pytest.mark.parametrize("name", ["sem_contact_30hz_m", "sem_contact_30hz_cm", "sem_contact_120hz_cm"])
def test_the_shared_cases_stand_for_their_first_part_only(shared_dir: Path, name: str) -> None:
    clip: Clip = read_motion(shared_dir / "cases" / "bvh" / f"{name}.bvh", unit="m" if name.endswith("_m") else "cm")
    pos, _ = clip.world()
    foot = pos[:, clip.index("LeftFoot")]
    foot = foot - np.array([0.0, 0.0, foot[0, 2]])
    labels = label_contacts(foot, clip.fps, CONTACT)
    times = clip.times_s
    assert labels[times < 0.4 - 0.05].all()
    assert not labels[times > 0.4 + 0.05].any()


#: Least F1 per heel or toe, and per foot.
AGREEMENT = {"aiming1": (0.97, 0.98), "walk1": (0.93, 0.95), "run1": (0.89, 0.92), "jumps1": (0.92, 0.94)}


@pytest.mark.parametrize("name", AGREEMENT)
def test_labels_agree_with_those_of_lafan1(shared_dir: Path, name: str) -> None:
    path = next(p for p in sorted((shared_dir / "motion").glob("lafan1_*/*.bvh")) if p.name.startswith(name))
    motion = retarget(read_motion(path))
    subject = re.match(r"[a-z0-9]+_subject\d", path.name)
    assert subject
    with np.load(shared_dir / "motion" / "contact_labels" / f"{subject[0]}.bvh.constraint.npz") as stored:
        want = np.stack([stored[f"{s}{p}"] for s in ("left", "right") for p in ("Heel", "Toe")], -1).reshape(-1, 2, 2)
    part = re.search(r"_f(\d+)-(\d+)", path.name)
    first = (int(part[1]) if part else 0) + round(motion.start_s * FPS)
    want = want[first : first + len(motion)]
    points = foot_points(*forward_kinematics(motion.root_pos_w, motion.local_quat))
    travel = FPS * float(np.mean(np.linalg.norm(np.diff(motion.root_pos_w[:, :2], axis=0), axis=-1)))
    got = label_contacts(np.stack([points["heel"], points["toe"]], 2), FPS, CONTACT, travel_m_s=travel)[: len(want)]
    assert label_agreement(got, want)["f1"] > AGREEMENT[name][0]
    foot, want_foot = np.any(got, axis=-1, keepdims=True), np.any(want, axis=-1, keepdims=True)
    assert label_agreement(foot, want_foot)["f1"] > AGREEMENT[name][1]
