"""The served predictor: answers by arithmetic, reasons to abstain, and files that come back to the last bit."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from eaco_datasets.errors import DataError
from eaco_datasets.gpus import gpu
from eaco_datasets.physics import DRIVER_RESERVE_MIB, fan_power_w
from eaco_datasets.types import CoLocation, Job, NodeSpec, SoloProfile
from eaco_features.sets import sets_from_colocations
from eaco_predictor.fitting import fit_predictor
from eaco_predictor.prediction import Estimate, SetPrediction
from eaco_predictor.predictor import Predictor

SOLO = SoloProfile(
    throughput_samples_s=500.0, epoch_s=200.0, gpu_util_pct=60.0, mem_util_pct=30.0, mem_mib=6000.0, gpu_power_w=200.0
)
OTHER = replace(SOLO, throughput_samples_s=100.0, epoch_s=50.0, gpu_util_pct=70.0, mem_mib=5000.0, gpu_power_w=250.0)
A = Job("ResNet-50", "resnet50", 64, job_id="a", solo=SOLO, remaining_epochs=10.0)
B = Job("VGG-16", "vgg16", 32, "amp", job_id="b", solo=OTHER, remaining_epochs=4.0)


def _set(*jobs: Job, slug: str = "rtx3090", **other: Any) -> CoLocation:
    return CoLocation(slug, "time-slice", jobs, **other)


def _one(predictor: Predictor, *jobs: Job, **other: Any) -> SetPrediction:
    (answer,) = predictor.predict([_set(*jobs, **other)])
    return answer


def _known(estimate: Estimate | None) -> Estimate:
    assert estimate is not None
    return estimate


class TestArithmetic:
    def test_times_are_solo_time_over_relative_speed(self, predictor: Predictor) -> None:
        answer = _one(predictor, A, B)
        assert answer.abstained is None
        for job, predicted, solo_s in zip((A, B), answer.jobs, (200.0, 50.0), strict=True):
            speed, epoch, jct = predicted.relative_speed, _known(predicted.epoch_s), _known(predicted.jct_s)
            assert predicted.job_id == job.job_id
            assert 0 < speed.lower < speed.mean < speed.upper <= 1.05
            assert epoch == Estimate(solo_s / speed.mean, solo_s / speed.upper, solo_s / speed.lower)
            left = job.remaining_epochs or 0.0
            assert jct == Estimate(left * epoch.mean, left * epoch.lower, left * epoch.upper)
            assert predicted.deadline_miss_probability is None

    def test_a_job_alone_takes_its_solo_time_without_doubt(self, predictor: Predictor) -> None:
        answer = _one(predictor, A)
        assert answer.jobs[0].relative_speed == Estimate(1.0, 1.0, 1.0)
        assert answer.jobs[0].epoch_s == Estimate(200.0, 200.0, 200.0)
        assert answer.jobs[0].jct_s == Estimate(2000.0, 2000.0, 2000.0)
        assert answer.gpu_util_pct == Estimate(60.0, 60.0, 60.0)
        assert answer.mem_mib == Estimate(6000.0, 6000.0, 6000.0)
        assert answer.oom_probability == 0.0

    @pytest.mark.parametrize(
        ("deadline_s", "risk"), [(2000.0, 0.0), (1999.9, 1.0), (5000.0, 0.0), (0.0, 1.0), (-5.0, 1.0)]
    )
    def test_the_deadline_of_a_job_alone_is_certain(self, predictor: Predictor, deadline_s: float, risk: float) -> None:
        assert _one(predictor, replace(A, deadline_s=deadline_s)).jobs[0].deadline_miss_probability == risk

    def test_the_risk_of_a_miss_is_a_two_piece_normal_of_the_speed(self, predictor: Predictor) -> None:
        speed = _one(predictor, A, B).jobs[0].relative_speed
        z_at_bound = norm.ppf(0.95)
        for need, width in ((0.9 * speed.mean, speed.mean - speed.lower), (1.1 * speed.mean, speed.upper - speed.mean)):
            late = replace(A, deadline_s=2000.0 / need)
            risk = _one(predictor, late, B).jobs[0].deadline_miss_probability
            assert risk == pytest.approx(norm.cdf((need - speed.mean) / (width / z_at_bound)), abs=1e-9)

    def test_a_later_deadline_is_never_riskier(self, predictor: Predictor) -> None:
        sets = [_set(replace(A, deadline_s=float(s)), B) for s in np.geomspace(500, 50_000, 40)]
        risks = [answer.jobs[0].deadline_miss_probability for answer in predictor.predict(sets)]
        assert risks == sorted(risks, reverse=True)
        assert risks[0] == pytest.approx(1.0, abs=0.01)
        assert risks[-1] == pytest.approx(0.0, abs=0.01)

    def test_a_finished_job_misses_nothing(self, predictor: Predictor) -> None:
        done = _one(predictor, replace(A, remaining_epochs=0.0, deadline_s=0.0), B).jobs[0]
        assert done.deadline_miss_probability == 0.0
        assert _known(done.jct_s).mean == 0.0

    def test_energy_is_power_times_time_shared_evenly(self, predictor: Predictor) -> None:
        answer = _one(predictor, A, B, num_gpus=2)
        power, energy = _known(answer.gpu_power_w), _known(answer.energy_j_per_epoch)
        for bound in ("mean", "lower", "upper"):
            epochs = sum(getattr(_known(job.epoch_s), bound) for job in answer.jobs)
            assert getattr(energy, bound) == pytest.approx(2 * getattr(power, bound) * epochs / 2)

    def test_energy_of_a_job_alone(self, predictor: Predictor) -> None:
        answer = _one(predictor, A)
        assert _known(answer.gpu_power_w).mean == pytest.approx(200.0)  # its own measured solo power
        assert _known(answer.energy_j_per_epoch).mean == pytest.approx(200.0 * 200.0)

    def test_node_power_is_the_server_plus_its_gpus(self, predictor: Predictor) -> None:
        node = NodeSpec(cpu_idle_w=100.0, cpu_busy_w=400.0, cpu_util_pct=30.0)
        answer = _one(predictor, A, B, num_gpus=4, node=node)
        power, total = _known(answer.gpu_power_w), _known(answer.node_power_w)
        server = float(fan_power_w(100.0, 400.0, 30.0))
        assert (total.mean, total.lower, total.upper) == pytest.approx(
            (server + 4 * power.mean, server + 4 * power.lower, server + 4 * power.upper)
        )
        assert _one(predictor, A, B).node_power_w is None

    def test_an_unknown_cpu_utilisation_spans_the_server(self, predictor: Predictor) -> None:
        answer = _one(predictor, A, node=NodeSpec(100.0, 400.0))
        power, total = _known(answer.gpu_power_w), _known(answer.node_power_w)
        assert (total.mean, total.lower, total.upper) == pytest.approx(
            (250.0 + power.mean, 100.0 + power.lower, 400.0 + power.upper)
        )

    def test_memory_and_the_risk_of_running_out(self, predictor: Predictor) -> None:
        small = _one(predictor, A, B)
        assert _known(small.mem_mib).mean == pytest.approx(11_000.0)
        capacity = gpu("rtx3090").memory_mib - DRIVER_RESERVE_MIB
        heavy = replace(A, solo=replace(SOLO, mem_mib=capacity / 2 + 4000))
        full = _one(predictor, heavy, heavy)
        assert _known(small.mem_mib).mean < capacity < _known(full.mem_mib).mean
        assert small.oom_probability is not None
        assert full.oom_probability is not None
        assert small.oom_probability < 0.05
        assert full.oom_probability > 0.5


class TestSoloTimes:
    def test_the_runs_own_samples_count(self, predictor: Predictor) -> None:
        job = replace(A, samples_per_epoch=1000.0)
        assert _one(predictor, job).jobs[0].epoch_s == Estimate(2.0, 2.0, 2.0)

    def test_a_callers_epoch_time_beats_another_runs_throughput(
        self, predictor: Predictor, simulated: pd.DataFrame
    ) -> None:
        rows = simulated[
            (simulated["role"] == "solo") & (simulated["outcome"] == "ok") & (simulated["gpu"] == "rtx3090")
        ]
        row = rows.iloc[0]
        known = Job("m", row["family"], int(row["batch_size"]), row["precision"], dataset=row["dataset"])
        measured = rows[
            (rows["family"] == row["family"])
            & (rows["batch_size"] == row["batch_size"])
            & (rows["precision"] == row["precision"])
        ]
        throughput = float(measured["throughput_samples_s"].median())
        table = replace(known, samples_per_epoch=777.0)
        assert _known(_one(predictor, table).jobs[0].epoch_s).mean == pytest.approx(777.0 / throughput)
        own = replace(known, samples_per_epoch=777.0, solo=SoloProfile(epoch_s=123.0))
        assert _one(predictor, own).jobs[0].epoch_s == Estimate(123.0, 123.0, 123.0)

    def test_unknown_stays_none(self, predictor: Predictor) -> None:
        blind = replace(A, solo=SoloProfile(gpu_util_pct=50.0), model="new", family="new", deadline_s=10.0)
        answer = _one(predictor, blind, B)
        job = answer.jobs[0]
        assert (job.epoch_s, job.jct_s, job.deadline_miss_probability) == (None, None, None)
        assert (answer.mem_mib, answer.oom_probability, answer.energy_j_per_epoch) == (None, None, None)
        assert answer.gpu_util_pct is not None


def test_the_nearest_families_do_not_depend_on_the_order(predictor: Predictor) -> None:
    jobs = (A, B, replace(A, family="x", solo=replace(SOLO, gpu_util_pct=10.0)))
    answers = predictor.predict([CoLocation("rtx3090", "time-slice", order) for order in permutations(jobs)])
    assert len({answer.nearest_families for answer in answers}) == 1
    assert len(answers[0].nearest_families) == 3


class TestAbstains:
    def _refused(self, predictor: Predictor, reason: str, *jobs: Job, slug: str = "rtx3090", mode: Any = "mps") -> None:
        (answer,) = predictor.predict([CoLocation(slug, mode, jobs)])
        assert answer.abstained is not None
        assert reason in answer.abstained
        assert "\n" not in answer.abstained
        assert answer.jobs == ()
        numbers = (answer.gpu_power_w, answer.node_power_w, answer.gpu_util_pct, answer.mem_mib)
        assert numbers == (None,) * 4
        assert answer.oom_probability is None
        assert answer.energy_j_per_epoch is None
        assert answer.predictor_version == predictor.info.version

    def test_on_a_config_that_was_measured_on_fewer_gpus_only(self, predictor: Predictor) -> None:
        known = next(key for key in predictor.parts.solos.profiles if key.gpu == "rtx3090" and key.dataset)
        job = Job(known.family, known.family, known.batch_size, known.precision, dataset=known.dataset)  # type: ignore[arg-type]
        one, two = predictor.predict([_set(job), _set(job, num_gpus=2)])
        assert one.abstained is None
        assert two.abstained is not None
        assert "never measured on 2 x rtx3090" in two.abstained

    def test_on_a_gpu_it_never_learned(self, predictor: Predictor) -> None:
        self._refused(
            predictor, "no training rows of GPU type h200; there are rows of rtx3090, v100-sxm", A, slug="h200"
        )
        self._refused(predictor, "no training rows of GPU type cpu-16core", A, slug="cpu-16core")

    def test_on_a_job_of_which_nothing_is_known(self, predictor: Predictor) -> None:
        unknown = Job("new", "newnet", 48)
        self._refused(predictor, "job newnet (batch size 48, fp32) has no solo gpu_util_pct", A, unknown)

    def test_on_a_sharing_mode_it_never_learned(self, predictor: Predictor) -> None:
        self._refused(predictor, "no training rows of rtx3090 under mig", A, B, mode="mig")
        (alone,) = predictor.predict([CoLocation("rtx3090", "mig", (A,))])
        assert alone.abstained is None

    def test_one_refusal_leaves_the_others_answered(self, predictor: Predictor) -> None:
        answers = predictor.predict([_set(A), _set(A, slug="h200"), _set(A, B)])
        assert [answer.abstained is None for answer in answers] == [True, False, True]
        assert answers[2] == _one(predictor, A, B)


def test_the_order_of_the_jobs_only_reorders_the_jobs(predictor: Predictor) -> None:
    jobs = (A, B, replace(B, job_id="c", solo=replace(OTHER, gpu_util_pct=13.7, mem_mib=1234.5)))
    straight = _one(predictor, *jobs)
    for order in permutations(range(3)):
        moved = _one(predictor, *(jobs[i] for i in order))
        assert moved.jobs == tuple(straight.jobs[i] for i in order)
        same = replace(moved, jobs=straight.jobs, nearest_families=straight.nearest_families)
        same = replace(same, energy_j_per_epoch=straight.energy_j_per_epoch)
        assert same == straight
        assert _known(moved.energy_j_per_epoch).mean == pytest.approx(_known(straight.energy_j_per_epoch).mean)


def test_a_batch_is_answered_as_its_sets_are(predictor: Predictor) -> None:
    sets = [_set(A), _set(A, B), _set(B, B, A), _set(B, slug="v100-sxm")]
    assert predictor.predict(sets) == [predictor.predict([s])[0] for s in sets]
    assert predictor.predict([]) == []


def test_columns_answer_for_jobs_in_any_place(predictor: Predictor) -> None:
    sets = sets_from_colocations([_set(A, B), _set(A)])
    straight, moved = predictor.predict_columns(sets), predictor.predict_columns(sets.permute_jobs([3, 2, 1, 0]))
    for name in ("gpu_util_pct", "mem_mib", "gpu_power_w"):
        for left, right in zip(getattr(straight, name), getattr(moved, name), strict=True):
            assert np.isfinite(left).all()
            assert np.array_equal(left, right)
    assert np.array_equal(straight.relative_speed.mean, moved.relative_speed.mean[:, ::-1], equal_nan=True)


def test_a_training_job_is_in_distribution_and_a_strange_one_is_not(
    predictor: Predictor, simulated: pd.DataFrame
) -> None:
    shared = simulated[
        (simulated["role"] == "colocated") & (simulated["gpu"] == "rtx3090") & (simulated["outcome"] == "ok")
    ]
    row = shared.iloc[0]
    known = Job(
        "m", row["family"], int(row["batch_size"]), row["precision"], dataset=row["dataset"], optimizer=row["optimizer"]
    )
    answer = _one(predictor, known)
    assert answer.abstained is None
    assert answer.out_of_distribution == pytest.approx(0.0, abs=1e-9)
    assert answer.nearest_families[0] == row["family"]
    strange = Job("x", "x", 8, solo=SoloProfile(gpu_util_pct=100.0, mem_util_pct=100.0, throughput_samples_s=1e-3))
    far = _one(predictor, strange).out_of_distribution
    assert far is not None
    assert 0.5 < far < 1.0


def test_the_answer_says_where_it_comes_from(predictor: Predictor) -> None:
    answer = _one(predictor, A, B)
    assert answer.provenance == {"simulated": 1.0}
    assert answer.predictor_version == predictor.info.version
    assert answer.schema_version == 1
    assert "SIMULATED" in predictor.info.notes[0]
    assert predictor.info.provenance == {"simulated": 1.0}
    assert predictor.info.gpus == ("rtx3090", "v100-sxm")


def test_every_number_is_finite(predictor: Predictor) -> None:
    answer = _one(predictor, A, B, node=NodeSpec(100.0, 200.0))
    estimates = [
        answer.gpu_power_w,
        answer.node_power_w,
        answer.gpu_util_pct,
        answer.mem_mib,
        answer.energy_j_per_epoch,
    ]
    for estimate in map(_known, estimates):
        assert all(map(math.isfinite, (estimate.mean, estimate.lower, estimate.upper)))
        assert estimate.lower <= estimate.mean <= estimate.upper


class TestFiles:
    def test_a_loaded_predictor_answers_the_same_to_the_last_bit(self, predictor: Predictor, tmp_path: Path) -> None:
        predictor.save(tmp_path / "new" / "folder")
        loaded = Predictor.load(tmp_path / "new" / "folder")
        assert loaded.info == predictor.info
        sets = [_set(A, B), _set(A), _set(B, B, A, A), _set(A, slug="h200"), _set(A, B, slug="v100-sxm")]
        assert loaded.predict(sets) == predictor.predict(sets)

    def _spoil(self, folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        changed = change(manifest)
        path.write_text(json.dumps(manifest if changed is None else changed))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (
                lambda m: m.pop("parts_version") and None,
                "saved by this release; train it again",
            ),
            (
                lambda m: m.update(parts_version=1),
                "saved by this release; train it again",
            ),
            (lambda m: m.update(feature_schema_version=99), "feature schema 99; expected schema 1"),
            (lambda m: m.update(sha256="0" * 64), "does not match its SHA-256"),
            (lambda m: m.pop("sha256"), "no readable predictor"),
            (lambda m: m.pop("info"), "no readable predictor"),
            (lambda m: m["info"].pop("notes"), "no readable predictor"),
            (lambda m: m["info"].pop("version"), "no readable predictor"),
            (lambda m: m.update(info=[1, 2]), "no readable predictor"),
            (lambda m: m["info"].update(gpus=None), "no readable predictor"),
            (lambda m: [m], "no readable predictor"),
        ],
    )
    def test_a_spoiled_manifest_is_one_clear_line(
        self, predictor: Predictor, tmp_path: Path, change: Callable[[dict[str, Any]], Any], reason: str
    ) -> None:
        predictor.save(tmp_path)
        self._spoil(tmp_path, lambda m: found if isinstance(found := change(m), list) else None)
        with pytest.raises(DataError) as refused:
            Predictor.load(tmp_path)
        assert reason in str(refused.value)
        assert str(refused.value).startswith(f"{tmp_path}: ")
        assert "\n" not in str(refused.value)

    def test_one_flipped_byte_of_the_model_is_noticed(self, predictor: Predictor, tmp_path: Path) -> None:
        predictor.save(tmp_path)
        path = tmp_path / "predictor.joblib"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(DataError, match="does not match its SHA-256; expected an intact file"):
            Predictor.load(tmp_path)

    @pytest.mark.parametrize("missing", ["manifest.json", "predictor.joblib"])
    def test_a_missing_file_is_named(self, predictor: Predictor, tmp_path: Path, missing: str) -> None:
        predictor.save(tmp_path)
        (tmp_path / missing).unlink()
        with pytest.raises(DataError, match=f"no readable predictor .*{missing}"):
            Predictor.load(tmp_path)

    def test_no_json_at_all(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text("<html>")
        with pytest.raises(DataError, match="no readable predictor"):
            Predictor.load(tmp_path)


def test_a_device_without_a_data_sheet_is_answered_without_watts_or_memory_risk(simulated: pd.DataFrame) -> None:
    """A CPU's own measurements answer for that CPU; what its memory holds is not known."""
    rows = simulated[simulated["gpu"] == "rtx3090"].assign(gpu="cpu-16core", gpu_power_w=np.nan, power_limit_w=np.nan)
    cpu = fit_predictor(rows.reset_index(drop=True), model="soft-minimum")
    answer = _one(cpu, A, B, slug="cpu-16core")
    assert answer.abstained is None
    assert _known(answer.jobs[0].epoch_s).mean > 200.0
    assert _known(answer.mem_mib).mean == pytest.approx(11_000.0)
    assert answer.oom_probability is None
    assert answer.gpu_power_w is None
    assert answer.energy_j_per_epoch is None


def test_a_pickle_that_cannot_be_read_names_the_versions(predictor: Predictor, tmp_path: Path) -> None:
    predictor.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "predictor.joblib").write_bytes(b"\x80\x04cno_such_library\nThing\n.")
    digest = hashlib.sha256((tmp_path / "predictor.joblib").read_bytes()).hexdigest()
    manifest["sha256"], manifest["info"]["libraries"]["numpy"] = digest, "1.0"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"cannot be read here \(\w+\); trained with numpy 1\.0, here ") as caught:
        Predictor.load(tmp_path)
    assert "\n" not in str(caught.value)
