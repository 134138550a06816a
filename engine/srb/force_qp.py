r"""Contact-force QP: building it from contacts, a wanted force and torque, with every input checked.

``min_f  1/2 w_F |F - F_des|^2 + 1/2 w_T |T - T_des|^2 + ridge/2 |f|^2``   subject to  ``f_i in K_i``

``F = m g + sum f_i`` is the net force and ``T = sum (p_i - com) x f_i`` the torque about the centre of mass, world
frame. ``K_i`` is a friction pyramid inscribed in the cone's square: ``|tangential| <= mu_i normal`` in two directions,
``0 <= normal <= fmax_i``; or, as the papers have it, the cone of the four edges ``(+-mu, 0, 1), (0, +-mu, 1)``.

Forces are divided by ``scale_n`` (the weight, or the wanted wrench where that is far larger) before anything is solved,
so that a gram and a megatonne are the same problem. ``ridge`` is in those scaled units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.errors import InputError

CONES = ("pyramid", "edges")
DEFAULT_RIDGE = 1e-6
_LARGEST_SCALED = 100.0  # wanted wrench in weights, above which it sets the scale itself
_SMALLEST_SCALE = 1e-290


class Contact(NamedTuple):
    """One contact point, world frame."""

    point: ArrayLike
    """Position [m], shape (3,)."""
    normal: ArrayLike
    """Direction in which the ground pushes, any length, shape (3,)."""
    mu: float
    """Friction coefficient."""
    fmax: float | None = None
    """Largest normal force [N]; None for no bound."""
    tangent: ArrayLike | None = None
    """Direction of the pyramid's first axis, shape (3,); None for the world x axis (y where the normal is along x)."""


@dataclass(frozen=True)
class ForceQP:
    """A checked contact-force problem in scaled form: ``min 1/2 |A f - b|^2 + ridge/2 |f|^2``, ``f`` in the cone.

    Attributes:
        A: Square root of the metric times the contact map, shape (6, columns): three columns per contact
            (tangent 1, tangent 2, normal) for the pyramid, four edges per contact for ``cone == "edges"``.
        b: Square root of the metric times the wanted contact wrench over ``scale_n``, shape (6,).
        mu: Friction coefficients, shape (n,).
        fmax: Normal force bounds over ``scale_n``, infinity for none, shape (n,).
        basis_w: World directions of the columns [scaled force to world force], shape (columns, 3).
        point_w: Contact points less the centre of mass [m], shape (n, 3).
        ridge: Weight of the force variables, scaled.
        scale_n: Force unit [N].
        cone: ``"pyramid"`` or ``"edges"``.
        weight_force_w: ``m g`` [N], shape (3,).
    """

    A: NDArray[np.float64]
    b: NDArray[np.float64]
    mu: NDArray[np.float64]
    fmax: NDArray[np.float64]
    basis_w: NDArray[np.float64]
    point_w: NDArray[np.float64]
    ridge: float
    scale_n: float
    cone: str
    weight_force_w: NDArray[np.float64]

    @property
    def n_contacts(self) -> int:
        """Number of contacts; 0 in flight."""
        return len(self.mu)


def build_force_qp(
    mass: float,
    com: ArrayLike,
    gravity: ArrayLike,
    F_des: ArrayLike,
    T_des: ArrayLike,
    contacts: Sequence[Contact | Mapping[str, Any]],
    *,
    fmax: float | None = None,
    weights: ArrayLike = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    ridge: float = DEFAULT_RIDGE,
    cone: str = "pyramid",
    step: int | None = None,
) -> ForceQP:
    """Build the contact-force QP of one instant.

    Args:
        mass: Total mass [kg].
        com: Centre of mass, world frame [m], shape (3,).
        gravity: Gravity [m/s^2], shape (3,); any direction, zero allowed.
        F_des: Wanted net force (gravity included), world frame [N], shape (3,).
        T_des: Wanted torque about the centre of mass, world frame [N m], shape (3,).
        contacts: `Contact` or mapping with the same keys; empty in flight.
        fmax: Bound on every normal force [N] for contacts that have none of their own.
        weights: Metric of force (3) and torque (3) errors [1/N^2, 1/(N m)^2, relative], > 0, shape (6,).
        ridge: Weight of the scaled forces, > 0; it makes the answer unique and costs about ``ridge`` of the wrench.
        cone: ``"pyramid"`` (sides along the tangents) or ``"edges"`` (generators along the tangents, no ``fmax``).
        step: Simulation step, named in errors.

    Returns:
        The problem; `engine.srb.qp.solve_qp` solves it.

    Raises:
        InputError: A value is missing, of the wrong shape, not finite or out of range; the text names the contact, the
            field, what was found and what was expected.
    """
    place = "" if step is None else f"step {step}: "
    mass = _number(mass, f"{place}mass", positive=True)
    com_w = _vector(com, f"{place}com", 3)
    gravity_w = _vector(gravity, f"{place}gravity", 3)
    net_force_w = _vector(F_des, f"{place}F_des", 3)
    torque_w = _vector(T_des, f"{place}T_des", 3)
    metric = _vector(weights, f"{place}weights", 6)
    if not np.all(metric > 0.0):
        raise InputError(f"{place}weights must be positive (found {metric.tolist()}, expected 6 numbers > 0)")
    root_weights = np.sqrt(metric)
    ridge = _number(ridge, f"{place}ridge", positive=True)
    if cone not in CONES:
        raise InputError(f"{place}cone is unknown (found {cone!r}, expected one of {', '.join(CONES)})")
    common_fmax = math.inf if fmax is None else _number(fmax, f"{place}fmax", infinite=True)
    if isinstance(contacts, (str, bytes, Mapping)) or not isinstance(contacts, Sequence):
        raise InputError(
            f"{place}contacts is not a list (found {type(contacts).__name__}, expected a list of contacts)"
        )

    points, frames, mus, caps = [], [], [], []
    for index, contact in enumerate(contacts):
        point, frame, mu, cap = _read_contact(contact, f"{place}contact {index}: ", common_fmax)
        points.append(point)
        frames.append(frame)
        mus.append(mu)
        caps.append(cap)
        if cone == "edges" and math.isfinite(cap):
            raise InputError(
                f"{place}contact {index}: fmax is not possible with cone 'edges' (found {cap}, expected none)"
            )

    weight_force_w = mass * gravity_w
    wanted_w = np.concatenate([net_force_w - weight_force_w, torque_w])
    scale = float(np.linalg.norm(weight_force_w))
    wanted = float(np.linalg.norm(wanted_w))
    if not math.isfinite(scale) or not math.isfinite(wanted):
        raise InputError(f"{place}wanted wrench is too large (found {wanted} N, expected a finite number)")
    if wanted > _LARGEST_SCALED * scale:
        scale = wanted
    if scale < _SMALLEST_SCALE:
        scale = 1.0

    n = len(points)
    point_w = np.array(points, dtype=np.float64).reshape(n, 3) - com_w
    mu_array = np.array(mus, dtype=np.float64)
    basis_w = np.array(frames, dtype=np.float64).reshape(n, 3, 3)
    if cone == "edges":
        basis_w = _edges(basis_w, mu_array)
    lever_w = np.cross(point_w[:, None, :], basis_w)
    A = np.concatenate([basis_w, lever_w], axis=2).reshape(-1, 6).T
    return ForceQP(
        A=np.ascontiguousarray(root_weights[:, None] * A),
        b=root_weights * (wanted_w / scale),
        mu=mu_array,
        fmax=np.array(caps, dtype=np.float64) / scale,
        basis_w=basis_w.reshape(-1, 3),
        point_w=point_w,
        ridge=ridge,
        scale_n=scale,
        cone=cone,
        weight_force_w=weight_force_w,
    )


def contact_frame(normal: NDArray[np.float64], tangent: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Rows (tangent 1, tangent 2, normal) of a right-handed contact frame for a unit normal, shape (3, 3).

    Tangent 1 is ``tangent``, made perpendicular to the normal; without it the world x axis, or y where the normal is
    within 26 degrees of x.
    """
    if tangent is None:
        tangent = np.array([1.0, 0.0, 0.0]) if abs(normal[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    first = tangent - normal * (normal @ tangent)
    first = first / np.linalg.norm(first)
    return np.array([first, np.cross(normal, first), normal])


def _edges(basis_w: NDArray[np.float64], mu: NDArray[np.float64]) -> NDArray[np.float64]:
    """The four edges of each pyramid, shape (n, 4, 3), from frames (n, 3, 3): +t1, -t1, +t2, -t2."""
    first, second, normal = (basis_w[:, k] for k in range(3))
    side = mu[:, None]
    return np.stack(
        [normal + side * first, normal - side * first, normal + side * second, normal - side * second], axis=1
    )


def _read_contact(
    contact: Any, place: str, common_fmax: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
    """Check one contact; returns point, frame, mu and fmax."""
    if isinstance(contact, Contact):
        fields: Mapping[str, Any] = contact._asdict()
    elif isinstance(contact, Mapping):
        fields = contact
    else:
        raise InputError(f"{place}not a contact (found {type(contact).__name__}, expected point, normal and mu)")
    unknown = sorted(set(map(str, fields)) - set(Contact._fields))
    if unknown:
        raise InputError(f"{place}unknown key (found {unknown[0]!r}, expected {', '.join(Contact._fields)})")
    for key in ("point", "normal", "mu"):
        if key not in fields:
            raise InputError(
                f"{place}{key} is missing (found {', '.join(map(str, fields)) or 'nothing'}, expected {key})"
            )
    point = _vector(fields["point"], f"{place}point", 3)
    normal = _direction(fields["normal"], f"{place}normal")
    mu = _number(fields["mu"], f"{place}mu")
    cap = fields.get("fmax")
    fmax = common_fmax if cap is None else _number(cap, f"{place}fmax", infinite=True)
    tangent = fields.get("tangent")
    if tangent is not None:
        tangent = _direction(tangent, f"{place}tangent")
        if np.linalg.norm(np.cross(normal, tangent)) < 1e-6:
            raise InputError(f"{place}tangent is along the normal (found {_show(fields['tangent'])}, expected another)")
    return point, contact_frame(normal, tangent), mu, fmax


def _number(value: Any, name: str, *, positive: bool = False, infinite: bool = False) -> float:
    """A real number >= 0 (> 0 where ``positive``), finite unless ``infinite``."""
    expected = "a number > 0" if positive else "a number >= 0"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} is not a number (found {_show(value)}, expected {expected})")
    number = float(value)
    if math.isnan(number) or (math.isinf(number) and not (infinite and number > 0.0)):
        raise InputError(f"{name} is not finite (found {number}, expected {expected})")
    if number < 0.0 or (positive and number == 0.0):
        raise InputError(f"{name} is out of range (found {number}, expected {expected})")
    return number


def _vector(value: Any, name: str, size: int) -> NDArray[np.float64]:
    """A finite float64 vector of ``size`` numbers."""
    try:
        raw = np.asarray(value)
        vector = raw.astype(np.float64) if raw.dtype.kind in "iuf" else None
    except (TypeError, ValueError, OverflowError):
        vector = None
    if vector is None or vector.shape != (size,):
        raise InputError(f"{name} is not a vector (found {_show(value)}, expected {size} numbers)")
    if not np.all(np.isfinite(vector)):
        raise InputError(f"{name} is not finite (found {_show(value)}, expected {size} finite numbers)")
    return vector


def _direction(value: Any, name: str) -> NDArray[np.float64]:
    """A unit vector from a vector of any length but zero."""
    vector = _vector(value, name, 3)
    largest = float(np.max(np.abs(vector)))
    if largest == 0.0:
        raise InputError(f"{name} has length 0 (found {_show(value)}, expected a direction)")
    vector = vector / largest
    return vector / np.linalg.norm(vector)


def _show(value: Any) -> str:
    """The value on one short line."""
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
