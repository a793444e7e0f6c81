"""A GPU that is not there, with faults on order: the whole profiler runs on it, and all it says is ``simulated``."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaco_datasets.errors import DataError, InputError, UnknownNameError
from eaco_datasets.gpus import gpu as gpu_spec
from eaco_datasets.profiling.device import DeviceInfo, Reading
from eaco_datasets.profiling.readings import plausible

PREFIX = "fake"
DEFAULT_GPU = "h200"

_KEY = "FAKE-0"
_BUSY = 0.6  # share of the way from idle to the power limit, and of the memory, that the fake GPU is always at
_COUNTER_AT_START_J = 1e6
_ALL_BITS = float(0xFFFFFFFF)  # NVML's "not available"
_FAULT = re.compile(r"(?P<name>[a-z-]+)(@(?P<from_s>[\d.]+)(-(?P<until_s>[\d.]+))?)?(=(?P<value>[-+.\w]+))?")


@dataclass(frozen=True)
class Fault:
    """One fault, a name of ``FAULTS``, from ``from_s`` until before ``until_s``, counted from the first reading."""

    name: str
    from_s: float = 0.0
    until_s: float = math.inf
    value: float | None = None

    @property
    def always(self) -> bool:
        """Whether it is there from the start to the end."""
        return self.from_s == 0 and self.until_s == math.inf


@dataclass(frozen=True)
class _Moment:
    """The healthy device at a moment: seconds since the fault set in, power, and the counter now and then."""

    since_s: float
    power_w: float
    energy_j: float

    @property
    def energy_then_j(self) -> float:
        return self.energy_j - self.power_w * self.since_s


_Effect = Callable[[Fault, _Moment], Mapping[str, Any]]
"""What a fault puts in place of the healthy values at a moment, by field name of ``Reading``."""

_SENSORS = {
    "power-na": ("power_w", "power_average_w"),
    "instant-na": ("power_w",),
    "counter-na": ("energy_j",),
    "util-na": ("gpu_util_pct", "mem_util_pct"),
    "memory-na": ("mem_mib",),
    "clock-na": ("sm_clock_mhz",),
    "temperature-na": ("temperature_c",),
}
_ALL = tuple(dict.fromkeys(field for fields in _SENSORS.values() for field in fields))
_MIG = (*_SENSORS["power-na"], *_SENSORS["counter-na"], *_SENSORS["util-na"])


def _sets(*fields: str, to: float | None) -> _Effect:
    return lambda fault, _: dict.fromkeys(fields, to if to is None or fault.value is None else fault.value)


def _counts(energy_j: Callable[[_Moment], float]) -> _Effect:
    return lambda _, moment: {"energy_j": energy_j(moment)}


def _counter_wrap(fault: Fault, moment: _Moment) -> Mapping[str, Any]:
    return {"energy_j": moment.power_w * math.fmod(moment.since_s, fault.value or math.inf)}


def _flaky(_: Fault, moment: _Moment) -> Mapping[str, Any]:
    return dict.fromkeys(_ALL) if int(moment.since_s / 0.2) % 2 else {}


def _lost(*_: object) -> Mapping[str, Any]:
    raise DataError("the GPU is lost", where=_KEY)


def _error(*_: object) -> Mapping[str, Any]:
    raise RuntimeError("a sensor library failed in a way that nobody foresaw")


_EFFECTS: Mapping[str, tuple[str, _Effect]] = {
    **{name: (f"no {', '.join(fields)}", _sets(*fields, to=None)) for name, fields in _SENSORS.items()},
    "all-na": ("no sensor answers", _sets(*_ALL, to=None)),
    "mig": ("a MIG slice: no power, counter or utilisation of its own", _sets(*_MIG, to=None)),
    "power-spike": ("power beyond any GPU", _sets("power_w", "power_average_w", to=2e12)),
    "power-zero": ("power of 0 W", _sets("power_w", "power_average_w", to=0.0)),
    "power-negative": ("power below 0", _sets("power_w", "power_average_w", to=-5.0)),
    "counter-wrap": ("the energy counter starts again at 0, once or every so many seconds", _counter_wrap),
    "counter-back": ("the energy counter goes back by 500 J", _counts(lambda m: m.energy_j - 500.0)),
    "counter-stuck": ("the energy counter stands still", _counts(lambda m: m.energy_then_j)),
    "counter-fast": (
        "the energy counter runs a thousand times too fast",
        _counts(lambda m: m.energy_then_j + 1000.0 * m.power_w * m.since_s),
    ),
    "util-over": ("utilisation above 100 %", _sets("gpu_util_pct", "mem_util_pct", to=250.0)),
    "memory-over": ("more memory in use than there is", _sets("mem_mib", to=1e9)),
    "sentinel": ("all bits set, which means not available", _sets(*_ALL[:2], *_ALL[3:], to=_ALL_BITS)),
    "nan": ("no number", _sets(*_ALL, to=math.nan)),
    "throttle": ("heat halves the clock", lambda *_: {"throttle_reasons": ("heat-hardware",), "sm_clock_mhz": 750.0}),
    "flaky": ("every second fifth of a second, no sensor answers", _flaky),
    "slow": ("each reading takes 0.3 s, or the seconds given", lambda *_: {}),
    "lost": ("the GPU is lost", _lost),
    "error": ("the sensor library fails with an error of its own", _error),
}

FAULTS: Mapping[str, str] = {name: what for name, (what, _) in _EFFECTS.items()}
"""What each fault does, by its name."""


class FakeDevice:
    """A GPU at constant load, by the figures of its data sheet; honours ``eaco_datasets.profiling.device.Device``.

    Jobs on it run on the CPU. A sensor that a fault takes away from start to end is ``lacking``.
    """

    def __init__(
        self,
        script: Sequence[Fault] = (),
        gpu: str = DEFAULT_GPU,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._script, self._clock, self._sleep = tuple(script), clock, sleep
        self._start_s: float | None = None
        spec = gpu_spec(gpu)
        self._power_w = spec.idle_w + _BUSY * (spec.power_limit_w - spec.idle_w)
        always = {fault.name for fault in script if fault.always}
        lacking = {field: f"fault {name}" for name in _SENSORS if name in always for field in _SENSORS[name]}
        if mig := "mig" in always:
            lacking |= dict.fromkeys(_MIG, "a MIG slice has no sensor of its own")
        sources = {"energy_j": "energy-counter", "power_w": "power-instant", "power_average_w": "power-average"}
        self._info = DeviceInfo(
            key=_KEY,
            gpu=spec.slug,
            kind="mig" if mig else "gpu",
            name=f"fake {spec.name}",
            memory_mib=spec.memory_mib,
            power_limit_w=None if mig else spec.power_limit_w,
            power_source=next((source for field, source in sources.items() if field not in lacking), None),
            lacking=lacking,
            simulated=True,
        )

    @property
    def info(self) -> DeviceInfo:
        """Who it is."""
        return self._info

    def worker_environment(self) -> Mapping[str, str]:
        """No GPU at all: jobs run on the CPU."""
        return {"CUDA_VISIBLE_DEVICES": ""}

    def read(self) -> Reading:
        """The sensors at this moment of the script.

        Raises:
            DataError: the script has lost the GPU by now.
        """
        now_s = self._clock()
        self._start_s = now_s if self._start_s is None else self._start_s
        elapsed_s = now_s - self._start_s
        active = [fault for fault in self._script if fault.from_s <= elapsed_s < fault.until_s]
        for fault in active:
            if fault.name == "slow":
                self._sleep(0.3 if fault.value is None else fault.value)
        energy_j = _COUNTER_AT_START_J + self._power_w * elapsed_s
        raw: dict[str, Any] = {
            "power_w": self._power_w,
            "power_average_w": self._power_w,
            "energy_j": energy_j,
            "gpu_util_pct": 100 * _BUSY,
            "mem_util_pct": 50 * _BUSY,
            "mem_mib": _BUSY * self.info.memory_mib,
            "sm_clock_mhz": 1500.0,
            "temperature_c": 55.0,
        }
        for fault in active:
            moment = _Moment(elapsed_s - fault.from_s, self._power_w, energy_j)
            raw |= _EFFECTS[fault.name][1](fault, moment)
        limit_w, memory_mib = self.info.power_limit_w, self.info.memory_mib
        return plausible(Reading(at_s=now_s, **raw), power_limit_w=limit_w, memory_mib=memory_mib)

    def close(self) -> None:
        """Nothing to let go of."""


def fake_device(spec: str) -> FakeDevice:
    """The device of a spec such as ``fake``, ``fake:mig`` or ``fake:gpu=a100-40,throttle@2-4,slow=0.5,lost@30``.

    Each fault is a name of ``FAULTS``, with ``@from`` or ``@from-until`` in seconds after the first reading, and
    ``=value`` where it takes one.

    Raises:
        InputError: the spec is malformed.
        UnknownNameError: no such fault or GPU.
    """
    kind, _, listed = spec.partition(":")
    if kind != PREFIX:
        raise InputError(f"{spec!r} is no fake device", where="device", expected="fake:<fault>,<fault> ...")
    gpu, script = DEFAULT_GPU, []
    for part in filter(None, (part.strip() for part in listed.split(","))):
        found = _FAULT.fullmatch(part)
        if found is None:
            raise InputError(
                f"fault {part!r} is malformed", where="device", expected="name, name@from-until or name=value"
            )
        if found["name"] == "gpu" and found["value"]:
            gpu = found["value"]
            continue
        if found["name"] not in FAULTS:
            raise UnknownNameError("fault", found["name"], FAULTS, where="device")
        script.append(_fault(part, found))
    return FakeDevice(script, gpu)


def _fault(part: str, found: re.Match[str]) -> Fault:
    try:
        from_s, until_s = float(found["from_s"] or 0), float(found["until_s"] or math.inf)
        value = None if found["value"] is None else float(found["value"])
    except ValueError:
        raise InputError(
            f"fault {part!r} is malformed", where="device", expected="seconds and values as numbers"
        ) from None
    if until_s <= from_s:
        raise InputError(f"fault {part!r} ends before it starts", where="device", expected="name@from-until, in s")
    return Fault(found["name"], from_s, until_s, value)
