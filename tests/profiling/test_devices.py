"""The fake device and its faults, the recorder and the replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from eaco_datasets.errors import DataError, EacoError, InputError, UnknownNameError
from eaco_datasets.profiling.device import Device, Reading
from eaco_datasets.profiling.fake import FAULTS, FakeDevice, Fault, fake_device
from eaco_datasets.profiling.readings import energy_between
from eaco_datasets.profiling.replay import ReplayDevice, record

POWER_W = 450.4  # of the fake H200: 76 W idle + 0.6 x (700 - 76) W


class Clock:
    """A clock that moves only when told to, or when somebody sleeps on it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def _played(faults: Sequence[Fault], seconds: int = 5, per_second: int = 8) -> list[Reading]:
    clock = Clock()
    device = FakeDevice(faults, clock=clock, sleep=clock.sleep)
    readings = []
    for _ in range(seconds * per_second + 1):
        readings.append(device.read())
        clock.sleep(1 / per_second)
    return readings


def test_without_faults_the_fake_gpu_is_a_whole_one_at_constant_load_and_says_that_it_is_none() -> None:
    device: Device = fake_device("fake")
    assert (device.info.gpu, device.info.kind, device.info.power_source) == ("h200", "gpu", "energy-counter")
    assert (device.info.simulated, device.info.lacking) == (True, {})
    assert device.worker_environment() == {"CUDA_VISIBLE_DEVICES": ""}
    readings = _played([])
    energy = energy_between(readings, power_limit_w=700.0)
    assert energy.mean_w == pytest.approx(POWER_W)
    assert (energy.source, energy.disagreement) == ("energy-counter", pytest.approx(0, abs=1e-9))
    assert all(None not in asdict(r).values() and r.impossible == 0 for r in readings)
    device.close()


@pytest.mark.parametrize(
    ("name", "fields", "impossible"),
    [
        ("power-na", {"power_w", "power_average_w"}, 0),
        ("instant-na", {"power_w"}, 0),
        ("counter-na", {"energy_j"}, 0),
        ("util-na", {"gpu_util_pct", "mem_util_pct"}, 0),
        ("memory-na", {"mem_mib"}, 0),
        ("clock-na", {"sm_clock_mhz"}, 0),
        ("temperature-na", {"temperature_c"}, 0),
        ("power-spike", {"power_w", "power_average_w"}, 2),
        ("power-zero", {"power_w", "power_average_w"}, 2),
        ("power-negative", {"power_w", "power_average_w"}, 2),
        ("util-over", {"gpu_util_pct", "mem_util_pct"}, 2),
        ("memory-over", {"mem_mib"}, 1),
    ],
)
def test_a_fault_takes_away_its_sensors_while_it_lasts(name: str, fields: set[str], impossible: int) -> None:
    readings = _played([Fault(name, 1.0, 3.0)])
    for reading in readings:
        within = 101.0 <= reading.at_s < 103.0
        gone = {field for field, value in asdict(reading).items() if value is None}
        assert (gone, reading.impossible) == ((fields, impossible) if within else (set(), 0))


@pytest.mark.parametrize(("name", "impossible"), [("all-na", 0), ("nan", 8), ("sentinel", 7)])
def test_a_gpu_without_any_sensor_has_no_energy_either(name: str, impossible: int) -> None:
    readings = _played([Fault(name)])
    assert {reading.impossible for reading in readings} == {impossible}
    if name != "sentinel":  # which leaves the counter alone
        assert energy_between(readings).energy_j is None
    assert all(reading.power_w is None and reading.mem_mib is None for reading in readings)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("counter-wrap", 2.0),
        Fault("counter-wrap", value=0.5),
        Fault("counter-back", 2.0),
        Fault("counter-stuck"),
        Fault("counter-fast", 1.0),
        Fault("counter-na"),
        Fault("counter-na", 0.5),
    ],
)
def test_energy_survives_a_broken_counter(fault: Fault) -> None:
    energy = energy_between(_played([fault]), power_limit_w=700.0)
    assert energy.mean_w == pytest.approx(POWER_W)
    assert energy.source == "power-instant"


def test_energy_survives_spikes_drop_outs_and_a_missing_instant_sensor() -> None:
    assert energy_between(_played([Fault("counter-na"), Fault("power-spike", 1.0, 1.5)])).mean_w == pytest.approx(
        POWER_W
    )
    flaky = _played([Fault("flaky")])
    assert 0.3 < sum(reading.power_w is None for reading in flaky) / len(flaky) < 0.7
    assert energy_between(flaky).mean_w == pytest.approx(POWER_W)
    averaged = energy_between(_played([Fault("counter-na"), Fault("instant-na")]))
    assert (averaged.mean_w, averaged.source) == (pytest.approx(POWER_W), "power-average")


def test_throttling_is_told_while_it_lasts() -> None:
    told = [(r.throttle_reasons, r.sm_clock_mhz) for r in _played([Fault("throttle", 1.0, 2.0)], 3, 1)]
    assert told == [((), 1500.0), (("heat-hardware",), 750.0), ((), 1500.0), ((), 1500.0)]


def test_a_slow_sensor_takes_its_time() -> None:
    readings = _played([Fault("slow", value=2.0)], 1, 1)
    clock = Clock()
    device = FakeDevice([Fault("slow", value=2.0)], clock=clock, sleep=clock.sleep)
    device.read()
    assert clock.now_s == 102.0
    assert readings[1].at_s - readings[0].at_s == 3.0


@pytest.mark.parametrize(("name", "error"), [("lost", DataError), ("error", RuntimeError)])
def test_a_lost_gpu_answers_until_it_is_lost(name: str, error: type[Exception]) -> None:
    clock = Clock()
    device = FakeDevice([Fault(name, 2.0)], clock=clock)
    device.read()
    clock.sleep(1.9)
    device.read()
    clock.sleep(0.1)
    with pytest.raises(error):
        device.read()


def test_a_fake_slice_has_no_power_of_its_own() -> None:
    info = fake_device("fake:mig").info
    assert (info.kind, info.power_limit_w, info.power_source) == ("mig", None, None)
    assert {"power_w", "power_average_w", "energy_j", "gpu_util_pct", "mem_util_pct"} == set(info.lacking)
    assert energy_between(_played([Fault("mig")])).energy_j is None


@pytest.mark.parametrize(
    ("spec", "lacking", "source"),
    [
        ("fake:counter-na", {"energy_j"}, "power-instant"),
        ("fake:counter-na,instant-na", {"energy_j", "power_w"}, "power-average"),
        ("fake:power-na,counter-na", {"energy_j", "power_w", "power_average_w"}, None),
        ("fake:power-na@3,util-na@1-2", set(), "energy-counter"),
    ],
)
def test_what_is_never_there_is_lacking(spec: str, lacking: set[str], source: str | None) -> None:
    info = fake_device(spec).info
    assert (set(info.lacking), info.power_source) == (lacking, source)


def test_a_spec_names_gpu_faults_times_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Fault, ...]] = []
    real: Callable[..., None] = FakeDevice.__init__

    def spy(self: FakeDevice, script: Sequence[Fault] = (), gpu: str = "h200") -> None:
        made.append(tuple(script))
        real(self, script, gpu)

    monkeypatch.setattr(FakeDevice, "__init__", spy)
    device = fake_device("fake:gpu=v100, throttle@2-4.5,slow=0.5,power-spike@1=-3e5,lost@30")
    assert (device.info.gpu, device.info.name) == ("v100-sxm", "fake Tesla V100-SXM2-16GB")
    spike = Fault("power-spike", 1.0, value=-3e5)
    assert made == [(Fault("throttle", 2.0, 4.5), Fault("slow", value=0.5), spike, Fault("lost", 30.0))]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("fake:thorttle", UnknownNameError, "unknown fault 'thorttle'; expected perhaps throttle"),
        ("fake:lost@", InputError, "'lost@' is malformed"),
        ("fake:lost@1.2.3", InputError, "is malformed"),
        ("fake:lost@3-2", InputError, "ends before it starts"),
        ("fake:slow=fast", InputError, "is malformed"),
        ("fake:gpu=h2000", UnknownNameError, "unknown GPU type"),
        ("fakes", InputError, "'fakes' is no fake device"),
    ],
)
def test_a_bad_spec_is_told_in_one_line(spec: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fake_device(spec)


def test_every_fault_says_what_it_does() -> None:
    assert len(FAULTS) >= 20
    for name, what in FAULTS.items():
        assert fake_device(f"fake:{name}").info.simulated
        assert what


def test_a_recording_plays_the_same_readings_in_their_own_time(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "readings.jsonl"
    recorder = record(FakeDevice([Fault("throttle", 1.0), Fault("power-na", 2.0)], clock=clock), path)
    written = []
    for _ in range(4):
        written.append(recorder.read())
        clock.sleep(1.0)
    assert recorder.worker_environment() == {"CUDA_VISIBLE_DEVICES": ""}
    recorder.close()
    clock.now_s = 5000.0
    replay: Device = ReplayDevice(path, clock=clock)
    assert replay.info == recorder.info
    played = []
    for _ in range(4):
        played.append(replay.read())
        clock.sleep(1.0)
    assert [asdict(r) | {"at_s": r.at_s - 4900.0} for r in played] == [asdict(r) for r in written]
    clock.sleep(0.5)
    with pytest.raises(DataError, match=r"readings.jsonl: the recording has ended"):
        replay.read()


def test_a_replay_read_faster_or_slower_than_recorded_keeps_to_the_time(tmp_path: Path) -> None:
    clock = Clock()
    recorder = record(FakeDevice(clock=clock), tmp_path / "r.jsonl")
    for _ in range(5):
        recorder.read()
        clock.sleep(1.0)
    recorder.close()
    replay = ReplayDevice(tmp_path / "r.jsonl", clock=clock)
    start_s, steps = clock.now_s, (0.0, 0.4, 0.5, 0.2, 2.0)
    played = []
    for step_s in steps:
        clock.sleep(step_s)
        played.append(replay.read().at_s - start_s)
    assert played == pytest.approx([0.0, 0.0, 0.0, 1.0, 3.0])
    assert all(later >= sooner for sooner, later in pairwise(played))


def test_what_a_recording_of_a_real_device_says_later_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    info = (
        '{"key":"GPU-1","gpu":"h200","kind":"gpu","name":"H200","memory_mib":9,"power_limit_w":7,"power_source":null}'
    )
    path.write_text(info + '\n{"at_s":1.0,"power_w":3.5}\n{"at_s":2.0,"pow', encoding="utf-8")
    replay = ReplayDevice(path, clock=Clock())
    assert (replay.info.key, replay.info.simulated) == ("GPU-1", True)
    assert (replay.read().power_w, replay.read().at_s) == (3.5, 100.0)


@pytest.mark.parametrize(
    ("lines", "where", "message"),
    [
        ([], "r.jsonl", "no reading"),
        (["{}", "{}"], "r.jsonl:1", "key: Field required"),
        (["INFO", '{"at_s": "soon"}'], "r.jsonl:2", "at_s: Input should be a valid number"),
        (["INFO", "nonsense"], "r.jsonl:2", "Invalid JSON"),
        (["INFO", '{"at_s": 2.0}', '{"at_s": 1.0}'], "r.jsonl:3", "time goes back"),
    ],
)
def test_a_file_that_is_no_recording_is_told_with_its_line(
    tmp_path: Path, lines: list[str], where: str, message: str
) -> None:
    recorder = record(FakeDevice(), tmp_path / "info.jsonl")
    recorder.close()
    info = (tmp_path / "info.jsonl").read_text(encoding="utf-8").strip()
    path = tmp_path / "r.jsonl"
    path.write_text("".join(line.replace("INFO", info) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError, match=f"{where}: .*{message}"):
        ReplayDevice(path)


def test_files_that_cannot_be_opened_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        ReplayDevice(tmp_path / "missing.jsonl")
    with pytest.raises(EacoError, match="cannot be written"):
        record(FakeDevice(), tmp_path / "no folder" / "r.jsonl")
