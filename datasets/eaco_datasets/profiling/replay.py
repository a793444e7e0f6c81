"""Readings of a device kept as JSON lines, and a device that plays them: a GPU's session without the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from eaco_datasets.errors import DataError, EacoError, InputError
from eaco_datasets.profiling.device import Device, DeviceInfo, Reading

_INFO, _READING = TypeAdapter(DeviceInfo), TypeAdapter(Reading)


class RecordedDevice:
    """A device whose readings are also written to a file, one a line after its ``DeviceInfo``; see ``record``."""

    def __init__(self, device: Device, file: IO[bytes]) -> None:
        self._device, self._file = device, file
        self._write(_INFO.dump_json(device.info))

    @property
    def info(self) -> DeviceInfo:
        """Who the recorded device is."""
        return self._device.info

    def worker_environment(self) -> Mapping[str, str]:
        """That of the recorded device."""
        return self._device.worker_environment()

    def read(self) -> Reading:
        """A reading of the device, on file before it is returned.

        Raises:
            DataError: the device is gone.
        """
        reading = self._device.read()
        self._write(_READING.dump_json(reading, exclude_none=True))
        return reading

    def close(self) -> None:
        """Close the file and the device."""
        self._file.close()
        self._device.close()

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()


def record(device: Device, path: Path) -> RecordedDevice:
    """The device, with all its readings written to ``path``, which ``ReplayDevice`` plays.

    Raises:
        EacoError: the file cannot be written.
    """
    try:
        return RecordedDevice(device, path.open("wb"))
    except OSError as error:
        raise EacoError(f"{path}: cannot be written: {error.strerror or error}") from None


class ReplayDevice:
    """Plays recorded readings in their own time; honours ``eaco_datasets.profiling.device.Device``.

    The first call of ``read`` gives the first reading, a later one the reading that was the latest after as long a
    time; ``at_s`` is moved to the clock of the replay. What it says was not measured now: it is ``simulated``.

    Raises:
        InputError: the file cannot be read.
        DataError: it is no recording (file:line), or holds no reading. A last line that was cut off is left out.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
        if len(lines) < 2:
            raise DataError("no reading", where=str(path), expected="a device's description, then readings")
        self._info: DeviceInfo = replace(self._parsed(_INFO, lines[0], 1), simulated=True)
        self._readings: list[Reading] = [
            self._parsed(_READING, line, number) for number, line in enumerate(lines[1:], start=2)
        ]
        self._next, self._offset_s = 0, 0.0
        for number, (sooner, later) in enumerate(pairwise(self._readings), start=3):
            if later.at_s < sooner.at_s:
                raise DataError("time goes back", where=f"{path}:{number}", expected="readings in order of time")

    @property
    def info(self) -> DeviceInfo:
        """Who the recorded device was."""
        return self._info

    def worker_environment(self) -> Mapping[str, str]:
        """No GPU at all: jobs run on the CPU."""
        return {"CUDA_VISIBLE_DEVICES": ""}

    def read(self) -> Reading:
        """The reading of this moment.

        Raises:
            DataError: the recording has ended.
        """
        now_s = self._clock()
        if self._next == 0:
            self._next, self._offset_s = 1, now_s - self._readings[0].at_s
        if now_s - self._offset_s > self._readings[-1].at_s + self._period_s():
            raise DataError("the recording has ended", where=str(self._path), expected="a longer recording")
        while self._next < len(self._readings) and self._readings[self._next].at_s + self._offset_s <= now_s:
            self._next += 1
        reading = self._readings[self._next - 1]
        return replace(reading, at_s=reading.at_s + self._offset_s)

    def close(self) -> None:
        """Nothing to let go of."""

    def _period_s(self) -> float:
        """Mean time between readings: the last one is good for as long."""
        gaps = len(self._readings) - 1
        return (self._readings[-1].at_s - self._readings[0].at_s) / gaps if gaps else 0.0

    def _parsed(self, kind: TypeAdapter[Any], line: bytes, number: int) -> Any:
        try:
            return kind.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise DataError(
                f"no recorded line ({field + ': ' if field else ''}{first['msg']})",
                where=f"{self._path}:{number}",
                expected="a line written by the recorder",
            ) from None
