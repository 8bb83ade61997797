"""Checkpoints: files that are whole or not there.

A file begins with one line of JSON, which has the step, the training it belongs to, and the SHA-256 of what follows:
parameters and velocity as little-endian doubles.
"""

import hashlib
import json
import os
from dataclasses import dataclass

import numpy as np

KEPT = 2


class WrongCheckpoint(Exception):
    """A checkpoint that must not be used. The text says why and what to do."""


@dataclass
class State:
    """All that the next step depends on."""

    step: int
    parameters: np.ndarray
    velocity: np.ndarray

    def digest(self):
        """SHA-256 of the numbers."""
        return hashlib.sha256(self._numbers()).hexdigest()

    def _numbers(self):
        return np.concatenate([self.parameters, self.velocity]).astype("<f8").tobytes()

    def to_bytes(self, training):
        """The content of a file. `training` says what the numbers belong to."""
        header = {"step": self.step, "training": training, "sha256": self.digest()}
        return json.dumps(header).encode() + b"\n" + self._numbers()

    @staticmethod
    def from_bytes(content, training):
        """The state in a file, or nothing if the file is damaged."""
        header, _, numbers = content.partition(b"\n")
        try:
            header = json.loads(header)
            step, digest = header["step"], header["sha256"]
        except (ValueError, KeyError, TypeError):
            return None
        if hashlib.sha256(numbers).hexdigest() != digest:
            return None
        if header["training"] != training:
            raise WrongCheckpoint(f"it belongs to the training {header['training']}, this one is {training}")
        parameters, velocity = np.split(np.frombuffer(numbers, "<f8").astype(float), 2)
        return State(step, parameters, velocity)


class Checkpoints:
    """The checkpoints of one worker in a folder."""

    def __init__(self, folder, rank, training):
        self.folder, self.prefix, self.training = folder, f"worker-{rank}-step-", training
        os.makedirs(folder, exist_ok=True)

    def save(self, state):
        """Writes a checkpoint, and removes those that are no longer needed. A worker that is killed at any moment leaves the
        older checkpoints as they are."""
        path = os.path.join(self.folder, f"{self.prefix}{state.step:09}")
        with open(path + ".part", "wb") as file:
            file.write(state.to_bytes(self.training))
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".part", path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        for old in self._paths()[KEPT:]:
            os.remove(old)

    def newest(self, damaged):
        """The newest checkpoint that is whole, or nothing. `damaged` is told of each file that is not."""
        for path in self._paths():
            with open(path, "rb") as file:
                content = file.read()
            try:
                state = State.from_bytes(content, self.training)
            except WrongCheckpoint as wrong:
                raise WrongCheckpoint(f"{path}: {wrong}. Remove the file, or choose another CHECKPOINT_DIR") from None
            if state:
                return state
            damaged(path)
        return None

    def _paths(self):
        """The files, newest first."""
        names = (name for name in os.listdir(self.folder) if name.startswith(self.prefix) and not name.endswith(".part"))
        return [os.path.join(self.folder, name) for name in sorted(names, reverse=True)]
