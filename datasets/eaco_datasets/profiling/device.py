"""What the profiler asks of a device: who it is, and a reading of its sensors. One protocol for GPU, CPU and fakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class DeviceInfo:
    """One device, as it is when profiling starts.

    ``key`` identifies it for good: a GPU's UUID (never its index), a CPU's model and core list. ``gpu`` is the slug
    that profile rows carry (``h200``, ``cpu-2core``). ``kind`` is what it is: ``gpu`` a whole GPU, ``mig`` a slice of
    one, ``cpu`` cores. ``lacking`` says why a quantity is never there, by field name of ``Reading``: it is null in
    every row. ``sensors`` names the call that answers for a field that is there. ``power_source`` names what measures
    power: ``energy-counter``, ``power-instant``, ``power-average`` or ``rapl``. What a ``simulated`` device says was
    not measured here and now: rows made with it are ``simulated`` too.
    """

    key: str
    gpu: str
    kind: str
    name: str
    memory_mib: float
    power_limit_w: float | None
    power_source: str | None
    versions: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    sensors: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False


@dataclass(frozen=True)
class Reading:
    """The sensors at one moment; None is not known, never 0 or -1.

    ``at_s`` is ``time.monotonic()``. ``energy_j`` counts up from any origin and may wrap. ``throttle_reasons`` are
    those that slow the device down (power cap, heat), not idleness or the user's own clocks. ``impossible`` counts the
    values of this reading that were dropped since they cannot be.
    """

    at_s: float
    power_w: float | None = None
    power_average_w: float | None = None
    energy_j: float | None = None
    gpu_util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_mib: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    impossible: int = 0


class Device(Protocol):
    """A device that jobs are measured on. ``read`` is called from one thread, the sampler's."""

    @property
    def info(self) -> DeviceInfo:
        """Who it is."""
        ...

    def worker_environment(self) -> Mapping[str, str]:
        """Environment variables that put a worker process on this device and no other."""
        ...

    def read(self) -> Reading:
        """All sensors now. A sensor that fails is None in this reading; a device that is gone raises ``DataError``."""
        ...

    def close(self) -> None:
        """Let go of the sensors."""
        ...
