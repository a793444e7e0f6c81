"""The readers of embedded and synthetic files: EaCO's tables, and what malformed source files are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import DataError, InputError
from eaco_datasets.readers import eaco, gavel, lucid, zeus
from eaco_datasets.schema import profiles_sha256, validate_profiles

A = "('ResNet-18 (batch size 16)', 1)"
B = "('LM (batch size 5)', 1)"
A2 = "('ResNet-18 (batch size 16)', 2)"
A3C = "('A3C', 1)"


def _gavel_table() -> dict[str, Any]:
    return {
        A: {"null": 10.0, A: [4.0, 4.0], B: [5.0, 8.0], A3C: [0.0, 0.0]},
        B: {"null": 20.0, A: [8.0, 5.0]},
        A3C: {"null": 3.0, A: [0.0, 0.0]},
        A2: {"null": 18.0, A2: [0.0, 0.0]},
    }


def _write_gavel(folder: Path, k80: Any, p100: Any) -> Path:
    path = folder / gavel.FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"k80": k80, "p100": p100}), encoding="utf-8")
    return folder


def test_gavel_pairs_are_read_once_with_speeds_against_solo(tmp_path: Path) -> None:
    frame = gavel.read(_write_gavel(tmp_path, _gavel_table(), _gavel_table()), gpus=("k80",))
    assert set(frame["gpu"]) == {"k80"}
    pairs = frame[frame["role"] == "colocated"]
    assert pairs["measurement_id"].nunique() == 3
    ok = pairs[pairs["outcome"] == "ok"]
    assert dict(zip(ok["measurement_id"] + ok["job_index"].astype(str), ok["relative_speed"], strict=True)) == {
        "gavel-k80-ResNet-18 (batch size 16) + ResNet-18 (batch size 16)0": 0.4,
        "gavel-k80-ResNet-18 (batch size 16) + ResNet-18 (batch size 16)1": 0.4,
        "gavel-k80-ResNet-18 (batch size 16) + LM (batch size 5)0": 0.5,
        "gavel-k80-ResNet-18 (batch size 16) + LM (batch size 5)1": 0.4,
    }
    failed = pairs[pairs["outcome"] == "failed"]
    assert len(failed) == 2
    assert failed[["relative_speed", "throughput_samples_s"]].isna().all(axis=None)
    solo = frame[frame["role"] == "solo"].set_index(["family", "num_gpus"])["throughput_samples_s"]
    assert solo[("resnet18", 1)] == 160.0
    assert solo[("resnet18", 2)] == 18.0 * 16
    assert np.isnan(solo[("a3c", 1)])
    assert sum(frame.attrs["left_out"].values()) == 1


def _change(*path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(table: dict[str, Any]) -> Any:
        inner = table
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (lambda _: [], "/k80", "not a table of jobs"),
        (lambda _: {A: 3.0}, "/k80", "not a table of jobs"),
        (_change("ResNet-18", value={"null": 1.0}), "/k80", "'ResNet-18' names no job"),
        (_change("('ResNet-18', 1)", value={"null": 1.0}), "/k80", "has no batch size"),
        (_change("('ResNet-18 (batch size 0)', 1)", value={"null": 1.0}), "/k80", "names no job"),
        (_change("('ResNet-18 (batch size 16)', 0)", value={"null": 1.0}), "/k80", "names no job"),
        (_change(A, "null", value=-1.0), f"/k80/{A}/null", "-1.0 is no speed; expected steps/s, 0 or more"),
        (_change(A, "null", value=None), f"/k80/{A}/null", "None is no speed"),
        (_change(A, B, value=[5.0]), f"/k80/{A}/{B}", "is no pair of speeds"),
        (_change(A, B, value=[5.0, 0.0]), f"/k80/{A}/{B}", "one job of the pair has no speed"),
        (_change(A, B, value=[5.0, 7.0]), f"/k80/{A}/{B}", "not the mirror of the reverse entry"),
        (_change(A, "('LM (batch size 9)', 1)", value=[1.0, 1.0]), "/k80/", "the co-runner has no entry of its own"),
        (_change(A2, A2, value=[1.0, 1.0]), f"/k80/{A2}/{A2}", "a pair on several GPUs with a speed"),
        (_change(B, "null", value=0.0), f"/k80/{A}/{B}", "a pair with a speed, of a job without"),
        (_change(A, A2, value=[0.0, 0.0]), f"/k80/{A}/{A2}", "two jobs on different numbers of GPUs"),
    ],
)
def test_a_malformed_gavel_file_names_the_entry(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], place: str, message: str
) -> None:
    _write_gavel(tmp_path, change(_gavel_table()), _gavel_table())
    with pytest.raises(DataError) as caught:
        gavel.read(tmp_path)
    assert f"{gavel.FILE}:{place}" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "throughputs.json:1:2: not JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[]", "a list at the top"),
        (b"{}", "no throughputs of k80"),
    ],
)
def test_a_gavel_file_that_is_no_such_json_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "gavel").mkdir()
    (tmp_path / gavel.FILE).write_bytes(content)
    with pytest.raises(DataError, match=message):
        gavel.read(tmp_path)


LUCID_SOLO = """\
model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label
PPO,LunarLander,32,0,5.1,12.4,0.0,2051,0
VGG,CIFAR-10,32,1,3556.88,48,19,2762,0
"""
_JOBS = ",".join(f"model{i},dataset{i},gpu_num{i},batchsize{i},amp{i},speed{i}" for i in (1, 2))
LUCID_PAIRS = f"""\
,{_JOBS},gpu_util,gmem_util,gmem
9,PPO,LunarLander,1,32,0,1.0,VGG,CIFAR-10,1,32,1,1.2,50,20,4000
12,VGG,CIFAR-10,1,32,1,0.9,VGG,CIFAR-10,1,32,1,0.95,90,40,5000
"""


def _write_lucid(folder: Path, solo: str = LUCID_SOLO, pairs: str = LUCID_PAIRS) -> Path:
    (folder / "lucid").mkdir(exist_ok=True)
    (folder / lucid.SOLO_FILE).write_text(solo, encoding="utf-8")
    (folder / lucid.PAIR_FILE).write_text(pairs, encoding="utf-8")
    return folder


def test_lucid_pairs_become_two_rows(tmp_path: Path) -> None:
    frame = lucid.read(_write_lucid(tmp_path))
    pairs = frame[frame["role"] == "colocated"]
    assert pairs["measurement_id"].tolist() == ["lucid-pair-1"] * 2 + ["lucid-pair-2"] * 2
    assert pairs["relative_speed"].tolist() == [1.0, 1.2, 0.9, 0.95]
    assert pairs["provenance"].tolist() == ["imputed", "measured", "measured", "measured"]
    assert pairs["family"].tolist() == ["ppo", "vgg-cifar", "vgg-cifar", "vgg-cifar"]
    assert pairs["precision"].tolist() == ["fp32", "amp", "amp", "amp"]
    assert pairs["mem_mib"].tolist() == [4000.0, 4000.0, 5000.0, 5000.0]
    solo = frame[frame["role"] == "solo"].set_index("family")
    assert np.isnan(solo.loc["ppo", "throughput_samples_s"])
    assert solo.loc["vgg-cifar", "throughput_samples_s"] == 3556.88
    assert solo.loc["ppo", "mem_util_pct"] == 0.0


@pytest.mark.parametrize(
    ("solo", "pairs", "message"),
    [
        (LUCID_SOLO.replace("batchsize", "bs"), LUCID_PAIRS, "single_data.csv:batchsize: the column is missing"),
        (LUCID_SOLO.splitlines()[0], LUCID_PAIRS, "single_data.csv: the table has no rows"),
        (LUCID_SOLO.replace(",5.1,", ",-1,"), LUCID_PAIRS, "single_data.csv:1:speed: '-1' does not fit"),
        (LUCID_SOLO.replace("2051", ""), LUCID_PAIRS, "single_data.csv:1:gmem: the cell is empty"),
        (LUCID_SOLO, LUCID_PAIRS.replace("1,0.95", "1,fast"), "colocate_info.csv:2:speed2: 'fast' does not fit"),
        (LUCID_SOLO, LUCID_PAIRS.replace("1,0.95", "2,0.95"), "colocate_info.csv:2:amp2: '2' does not fit"),
        (LUCID_SOLO, LUCID_PAIRS.replace("90,40", "190,40"), "colocate_info.csv:2:gpu_util: '190' does not fit"),
        (LUCID_SOLO, LUCID_PAIRS + "1,2,3\n", "colocate_info.csv:3:gpu_num1: the cell is empty"),
    ],
)
def test_a_malformed_lucid_file_names_the_cell(tmp_path: Path, solo: str, pairs: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        lucid.read(_write_lucid(tmp_path, solo, pairs))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_zeus_reads_each_gpu_and_refuses_a_power_of_zero(tmp_path: Path) -> None:
    header = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    (tmp_path / "zeus").mkdir()
    for relative in zeus.FILES:
        (tmp_path / relative).write_text(header + "squad,bert_base_uncased,8,adamw,150,1000.5,120.25\n")
    frame = zeus.read(tmp_path)
    assert frame["gpu"].tolist() == ["a40", "p100", "rtx6000-turing", "v100-pcie"]
    assert set(frame["family"]) == {"bert-base"}
    assert frame[["power_limit_w", "epoch_s", "gpu_power_w"]].to_numpy().tolist() == [[150.0, 1000.5, 120.25]] * 4
    assert frame["throughput_samples_s"].isna().all()
    (tmp_path / "zeus/summary_power_p100.csv").write_text(header + "squad,ncf,8,adamw,150,1000.5,0\n")
    with pytest.raises(
        DataError, match=r"summary_power_p100\.csv:1:average_power: '0' does not fit; expected a number above 0"
    ):
        zeus.read(tmp_path)


@pytest.mark.parametrize("module", [lucid, gavel, zeus])
def test_a_missing_file_says_how_to_get_it(tmp_path: Path, module: Any) -> None:
    with pytest.raises(InputError, match=rf"^--data-dir \(EACO_DATA_DIR\): .*eaco datasets fetch {module.SOURCE}"):
        module.read(None)
    with pytest.raises(InputError, match=rf"no such file; expected --data-dir .*eaco datasets fetch {module.SOURCE}"):
        module.read(tmp_path)


def test_the_published_tables_are_embedded() -> None:
    frame = eaco.read()
    assert set(frame["provenance"]) == {"published"}
    assert set(frame["num_gpus"]) == {8}
    assert set(frame["gpu"]) == {"v100-sxm"}
    solo = frame[frame["role"] == "solo"].set_index("family")
    assert solo["node_power_w"].to_dict() == {"alexnet": 712, "resnet18": 959, "resnet50": 1330, "vgg16": 1533}
    assert solo.loc["resnet50", "epoch_s"] == 0.40 * 3600
    sets = frame[frame["role"] == "colocated"]
    assert sets.groupby("measurement_id").size().to_dict() == {
        "eaco-j1+j3": 2, "eaco-j1+j4": 2, "eaco-j2+j4": 2,
        "eaco-j1+j2+j3": 3, "eaco-j1+j2+j4": 3, "eaco-j1+j2+j3+j4": 4,
    }  # fmt: skip
    assert sets["relative_speed"].isna().all()
    four = sets[sets["measurement_id"] == "eaco-j1+j2+j3+j4"]
    assert four["node_power_w"].tolist() == [1944.0] * 4
    assert four["family"].tolist() == ["alexnet", "resnet18", "resnet50", "vgg16"]
    assert four["epoch_s"].isna().all()
    assert sets[sets["measurement_id"] == "eaco-j1+j3"]["gpu_util_pct"].tolist() == [40.25, 40.25]
    pd.testing.assert_frame_equal(eaco.read(), frame)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_gavel_speeds_do_not_depend_on_which_mirror_comes_first(
    tmp_path_factory: pytest.TempPathFactory, a: float, b: float, x: float, y: float
) -> None:
    table = {A: {"null": a, B: [a * x, b * y]}, B: {"null": b, A: [b * y, a * x]}}
    speeds = []
    for order in ((A, B), (B, A)):
        ordered = {key: table[key] for key in order}
        folder = _write_gavel(tmp_path_factory.mktemp("gavel"), ordered, ordered)
        pair = gavel.read(folder, gpus=("p100",)).query("role == 'colocated'")
        speeds.append(pair.set_index("family")["relative_speed"].to_dict())
    assert speeds[0] == speeds[1]
    assert speeds[0]["resnet18"] == pytest.approx(x)


@pytest.mark.parametrize("module", [lucid, gavel, zeus, eaco])
def test_reading_twice_is_equal_and_valid(data_dir: Path, module: Any) -> None:
    first, second = module.read(data_dir), module.read(data_dir)
    pd.testing.assert_frame_equal(first, second)
    assert profiles_sha256(first) == profiles_sha256(second)
    pd.testing.assert_frame_equal(validate_profiles(first, where="again"), first)


def test_facts_of_lucid(data_dir: Path) -> None:
    frame = lucid.read(data_dir)
    pairs, solo = frame[frame["role"] == "colocated"], frame[frame["role"] == "solo"]
    assert pairs["measurement_id"].nunique() == 830
    assert pairs["provenance"].value_counts().to_dict() == {"measured": 1414, "imputed": 246}
    assert set(pairs[pairs["provenance"] == "imputed"]["family"]) == {"ppo", "td3"}
    measured = pairs[pairs["provenance"] == "measured"]
    assert measured["family"].nunique() == 7
    assert measured["relative_speed"].max() == 1.498
    assert len(solo) == 66
    assert set(solo[solo["throughput_samples_s"].isna()]["family"]) == {"ppo", "td3"}
    key = ["family", "dataset", "batch_size", "precision"]
    assert len(pairs.merge(solo[key], on=key, validate="many_to_one")) == len(pairs)


def test_facts_of_gavel(data_dir: Path) -> None:
    frame = gavel.read(data_dir)
    pairs = frame[frame["role"] == "colocated"]
    assert pairs.groupby("gpu")["measurement_id"].nunique().to_dict() == {"k80": 351, "p100": 351}
    failed = pairs[pairs["outcome"] == "failed"]
    assert failed.groupby("gpu")["measurement_id"].nunique().to_dict() == {"k80": 45, "p100": 11}
    assert pairs["relative_speed"].between(0.2, 1.0).sum() == len(pairs) - len(failed)
    assert set(pairs["num_gpus"]) == {1}
    assert frame.attrs["left_out"] == {"pairs on several GPUs that were never measured": 1140}
    solo = frame[frame["role"] == "solo"]
    assert solo.groupby(["gpu", "num_gpus"]).size().tolist() == [26, 19, 19, 19] * 2
    assert solo["family"].nunique() == 7
    raw = json.loads((data_dir / gavel.FILE).read_text())["k80"]
    row = pairs[pairs["measurement_id"] == "gavel-k80-ResNet-18 (batch size 16) + A3C"].set_index("family")
    a, b = raw[A][A3C]
    assert row.loc["resnet18", "relative_speed"] == a / raw[A]["null"]
    assert row.loc["a3c", "relative_speed"] == b / raw[A3C]["null"]


def test_facts_of_zeus(data_dir: Path) -> None:
    frame = zeus.read(data_dir)
    assert frame.groupby("gpu").size().to_dict() == {"a40": 453, "p100": 270, "rtx6000-turing": 410, "v100-pcie": 476}
    assert frame.groupby(["family", "dataset"]).ngroups == 6
    assert set(frame[frame["family"] == "bert-base"]["dataset"]) == {"squad", "sentiment140"}
    assert frame.groupby("gpu")["gpu_power_w"].min().round(1).to_dict() == {
        "a40": 79.9, "p100": 33.3, "rtx6000-turing": 54.7, "v100-pcie": 34.8,
    }  # fmt: skip
    assert not frame.duplicated(["gpu", "family", "dataset", "batch_size", "optimizer", "power_limit_w"]).any()


def test_the_embedded_tables_are_the_published_ones(data_dir: Path) -> None:
    for name in ("solo", "colocated"):
        published = pd.read_csv(data_dir / f"eaco/{name}.csv")
        pd.testing.assert_frame_equal(eaco._table(f"eaco_{name}.csv"), published)
