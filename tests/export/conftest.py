"""One exported stand-in policy for all tests of the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from export.__main__ import ExportParams, export_policy
from tests.export.stand_in import INFO, StandInPolicy


class Exported(NamedTuple):
    """An exported policy beside what it came from."""

    module: StandInPolicy
    data: bytes
    parity: dict[str, Any]
    card: str
    path: Path


@pytest.fixture(scope="session")
def params() -> ExportParams:
    return ExportParams(opset=18, seed=0, tolerance=1e-5)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, params: ExportParams) -> Exported:
    module = StandInPolicy()
    data, parity, card = export_policy(module, INFO, params)
    path = tmp_path_factory.mktemp("exported") / "policy.onnx"
    path.write_bytes(data)
    return Exported(module, data, parity, card, path)
