"""A trained policy: reads ``policy.onnx``, refuses what does not match, and maps observations to actions.

A few rows run as a program of one small kernel (`engine.program`), which at load must give what onnxruntime gives;
more rows, and graphs that the program does not know, run in onnxruntime.

The session runs on one CPU thread without spinning, since the engine's own threads are busy with the characters.
Everything the file must hold is checked once, when it is loaded (`policy_checks`, `policy_metadata`); a step checks
shapes only. Bodies in another order are mapped by name on the way in and out, so callers only ever see
`engine.skeleton.BODY_NAMES`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state  # pyright: ignore[reportAttributeAccessIssue]

from engine import policy_checks as checks
from engine.errors import InputError
from engine.policy_layout import body_gather, width
from engine.policy_metadata import PolicyMetadata, check_method, read_metadata
from engine.program.compiler import Program
from engine.skeleton import BODY_NAMES

PROGRAM_ROWS = 2
"""Most rows that the program takes: it runs them one by one, while onnxruntime reads its weights once for all."""
PROGRAM_TOLERANCE = 1e-5
"""Largest difference of program and onnxruntime, times the largest number of the row where that is above 1."""
_SEED = 20


class Policy:
    """One loaded policy. Use `Policy.load`; the constructor takes the bytes of a file that is already in memory.

    The program's memory belongs to the policy: only one thread at a time may call it.
    """

    def __init__(self, data: bytes, name: str | os.PathLike[str], method: str | None = None) -> None:
        """Check the bytes of a policy file and build its session.

        Args:
            data: Content of the file.
            name: What to call it in errors; external data is looked for beside it, only to say where it is.
            method: Method the policy must be of; None for any.

        Raises:
            InputError: The file does not match; names the file, the key, what was found and what was expected.
        """
        model = checks.parse_model(name, data)
        obs_width, action_width = checks.check_inputs_outputs(name, model)
        metadata, order = read_metadata(name, model)
        check_method(name, metadata, method)
        checks.check_widths(name, metadata, obs_width, action_width)
        checks.check_weights(name, model)
        self._session = _session(name, data)
        self._name = name
        self._obs_columns = self._action_columns = None
        if (order != np.arange(len(order))).any():
            self._obs_columns = body_gather(metadata.observation, np.argsort(order))
            self._action_columns = body_gather(metadata.action, order)
            metadata = _in_our_order(metadata, order)
        self.metadata: PolicyMetadata = metadata
        self.obs_width = width(metadata.observation)
        self.action_width = width(metadata.action)
        self._binding = self._session.io_binding()
        self._by_program = False
        self._bound: tuple[np.ndarray, np.ndarray] | None = None
        self._program: Program | None = None
        checks.check_recorded(name, metadata, self.act)
        if self._obs_columns is None:
            self._program = self._checked(Program.compile(model))

    @classmethod
    def load(cls, path: str | os.PathLike[str], method: str | None = None) -> Policy:
        """Read a policy file.

        Args:
            path: The ``.onnx`` file.
            method: Method the policy must be of, such as ``unified``; None for any.

        Returns:
            The policy, ready to act.

        Raises:
            InputError: The file is missing or does not match what the engine runs, in one line.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            reason = (error.strerror or "error").lower()
            raise InputError.at(path, None, f"cannot be read (found: {reason}, expected an ONNX policy)") from None
        return cls(data, path, method)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Evaluate the policy.

        Args:
            obs: Observation rows in the layout of ``metadata.observation``, float32, shape (n, obs_width).

        Returns:
            Action rows in the layout of ``metadata.action``, float32, shape (n, action_width), a new array.

        Raises:
            InputError: The rows have another width.
        """
        obs = np.ascontiguousarray(obs, dtype=np.float32)
        self._check_rows(obs)
        if self._program is not None and 0 < len(obs) <= PROGRAM_ROWS:
            action = np.empty((len(obs), self.action_width), dtype=np.float32)
            self._program.run_into(action, obs)
            return action
        if self._obs_columns is not None:
            obs = np.ascontiguousarray(obs[:, self._obs_columns])
        try:
            action = np.asarray(self._session.run((checks.ACTION_NAME,), {checks.OBS_NAME: obs})[0])
        except _RUNTIME_ERRORS as error:
            raise checks.explain_runtime_error(self._name, error) from None
        return action if self._action_columns is None else action[:, self._action_columns]

    def act_into(self, out: np.ndarray, obs: np.ndarray) -> None:
        """Evaluate the policy into an array of the caller, which a control loop reuses each step.

        The two arrays are checked, and bound to the session where it runs them, on the first call; as long as the same
        two arrays come again, a call copies nothing and allocates nothing.

        Args:
            out: Receives the action rows, float32, C-contiguous, shape (n, action_width).
            obs: Observation rows, float32, C-contiguous, shape (n, obs_width).

        Raises:
            InputError: An array has another type, layout or shape.
        """
        if self._bound is None or self._bound[0] is not out or self._bound[1] is not obs:
            self._bound = None
            self._check_rows(obs)
            self._check_array(checks.OBS_NAME, obs, obs.shape)
            self._check_array(checks.ACTION_NAME, out, (obs.shape[0], self.action_width))
            if self._obs_columns is not None or not obs.shape[0]:
                out[:] = self.act(obs)
                return
            self._by_program = self._program is not None and len(obs) <= PROGRAM_ROWS
            if not self._by_program:
                self._binding.bind_input(checks.OBS_NAME, "cpu", 0, np.float32, obs.shape, obs.ctypes.data)
                self._binding.bind_output(checks.ACTION_NAME, "cpu", 0, np.float32, out.shape, out.ctypes.data)
            self._bound = (out, obs)
        if self._by_program and self._program is not None:
            self._program.run_into(out, obs)
        else:
            self._session.run_with_iobinding(self._binding)

    @property
    def executor(self) -> str:
        """What runs the policy: ``numba and onnxruntime``, or ``onnxruntime`` alone."""
        return "onnxruntime" if self._program is None else "numba and onnxruntime"

    def _checked(self, program: Program | None) -> Program | None:
        """The program, if it gives onnxruntime's actions for the recorded, a zero and a large row.

        They run alone and as one batch there, which shows a graph whose rows depend on each other.
        """
        if program is None or (program.obs_width, program.action_width) != (self.obs_width, self.action_width):
            return None
        obs = np.zeros((3, self.obs_width), dtype=np.float32)
        obs[0] = self.metadata.recorded_obs
        obs[2] = 10.0 * np.random.default_rng(_SEED).standard_normal(self.obs_width)
        found = np.empty((3, self.action_width), dtype=np.float32)
        program.run_into(found, obs)
        for expected in (self.act(obs), np.concatenate([self.act(row[None]) for row in obs])):
            tolerance = PROGRAM_TOLERANCE * np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True))
            if not (np.abs(found - expected) <= tolerance).all():
                return None
        return program

    def _check_array(self, key: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
        if array.dtype != np.float32 or array.shape != shape or not array.flags.c_contiguous:
            layout = "C-contiguous" if array.flags.c_contiguous else "strided"
            found = f"{layout} {array.dtype} {list(array.shape)}"
            checks.refuse(self._name, f"{key}: array", found, f"C-contiguous float32 {list(shape)}")

    def _check_rows(self, obs: np.ndarray) -> None:
        if obs.ndim != 2 or obs.shape[1] != self.obs_width:
            checks.refuse(self._name, "obs: shape", list(obs.shape), f"[n, {self.obs_width}]")


_RUNTIME_ERRORS = (
    RuntimeError,
    ValueError,
    MemoryError,
    *(
        error
        for error in vars(onnxruntime_pybind11_state).values()
        if isinstance(error, type) and issubclass(error, Exception)
    ),
)


def _session(name: str | os.PathLike[str], data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except _RUNTIME_ERRORS as error:
        raise checks.explain_runtime_error(name, error) from None


def _in_our_order(metadata: PolicyMetadata, order: np.ndarray) -> PolicyMetadata:
    return dataclasses.replace(
        metadata,
        body_names=tuple(BODY_NAMES),
        default_pose=metadata.default_pose[order],
        recorded_obs=metadata.recorded_obs[body_gather(metadata.observation, order)],
        recorded_action=metadata.recorded_action[body_gather(metadata.action, order)],
    )
