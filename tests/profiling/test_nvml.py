"""NVIDIA GPUs, on a stand-in for NVML: which card, which sensors, what is never said, and that nothing is set."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import eaco_datasets.profiling.nvml as module
from eaco_datasets.errors import DataError, InputError, MissingExtraError
from eaco_datasets.profiling.nvml import NvmlDevice, nvml_device, nvml_devices

A, B, C = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "GPU-bbbb3333-0000"
M0, M1 = "MIG-cccc0000-0000", "MIG-dddd0000-0000"
GIB = 2**30
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST, UNKNOWN = 3, 4, 6, 15, 999


class NVMLError(Exception):
    """An NVML error by its code."""

    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 15: "GPU is lost"}.get(value, f"code {value}"))
        self.value = value


class Card:
    """A card's identity and sensor values; an ``NVMLError`` in place of a value is raised."""

    def __init__(self, uuid: str, bus: str, name: str = "NVIDIA H200", parent: Card | None = None, **sensors: Any):
        self.uuid, self.bus, self.name, self.parent = uuid, bus, name, parent
        self.slices: list[Card] = []
        self.sensors: dict[str, Any] = {
            "NVML_FI_DEV_POWER_INSTANT": 512_000,
            "NVML_FI_DEV_POWER_AVERAGE": 500_000,
            "PowerUsage": 498_000,
            "TotalEnergyConsumption": 7_000_000,
            "EnforcedPowerLimit": 700_000,
            "Architecture": 9,
            "UtilizationRates": SimpleNamespace(gpu=93, memory=41),
            "memory_v2": SimpleNamespace(used=10 * GIB, total=140 * GIB),
            "memory_v1": SimpleNamespace(used=11 * GIB, total=140 * GIB),
            "ClockInfo": 1830,
            "TemperatureV": 61,
            "Temperature": 61,
            "CurrentClocksEventReasons": 0x4 | 0x1,
            "CurrentClocksThrottleReasons": 0x40,
            **sensors,
        }

    def get(self, sensor: str) -> Any:
        value = self.sensors[sensor]
        if isinstance(value, NVMLError):
            raise value
        return value


class FakeNvml:
    """As much of ``pynvml`` as a reader of sensors needs; ``calls`` records the functions called."""

    NVMLError = NVMLError
    NVML_SUCCESS, NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED = 0, 1, 2, 3
    NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 4, 6, 9
    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_GPU_IS_LOST = 12, 13, 15
    NVML_ERROR_RESET_REQUIRED, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 16, 18
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_DEPRECATED, NVML_ERROR_GPU_NOT_FOUND = 25, 26, 28
    NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_GPU = 185, 186, 0
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_DEVICE_MIG_ENABLE, NVML_DEVICE_ARCH_AMPERE = 1, 0, 1, 7
    nvmlMemory_v2 = 0x02000028
    nvmlClocksEventReasonSwPowerCap, nvmlClocksEventReasonHwSlowdown = 0x4, 0x8
    nvmlClocksEventReasonSyncBoost, nvmlClocksEventReasonSwThermalSlowdown = 0x10, 0x20
    nvmlClocksEventReasonHwThermalSlowdown, nvmlClocksEventReasonHwPowerBrakeSlowdown = 0x40, 0x80

    def __init__(self, *cards: Card, init_error: int = 0) -> None:
        self.cards, self.init_error = cards, init_error
        self.opened = 0
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name[4].isupper() and not name.startswith("nvmlClocks"):
            object.__getattribute__(self, "calls").append(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda card, *_: card.get(name.removeprefix("nvmlDeviceGet"))

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetNVMLVersion(self) -> str:
        raise NVMLError(NOT_SUPPORTED)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self._answering(self.cards[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in (*self.cards, *(part for whole in self.cards for part in whole.slices)):
            if card.uuid == uuid:
                return self._answering(card)
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetPciInfo(self, card: Card) -> SimpleNamespace:
        return SimpleNamespace(busId=card.bus)

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        return list(card.sensors.get("MigMode") or card.get("NoMig"))

    def nvmlDeviceGetMaxMigDeviceCount(self, _card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:
        if index in (0, 1) or index >= len(card.slices) + 2:
            raise NVMLError(NOT_FOUND)  # places without a slice come before and after the others
        return card.slices[index - 2]

    def nvmlDeviceGetGpuInstanceId(self, part: Card) -> int:
        return 9 if part.uuid == M0 else 11

    def nvmlDeviceGetComputeInstanceId(self, _part: Card) -> int:
        return 0

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Card) -> Card:
        assert part.parent is not None
        return part.parent

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:
        return card.get("memory_v2" if version else "memory_v1")

    def nvmlDeviceGetFieldValues(self, card: Card, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        names = {self.NVML_FI_DEV_POWER_INSTANT: "INSTANT", self.NVML_FI_DEV_POWER_AVERAGE: "AVERAGE"}
        values = [card.sensors[f"NVML_FI_DEV_POWER_{names[field]}"] for field, _ in fields]
        return [
            SimpleNamespace(nvmlReturn=value.value, value=SimpleNamespace(uiVal=0))
            if isinstance(value, NVMLError)
            else SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=value))
            for value in values
        ]

    @staticmethod
    def _answering(card: Card) -> Card:
        if isinstance(error := card.sensors.get("handle"), NVMLError):
            raise error
        return card


def _card(uuid: str = A, bus: str = "00000000:07:00.0", name: str = "NVIDIA H200", **sensors: Any) -> Card:
    return Card(uuid, bus, name, **{"NoMig": NVMLError(NOT_SUPPORTED), **sensors})


def _mig_card() -> Card:
    card = _card(C, "00000000:0C:00.0", "NVIDIA A100-SXM4-40GB", MigMode=[1, 1])
    memory = SimpleNamespace(used=GIB, total=5 * GIB)
    none = {"memory_v2": memory, "UtilizationRates": SimpleNamespace(gpu=88, memory=77)}
    card.slices = [Card(uuid, card.bus, f"{card.name} MIG 1g.5gb", card, **none) for uuid in (M0, M1)]
    return card


def _keys(nvml: FakeNvml, **environment: str) -> list[str]:
    return [device.info.key for device in nvml_devices(environment, nvml)]


def test_a_gpu_says_who_it_is_and_reads_all_its_sensors() -> None:
    device = nvml_device(environment={}, nvml=FakeNvml(_card()))
    info, reading = device.info, device.read()
    assert (info.key, info.gpu, info.kind, info.name) == (A, "h200", "gpu", "NVIDIA H200")
    assert (info.memory_mib, info.power_limit_w, info.power_source) == (140 * 1024.0, 700.0, "energy-counter")
    assert (info.versions, info.lacking, info.simulated) == ({"driver": "570.86.15", "cuda": "12.8"}, {}, False)
    assert info.sensors["power_w"] == "NVML_FI_DEV_POWER_INSTANT"
    assert (reading.power_w, reading.power_average_w, reading.energy_j) == (512.0, 500.0, 7000.0)
    assert (reading.gpu_util_pct, reading.mem_util_pct, reading.mem_mib) == (93.0, 41.0, 10 * 1024.0)
    assert (reading.sm_clock_mhz, reading.temperature_c) == (1830.0, 61.0)
    assert (reading.throttle_reasons, reading.impossible) == (("power-cap",), 0)


@pytest.mark.parametrize(("name", "slug"), [("Tesla V100-SXM2-16GB", "v100-sxm"), ("NVIDIA L40S", "l40s")])
def test_a_product_has_the_catalogues_slug_or_that_of_its_name(name: str, slug: str) -> None:
    assert nvml_device(environment={}, nvml=FakeNvml(_card(name=name))).info.gpu == slug


def test_workers_see_the_card_that_is_read_and_no_other() -> None:
    device = nvml_device(B, {}, FakeNvml(_card(), _card(B, "00000000:0B:00.0")))
    assert device.worker_environment() == {"CUDA_VISIBLE_DEVICES": B, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


BUS_ORDER_IS_NOT_INDEX_ORDER = (
    _card(B, "00000000:0B:00.0"),
    _card(A, "00000000:07:00.0"),
    _card(C, "00000001:01:00.0"),
)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, [A, B, C]),
        ("", []),
        ("0", [A]),
        ("2,0", [C, A]),
        ("1,-1,0", [B]),
        ("1,7,0", [B]),
        (" 1 , 2 ", [B, C]),
        ("GPU-aaaa", [A]),
        ("gpu-BBBB3", [C]),
        (f"{C},0", [C, A]),
    ],
)
def test_visible_devices_are_those_of_cuda_in_its_order(listed: str | None, expected: list[str]) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert _keys(FakeNvml(*BUS_ORDER_IS_NOT_INDEX_ORDER), **environment) == expected


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("GPU-bbbb", "fits 2 GPUs"),
        ("GPU-ffff", "no GPU here is 'GPU-ffff'"),
        ("nvidia0", "'nvidia0' names no GPU"),
        ("0,0", "a second time"),
        (f"1,{B}", "a second time"),
        ("MIG-ffff", "no GPU here is 'MIG-ffff'"),
    ],
)
def test_visible_devices_that_name_no_card_or_several_are_declined(listed: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _keys(FakeNvml(*BUS_ORDER_IS_NOT_INDEX_ORDER), CUDA_VISIBLE_DEVICES=listed)


def test_an_index_among_different_gpus_needs_an_order() -> None:
    nvml = FakeNvml(_card(name="Tesla T4"), _card(B, "00000000:0B:00.0"))
    with pytest.raises(InputError, match="the fastest of NVIDIA H200, Tesla T4 first; expected UUIDs, or CUDA_DEVICE"):
        _keys(nvml, CUDA_VISIBLE_DEVICES="0")
    assert _keys(nvml, CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID") == [A]
    assert _keys(nvml, CUDA_VISIBLE_DEVICES=B) == [B]


def test_a_card_that_is_not_ours_is_not_counted_and_a_lost_one_makes_indices_ambiguous() -> None:
    denied = _card(handle=NVMLError(NO_PERMISSION))
    assert _keys(FakeNvml(denied, _card(B, "00000000:0B:00.0")), CUDA_VISIBLE_DEVICES="0") == [B]
    nvml = FakeNvml(_card(handle=NVMLError(LOST)), _card(B, "00000000:0B:00.0"))
    assert _keys(nvml) == [B]
    with pytest.raises(InputError, match="ambiguous while 1 GPU"):
        _keys(nvml, CUDA_VISIBLE_DEVICES="0")


def test_a_slice_stands_in_for_its_card_and_never_has_the_cards_power() -> None:
    nvml = FakeNvml(_mig_card())
    assert _keys(nvml) == [M0, M1]
    device = nvml_device("MIG-dddd", {}, nvml)
    info, reading = device.info, device.read()
    assert (info.key, info.gpu, info.kind, info.memory_mib) == (M1, "a100-40", "mig", 5 * 1024.0)
    assert (info.name, info.power_limit_w, info.power_source) == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None)
    whole = {"power_w", "power_average_w", "energy_j", "gpu_util_pct", "mem_util_pct"}
    assert {field for field, reason in info.lacking.items() if "whole card" in reason} == whole
    assert all(getattr(reading, field) is None for field in whole)
    assert (reading.mem_mib, reading.sm_clock_mhz, reading.temperature_c) == (1024.0, 1830.0, 61.0)
    assert device.worker_environment()["CUDA_VISIBLE_DEVICES"] == M1


@pytest.mark.parametrize("listed", [M1, "MIG-dddd", f"MIG-{C}/11/0"])
def test_a_slice_is_found_by_either_of_its_names(listed: str) -> None:
    assert _keys(FakeNvml(_card(), _mig_card()), CUDA_VISIBLE_DEVICES=listed) == [M1]


@pytest.mark.parametrize(
    ("listed", "message"), [(C, "is in MIG mode.*" + M0), ("0", "ambiguous while a GPU is in MIG")]
)
def test_a_card_in_mig_mode_is_not_a_device(listed: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _keys(FakeNvml(_card(), _mig_card()), CUDA_VISIBLE_DEVICES=listed)


def test_a_device_must_be_among_the_visible_ones() -> None:
    nvml = FakeNvml(*BUS_ORDER_IS_NOT_INDEX_ORDER)
    assert nvml_device("GPU-bbbb2", {}, nvml).info.key == B
    assert nvml_device(environment={"CUDA_VISIBLE_DEVICES": "2,1"}, nvml=nvml).info.key == C
    with pytest.raises(InputError, match=f"{A} is not among the visible GPUs; expected one of {C}"):
        nvml_device(A, {"CUDA_VISIBLE_DEVICES": C}, nvml)
    with pytest.raises(InputError, match="device: '0' names no GPU"):
        nvml_device("0", {}, nvml)
    with pytest.raises(InputError, match="no GPU is visible"):
        nvml_device(environment={"CUDA_VISIBLE_DEVICES": ""}, nvml=nvml)


def test_a_sensor_that_is_not_there_is_lacking_with_a_reason_and_not_asked_again() -> None:
    missing = NVMLError(NOT_SUPPORTED)
    names = ("NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_AVERAGE", "PowerUsage", "TotalEnergyConsumption")
    events = ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    nvml = FakeNvml(_card(**dict.fromkeys((*names, *events, "UtilizationRates"), missing)))
    device = nvml_device(environment={}, nvml=nvml)
    info = device.info
    lacking = {"power_w", "power_average_w", "energy_j", "gpu_util_pct", "mem_util_pct", "throttle_reasons"}
    assert set(info.lacking) == lacking
    assert "nvmlDeviceGetPowerUsage: Not Supported" in info.lacking["power_average_w"]
    assert info.power_source is None
    nvml.calls.clear()
    reading = device.read()
    assert (reading.power_w, reading.gpu_util_pct, reading.throttle_reasons) == (None, None, ())
    assert not {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage"} & set(nvml.calls)


@pytest.mark.parametrize(
    ("name", "architecture", "field"),
    [
        ("NVIDIA H200", 9, "power_average_w"),
        ("NVIDIA A40", 7, "power_average_w"),
        ("NVIDIA A100-SXM4-40GB", 7, "power_w"),
        ("Tesla V100-SXM2-16GB", 5, "power_w"),
    ],
)
def test_power_usage_is_averaged_or_instant_by_the_architecture(name: str, architecture: int, field: str) -> None:
    missing = NVMLError(NOT_SUPPORTED)
    sensors = dict.fromkeys(
        ("NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_AVERAGE", "TotalEnergyConsumption"), missing
    )
    device = nvml_device(environment={}, nvml=FakeNvml(_card(name=name, Architecture=architecture, **sensors)))
    assert device.info.sensors[field] == "nvmlDeviceGetPowerUsage"
    assert getattr(device.read(), field) == 498.0
    assert {"power_w", "power_average_w"} - set(device.info.sensors) == set(device.info.lacking) - {"energy_j"}
    assert device.info.power_source == {"power_w": "power-instant", "power_average_w": "power-average"}[field]


def test_what_an_old_driver_lacks_is_read_the_old_way() -> None:
    old = NVMLError(FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    card = _card(memory_v2=old, TemperatureV=old, CurrentClocksEventReasons=old)
    device = nvml_device(environment={}, nvml=FakeNvml(card))
    reading = device.read()
    assert (reading.mem_mib, reading.temperature_c) == (11 * 1024.0, 61.0)
    assert reading.throttle_reasons == ("heat-hardware",)
    assert device.info.sensors["throttle_reasons"] == "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert device.info.lacking == {}


def test_a_sensor_that_fails_once_is_unknown_once() -> None:
    card = _card()
    device = nvml_device(environment={}, nvml=FakeNvml(card))
    card.sensors["ClockInfo"] = card.sensors["CurrentClocksEventReasons"] = NVMLError(UNKNOWN)
    assert (device.read().sm_clock_mhz, device.read().throttle_reasons) == (None, ())
    card.sensors["ClockInfo"] = 1500
    assert device.read().sm_clock_mhz == 1500.0


@pytest.mark.parametrize(
    ("sensor", "value", "field"),
    [
        ("NVML_FI_DEV_POWER_INSTANT", 0, "power_w"),
        ("NVML_FI_DEV_POWER_INSTANT", 2_000_000, "power_w"),
        ("NVML_FI_DEV_POWER_AVERAGE", 0xFFFFFFFF, "power_average_w"),
        ("TotalEnergyConsumption", 2**64 - 1, "energy_j"),
        ("UtilizationRates", SimpleNamespace(gpu=0xFFFFFFFF, memory=1), "gpu_util_pct"),
        ("memory_v2", SimpleNamespace(used=2**64 - 1, total=140 * GIB), "mem_mib"),
        ("ClockInfo", 0xFFFFFFFF, "sm_clock_mhz"),
        ("TemperatureV", 0xFFFFFFFF, "temperature_c"),
    ],
)
def test_impossible_values_are_dropped_and_counted(sensor: str, value: Any, field: str) -> None:
    card = _card()
    device = nvml_device(environment={}, nvml=FakeNvml(card))
    card.sensors[sensor] = value
    reading = device.read()
    assert (getattr(reading, field), reading.impossible) == (None, 1)
    assert sum(value is None for value in vars(reading).values()) == 1


def test_a_lost_gpu_is_an_error_in_one_line() -> None:
    card = _card()
    device = nvml_device(environment={}, nvml=FakeNvml(card))
    card.sensors["UtilizationRates"] = NVMLError(LOST)
    with pytest.raises(DataError, match=f"^{A}: the GPU is lost: GPU is lost$"):
        device.read()
    card.sensors["handle"] = NVMLError(LOST)
    with pytest.raises(DataError, match="the GPU is lost"):
        NvmlDevice(A, FakeNvml(card))


@pytest.mark.parametrize(
    ("code", "message"),
    [(12, "no NVIDIA driver is installed"), (9, "not loaded"), (18, "was updated"), (999, "code 999")],
)
def test_a_machine_without_a_working_driver_says_so(code: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nvml_devices({}, FakeNvml(init_error=code))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"eaco\[profile\]"):
        nvml_devices({})


def test_nvml_is_let_go_of_as_often_as_it_was_opened() -> None:
    nvml = FakeNvml(_card())
    with pytest.raises(InputError, match="no GPU has this UUID"):
        NvmlDevice("GPU-none", nvml)
    device = nvml_device(environment={}, nvml=nvml)
    assert nvml.opened == 1
    device.close()
    device.close()
    assert nvml.opened == 0


def test_only_reading_calls_of_nvml_are_made_and_all_of_them_exist() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | texts
    no_calls = {"nvmlMemory_v2", "nvmlReturn", "nvmlClocksEventReason"}
    calls = {name for name in named if name.startswith("nvml") and name[4:].isidentifier()} - no_calls
    allowed = ("nvmlDeviceGet", "nvmlSystemGet")
    assert {call for call in calls if not call.startswith(allowed)} == {"nvmlInit", "nvmlShutdown"}
    nvml = FakeNvml(_card(), _mig_card())
    for device in nvml_devices({}, nvml):
        device.read()
        device.close()
    made = set(nvml.calls) - no_calls
    assert {call for call in made if not call.startswith(allowed)} == {"nvmlInit", "nvmlShutdown"}
    pynvml = pytest.importorskip("pynvml")
    assert [name for name in calls | made if not hasattr(pynvml, name)] == []
    constants = {name for name in vars(FakeNvml) if name.startswith(("NVML_", "nvmlClocks", "nvmlMemory"))}
    assert {name: getattr(FakeNvml, name) for name in constants} == {name: getattr(pynvml, name) for name in constants}


def test_one_module_alone_imports_pynvml() -> None:
    packages = Path(module.__file__).parents[3]
    floors = ("datasets", "features", "predictor", "training", "scheduler", "serving")
    files = [path for floor in floors for path in (packages / floor).rglob("*.py")]
    assert [path.name for path in files if "import pynvml" in path.read_text(encoding="utf-8")] == ["nvml.py"]
