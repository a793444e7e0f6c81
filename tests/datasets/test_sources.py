"""The registry: every data set loads by name, a file by its path, and a wrong name is told in one line."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.schema import validate_profiles, write_profiles
from eaco_datasets.sources import dataset_names, load_dataset, source, sources, sources_of


def test_every_source_says_where_it_is_from() -> None:
    names = [s.name for s in sources()]
    assert len(names) == len(set(names)) == 5
    for known in sources():
        assert known.licence
        assert known.citation
        assert known.embedded == (not known.files)
        assert source(known.name) is known
    assert [s.name for s in sources() if s.non_commercial] == ["lucid"]


def test_the_default_is_embedded_and_says_what_it_is() -> None:
    frame = load_dataset()
    parts = frame.groupby("source")["provenance"].unique().map(list).to_dict()
    assert parts == {"eaco": ["published"], "simulated": ["simulated"]}
    pd.testing.assert_frame_equal(load_dataset("embedded"), frame)
    pd.testing.assert_frame_equal(validate_profiles(frame, where="again"), frame)
    simulated = load_dataset("simulated")
    pd.testing.assert_frame_equal(frame[frame["source"] == "simulated"].reset_index(drop=True), simulated)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_loads_by_its_path(profiles: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine.{suffix}"
    write_profiles(profiles, path)
    pd.testing.assert_frame_equal(load_dataset(str(path)), validate_profiles(profiles, where="t"))


def test_a_wrong_name_and_a_wrong_path_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown data set 'lucit'; expected perhaps lucid"):
        load_dataset("lucit", tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_dataset("lucit.csv")
    with pytest.raises(UnknownNameError, match="unknown source 'gavel-k80'"):
        source("gavel-k80")


@pytest.mark.parametrize("name", ["lucid", "gavel", "gavel-k80", "gavel-p100", "zeus"])
def test_a_data_set_without_its_files_says_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--data-dir \(EACO_DATA_DIR\).*eaco datasets fetch"):
        load_dataset(name)
    with pytest.raises(InputError, match=r"no such file; expected --data-dir or EACO_DATA_DIR .*eaco datasets fetch"):
        load_dataset(name, tmp_path)


def test_names_lead_to_their_sources() -> None:
    assert {name: [s.name for s in sources_of(name)] for name in dataset_names()} == {
        "embedded": ["simulated", "eaco"],
        "simulated": ["simulated"],
        "eaco": ["eaco"],
        "lucid": ["lucid"],
        "gavel": ["gavel"],
        "zeus": ["zeus"],
        "gavel-k80": ["gavel"],
        "gavel-p100": ["gavel"],
    }
    assert sources_of("mine.csv") == ()


def test_the_parts_of_gavel_make_the_whole(data_dir: Path) -> None:
    parts = [load_dataset(f"gavel-{gpu}", data_dir) for gpu in ("k80", "p100")]
    assert [set(p["gpu"]) for p in parts] == [{"k80"}, {"p100"}]
    whole = load_dataset("gavel", data_dir)
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole, check_flags=False)


def test_families_of_the_sources_join(data_dir: Path) -> None:
    by_source = {name: set(load_dataset(name, data_dir)["family"]) for name in ("lucid", "gavel", "zeus", "eaco")}
    assert by_source["lucid"] & by_source["gavel"] >= {"resnet18", "resnet50", "lstm-lm", "transformer"}
    assert by_source["lucid"] & by_source["zeus"] >= {"bert-base", "neumf", "resnet50"}
    assert "vgg-cifar" not in by_source["eaco"]
