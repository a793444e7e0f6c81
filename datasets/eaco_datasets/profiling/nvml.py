"""NVIDIA GPUs through NVML: the only module that touches it. It reads sensors and never changes a setting."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from eaco_datasets.errors import DataError, InputError, MissingExtraError, UnknownNameError
from eaco_datasets.gpus import gpu_slug
from eaco_datasets.profiling.device import DeviceInfo, Reading
from eaco_datasets.profiling.readings import plausible
from eaco_datasets.profiling.visible import BY_BUS, ORDER, VISIBLE, Card, Slice, key_of, visible_keys

_MIB = 2.0**20
_WHOLE_CARD = "NVML measures the whole card, not a MIG slice"
_AVERAGED_SINCE = "NVML_DEVICE_ARCH_AMPERE"
_STILL_INSTANT = re.compile(r"\b(A100|A800|A30)\b")
"""``nvmlDeviceGetPowerUsage`` is averaged over a second from Ampere on, except on GA100 (NVML API reference)."""

_SLOWED_BY = {
    "SwPowerCap": "power-cap",
    "HwSlowdown": "hardware-slowdown",
    "SyncBoost": "sync-boost",
    "SwThermalSlowdown": "heat-software",
    "HwThermalSlowdown": "heat-hardware",
    "HwPowerBrakeSlowdown": "power-brake",
}
"""Clock event reasons of NVML that slow a GPU down; the others are idleness and settings of the user."""

_Sensor = tuple[str, Callable[[], float]]


class NvmlDevice:
    """A GPU or MIG slice by its UUID; honours ``eaco_datasets.profiling.device.Device``.

    Each sensor is tried once at the start. One that the GPU, the driver or the user's rights do not have is named in
    ``info.lacking`` with NVML's reason and not asked again. Nothing that NVML knows of a whole card only (power,
    utilisation) is given for a slice of it; clock, temperature and throttling are the card's, which its slices share.

    Raises:
        MissingExtraError: ``nvidia-ml-py`` is not installed.
        InputError: no driver, or no GPU with this UUID.
    """

    def __init__(self, key: str, nvml: Any = None) -> None:
        self._nvml = nvml = nvml or _nvml()
        with _explained(nvml):
            nvml.nvmlInit()
        self._open = True
        try:
            with _explained(nvml, key):
                self._handle = nvml.nvmlDeviceGetHandleByUUID(key)
                mig = key.upper().startswith("MIG-")
                self._card = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self._handle) if mig else self._handle
                product, memory_mib = nvml.nvmlDeviceGetName(self._card), self._memory_mib("total")
            limit_w = None if mig else self._power_limit_w()
            self._lacking: dict[str, str] = {}
            self._sensors = self._supported(mig, product)
            self._throttle_call = self._throttle_source()
        except BaseException:
            self.close()
            raise
        sources = {field: name for field, (name, _) in self._sensors.items()}
        by = {"energy_j": "energy-counter", "power_w": "power-instant", "power_average_w": "power-average"}
        self._info = DeviceInfo(
            key=key,
            gpu=_slug(product),
            kind="mig" if mig else "gpu",
            name=self._slice_name(product) if mig else product,
            memory_mib=memory_mib,
            power_limit_w=limit_w,
            power_source=next((by[field] for field in by if field in sources), None),
            versions=_versions(nvml),
            lacking=self._lacking,
            sensors=sources | ({"throttle_reasons": self._throttle_call} if self._throttle_call else {}),
        )

    @property
    def info(self) -> DeviceInfo:
        """Who it is."""
        return self._info

    def worker_environment(self) -> Mapping[str, str]:
        """The UUID as the only visible device, so that jobs run on the card whose sensors are read."""
        return {VISIBLE: self.info.key, ORDER: BY_BUS}

    def read(self) -> Reading:
        """All sensors now.

        Raises:
            DataError: the GPU is lost.
        """
        at_s = time.monotonic()
        values: dict[str, Any] = {field: self._value(call) for field, (_, call) in self._sensors.items()}
        raw = Reading(at_s=at_s, **values, throttle_reasons=self._throttle_reasons())
        return plausible(raw, power_limit_w=self.info.power_limit_w, memory_mib=self.info.memory_mib)

    def close(self) -> None:
        """Let go of NVML; a second time does nothing."""
        if self._open:
            self._open = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return  # the driver has gone first

    def _value(self, call: Callable[[], float]) -> float | None:
        """A sensor's value; None when it fails this time."""
        try:
            return float(call())
        except self._nvml.NVMLError as error:
            if _is_lost(self._nvml, error):
                raise DataError(f"the GPU is lost: {error}", where=self.info.key) from None
            return None

    def _supported(self, mig: bool, product: str) -> dict[str, _Sensor]:
        """The first sensor of each field that the GPU has, by field name of ``Reading``."""
        found: dict[str, _Sensor] = {}
        for field, sensors in self._choices(mig, product).items():
            reasons = []
            for name, call in sensors:
                refusal = self._refusal(call)
                if refusal is None:
                    found[field] = (name, call)
                    break
                reasons.append(f"{name}: {refusal}")
            else:
                self._lacking[field] = "; ".join(reasons) or _WHOLE_CARD
        return found

    def _choices(self, mig: bool, product: str) -> dict[str, list[_Sensor]]:
        nvml, handle, card = self._nvml, self._handle, self._card
        usage: _Sensor = ("nvmlDeviceGetPowerUsage", lambda: nvml.nvmlDeviceGetPowerUsage(card) / 1e3)
        instant = [self._field_sensor("NVML_FI_DEV_POWER_INSTANT", 1e-3)]
        average = [self._field_sensor("NVML_FI_DEV_POWER_AVERAGE", 1e-3)]
        (average if self._usage_is_averaged(product) else instant).append(usage)
        energy: _Sensor = (
            "nvmlDeviceGetTotalEnergyConsumption",
            lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1e3,
        )
        rates = "nvmlDeviceGetUtilizationRates"
        of_the_card: dict[str, list[_Sensor]] = {
            "power_w": instant,
            "power_average_w": average,
            "energy_j": [energy],
            "gpu_util_pct": [(rates, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)],
            "mem_util_pct": [(rates, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory)],
        }
        return {
            **({field: [] for field in of_the_card} if mig else of_the_card),
            "mem_mib": [("nvmlDeviceGetMemoryInfo", lambda: self._memory_mib("used"))],
            "sm_clock_mhz": [("nvmlDeviceGetClockInfo", lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM))],
            "temperature_c": [
                ("nvmlDeviceGetTemperatureV", lambda: nvml.nvmlDeviceGetTemperatureV(card, nvml.NVML_TEMPERATURE_GPU)),
                ("nvmlDeviceGetTemperature", lambda: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU)),
            ],
        }

    def _field_sensor(self, name: str, scale: float) -> _Sensor:
        nvml, card = self._nvml, self._card
        field_id = getattr(nvml, name)

        def call() -> float:
            (value,) = nvml.nvmlDeviceGetFieldValues(card, [(field_id, nvml.NVML_POWER_SCOPE_GPU)])
            if value.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(value.nvmlReturn)
            return scale * float(value.value.uiVal)

        return name, call

    def _memory_mib(self, what: str) -> float:
        """``used`` or ``total`` memory; the driver's reserve is not used where NVML can tell it apart (version 2)."""
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(self._handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            if not _is_lacking(nvml, error):
                raise
            memory = nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return float(getattr(memory, what)) / _MIB

    def _power_limit_w(self) -> float | None:
        limit_mw = self._asked(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if limit_mw is None or not 0 < limit_mw < 0xFFFFFFFF else limit_mw / 1e3

    def _usage_is_averaged(self, product: str) -> bool:
        architecture = self._asked(self._nvml.nvmlDeviceGetArchitecture)
        recent = architecture is None or architecture >= getattr(self._nvml, _AVERAGED_SINCE)
        return recent and not _STILL_INSTANT.search(product)

    def _asked(self, get: Callable[[Any], Any]) -> Any:
        """What NVML says of the card; None where it cannot."""
        try:
            return get(self._card)
        except self._nvml.NVMLError:
            return None

    def _refusal(self, call: Callable[[], float]) -> str | None:
        """Why the GPU will never answer this call; None when it did or may."""
        try:
            call()
        except self._nvml.NVMLError as error:
            return str(error) if _is_lacking(self._nvml, error) else None
        return None

    def _throttle_source(self) -> str | None:
        """The call that tells why the clock is held down; older drivers know it by the second name."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            refusal = self._refusal(partial(getattr(self._nvml, name), self._card))
            if refusal is None:
                self._lacking.pop("throttle_reasons", None)
                return name
            self._lacking["throttle_reasons"] = f"{name}: {refusal}"
        return None

    def _throttle_reasons(self) -> tuple[str, ...]:
        if self._throttle_call is None:
            return ()
        bits = int(self._value(partial(getattr(self._nvml, self._throttle_call), self._card)) or 0)
        flags = {word: getattr(self._nvml, f"nvmlClocksEventReason{name}") for name, word in _SLOWED_BY.items()}
        return tuple(word for word, flag in flags.items() if bits & flag)

    def _slice_name(self, product: str) -> str:
        try:
            return str(self._nvml.nvmlDeviceGetName(self._handle))
        except self._nvml.NVMLError:
            return f"{product} MIG"


def nvml_devices(environment: Mapping[str, str] | None = None, nvml: Any = None) -> list[NvmlDevice]:
    """The GPUs and MIG slices that CUDA shows in an environment (this process's when None), in CUDA's order, opened.

    ``nvml`` is a module like ``pynvml``.

    Raises:
        MissingExtraError: ``nvidia-ml-py`` is not installed.
        InputError: no NVIDIA driver answers, or ``CUDA_VISIBLE_DEVICES`` names no GPU of this machine or several.
    """
    nvml = nvml or _nvml()
    cards, lost = _cards(nvml)
    keys = visible_keys(cards, os.environ if environment is None else environment, lost=lost)
    return [NvmlDevice(key, nvml) for key in keys]


def nvml_device(key: str = "", environment: Mapping[str, str] | None = None, nvml: Any = None) -> NvmlDevice:
    """One of the visible GPUs, opened: the one whose UUID starts with ``key`` (``GPU-...``, ``MIG-...``), or the first.

    Raises:
        MissingExtraError: ``nvidia-ml-py`` is not installed.
        InputError: no NVIDIA driver answers, or no or several visible GPUs fit.
    """
    nvml = nvml or _nvml()
    cards, lost = _cards(nvml)
    keys = visible_keys(cards, os.environ if environment is None else environment, lost=lost)
    chosen = key_of(key, cards, where="device") if key else next(iter(keys), "")
    if chosen not in keys:
        what = f"{chosen} is not among the visible GPUs" if chosen else "no GPU is visible"
        raise InputError(what, where=VISIBLE, expected=("one of " + ", ".join(keys)) if keys else "an NVIDIA GPU")
    return NvmlDevice(chosen, nvml)


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        raise MissingExtraError("nvidia-ml-py", "profile") from None
    return pynvml


def _cards(nvml: Any) -> tuple[list[Card], int]:
    """The cards that this user may talk to, by PCI bus address, and how many are lost."""
    with _explained(nvml):
        nvml.nvmlInit()
        try:
            found: list[tuple[str, Card]] = []
            lost = 0
            for index in range(nvml.nvmlDeviceGetCount()):
                try:
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    found.append((str(nvml.nvmlDeviceGetPciInfo(handle).busId), _card(nvml, handle)))
                except nvml.NVMLError as error:
                    lost += _is_lost(nvml, error)
                    if not _is_lost(nvml, error) and error.value != nvml.NVML_ERROR_NO_PERMISSION:
                        raise
            return [card for _, card in sorted(found, key=lambda pair: pair[0])], lost
        finally:
            nvml.nvmlShutdown()


def _card(nvml: Any, handle: Any) -> Card:
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:
        mig = False
    slices = tuple(_slices(nvml, handle)) if mig else ()
    return Card(nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle), mig, slices)


def _slices(nvml: Any, handle: Any) -> Iterator[Slice]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue  # no slice at this place
        instances = nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetComputeInstanceId(part)
        yield Slice(nvml.nvmlDeviceGetUUID(part), *instances)


def _slug(product: str) -> str:
    """The catalogue's slug of a product name; of a product that it does not hold, the name as a slug."""
    try:
        return gpu_slug(product)
    except UnknownNameError:
        words = (word for word in re.split(r"[^a-z0-9]+", product.lower()) if word not in ("", "nvidia"))
        return "-".join(words)


def _versions(nvml: Any) -> dict[str, str]:
    def cuda() -> str:
        number = int(nvml.nvmlSystemGetCudaDriverVersion_v2())  # 1000 x major + 10 x minor
        return f"{number // 1000}.{number % 1000 // 10}"

    calls = {"driver": nvml.nvmlSystemGetDriverVersion, "nvml": nvml.nvmlSystemGetNVMLVersion, "cuda": cuda}
    found: dict[str, str] = {}
    for name, call in calls.items():
        try:
            found[name] = str(call())
        except nvml.NVMLError:
            continue
    return found


def _is_lost(nvml: Any, error: Any) -> bool:
    gone = ("GPU_IS_LOST", "GPU_NOT_FOUND", "RESET_REQUIRED", "DRIVER_NOT_LOADED", "UNINITIALIZED")
    return error.value in {getattr(nvml, f"NVML_ERROR_{name}") for name in gone}


def _is_lacking(nvml: Any, error: Any) -> bool:
    """Whether a call will never be answered, unlike one that failed this time."""
    never = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "INVALID_ARGUMENT", "ARGUMENT_VERSION_MISMATCH")
    return error.value in {getattr(nvml, f"NVML_ERROR_{name}") for name in (*never, "DEPRECATED")}


@contextmanager
def _explained(nvml: Any, key: str = "") -> Iterator[None]:
    """NVML's errors as one line for the user."""
    reasons = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (NVML's library is not there)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated but not loaded again",
        nvml.NVML_ERROR_NOT_FOUND: "no GPU has this UUID",
    }
    try:
        yield
    except nvml.NVMLError as error:
        if key and _is_lost(nvml, error):
            raise DataError(f"the GPU is lost: {error}", where=key) from None
        what = reasons.get(error.value, f"NVML does not answer: {error}")
        raise InputError(what, where=key, expected="an NVIDIA GPU and its driver") from None
