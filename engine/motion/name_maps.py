"""Joint names of the usual motion-capture skeletons, and how a file's skeleton is recognised.

A map gives, per anatomical role, the names under which one family of files knows it; the first name present is taken.
Names are compared without case, without a namespace (``mixamorig7:``, ``rig:``) and without separators.
"""

from __future__ import annotations

import difflib
import re

from engine.errors import InputError

#: Roles that a skeleton must have; `toe`, `head` and `wrist` may be missing or stand as end sites.
REQUIRED = (
    "hips",
    "chest",
    "neck",
    *(f"{side}_{part}" for side in ("left", "right") for part in ("upleg", "knee", "ankle", "arm", "elbow")),
)


def _sided(upleg: str, knee: str, ankle: str, toe: str, arm: str, elbow: str, wrist: str, sides: tuple[str, str]):
    """Names of both sides from patterns in which ``*`` stands for the side."""
    parts = {"upleg": upleg, "knee": knee, "ankle": ankle, "toe": toe, "arm": arm, "elbow": elbow, "wrist": wrist}
    return {
        f"{side}_{part}": tuple(p.replace("*", word) for p in pattern.split("|"))
        for side, word in zip(("left", "right"), sides, strict=True)
        for part, pattern in parts.items()
    }


#: Family -> role -> names, most wanted first.
NAME_MAPS: dict[str, dict[str, tuple[str, ...]]] = {
    "lafan1, cmu, mixamo, fair": {
        "hips": ("Hips", "Pelvis"),
        "chest": ("Spine3", "Spine2", "Spine1", "Chest", "Spine"),
        "neck": ("Neck", "Neck1", "Head"),
        "head": ("Head", "Neck1"),
        **_sided(
            "*UpLeg",
            "*Leg",
            "*Foot",
            "*ToeBase|*Toe|*Toes|*Foot_end|*Foot_End",
            "*Arm",
            "*ForeArm",
            "*Hand",
            ("Left", "Right"),
        ),
    },
    "motionbuilder": {
        "hips": ("Hips",),
        "chest": ("Chest4", "Chest3", "Chest2", "Chest"),
        "neck": ("Neck", "lowerneck", "Head"),
        "head": ("Head",),
        **_sided("*Hip", "*Knee", "*Ankle", "*Toe", "*Shoulder", "*Elbow", "*Wrist", ("Left", "Right")),
    },
    "cmu asf": {
        "hips": ("root",),
        "chest": ("thorax", "upperback"),
        "neck": ("lowerneck", "upperneck"),
        "head": ("head", "upperneck"),
        **_sided("*femur", "*tibia", "*foot", "*toes", "*humerus", "*radius", "*wrist|*hand", ("l", "r")),
    },
    "bandai namco": {
        "hips": ("Hips",),
        "chest": ("Chest", "Spine"),
        "neck": ("Neck",),
        "head": ("Head",),
        **_sided(
            "UpperLeg_*",
            "LowerLeg_*",
            "Foot_*",
            "Toes_*|Toe_*",
            "UpperArm_*",
            "LowerArm_*",
            "Hand_*",
            ("L", "R"),
        ),
    },
    "blender": {
        "hips": ("pelvis", "hips", "spine"),
        "chest": ("chest", "spine.003", "spine.002", "spine.001"),
        "neck": ("neck", "spine.004"),
        "head": ("head", "face", "spine.006"),
        **_sided("thigh.*", "shin.*", "foot.*", "toe.*", "upper_arm.*", "forearm.*", "hand.*", ("L", "R")),
    },
    "rokoko": {
        "hips": ("Hips",),
        "chest": ("Spine4", "Spine3", "Spine2", "Chest"),
        "neck": ("Neck",),
        "head": ("Head",),
        **_sided("*Thigh", "*Shin", "*Foot", "*Toe|*ToeBase", "*Arm", "*ForeArm|*Forearm", "*Hand", ("Left", "Right")),
    },
    "soma": {
        "hips": ("Hips",),
        "chest": ("Chest",),
        "neck": ("Neck1",),
        "head": ("Head",),
        **_sided("*Leg", "*Shin", "*Foot", "*ToeBase", "*Arm", "*ForeArm", "*Hand", ("Left", "Right")),
    },
    "unreal": {
        "hips": ("pelvis",),
        "chest": ("spine_05", "spine_03", "spine_02"),
        "neck": ("neck_01",),
        "head": ("head",),
        **_sided("thigh_*", "calf_*", "foot_*", "ball_*", "upperarm_*", "lowerarm_*", "hand_*", ("l", "r")),
    },
    "games105": {
        "hips": ("RootJoint",),
        "chest": ("lowerback_torso",),
        "neck": ("torso_head",),
        "head": ("torso_head",),
        **_sided("*Hip", "*Knee", "*Ankle", "*ToeJoint", "*Shoulder", "*Elbow", "*Wrist", ("l", "r")),
    },
    "deepmimic": {
        "hips": ("root",),
        "chest": ("chest",),
        "neck": ("neck",),
        "head": ("neck",),
        **_sided("*_hip", "*_knee", "*_ankle", "*_toe", "*_shoulder", "*_elbow", "*_wrist", ("left", "right")),
    },
}


def plain_name(name: str) -> str:
    """The name without its namespace, case and separators: ``mixamorig7:LeftUpLeg`` -> ``leftupleg``."""
    name = re.sub(r"^mixamorig\d*[:_]", "", name.strip(), flags=re.IGNORECASE)
    name = name.rsplit(":", 1)[-1]
    return re.sub(r"[\s_.\-]", "", name).lower()


def find_roles(joint_names: list[str], source: str = "skeleton") -> tuple[str, dict[str, int]]:
    """Recognise a skeleton by its joint names.

    Args:
        joint_names: Names in the file.
        source: What to call the file in an error.

    Returns:
        Name of the family and joint index per role; optional roles only where found.

    Raises:
        InputError: No family has all required roles; the text lists what the nearest one misses, names near to
            those, and the joints found.
    """
    index: dict[str, int] = {}
    for i, name in enumerate(joint_names):
        index.setdefault(plain_name(name), i)
    best: tuple[int, int, str, dict[str, int]] | None = None
    for family, roles in NAME_MAPS.items():
        found: dict[str, int] = {}
        for role, names in roles.items():
            hit = next((index[plain_name(n)] for n in names if plain_name(n) in index), None)
            if hit is not None:
                found[role] = hit
        score = (sum(role in found for role in REQUIRED), len(found))
        if best is None or score > best[:2]:
            best = (*score, family, found)
    assert best is not None
    _, _, family, found = best
    missing = [role for role in REQUIRED if role not in found]
    if missing:
        near = []
        for role in missing:
            wanted = NAME_MAPS[family][role][0]
            match = difflib.get_close_matches(plain_name(wanted), list(index), n=2, cutoff=0.5)
            near.append(f"{role} ({' or '.join(joint_names[index[m]] for m in match) or 'nothing near'})")
        raise InputError.at(
            source,
            None,
            f"unknown joint names: nearest is the {family} skeleton, without {', '.join(near)} "
            f"(found {', '.join(joint_names)}; expected one of {', '.join(NAME_MAPS)})",
        )
    return family, found
