"""Every source's model names map to a known family; unknown ones still get a usable slug."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets import names
from eaco_datasets.errors import InputError

DATA = os.environ.get("EACO_DATA_DIR")
needs_data = pytest.mark.skipif(DATA is None, reason="EACO_DATA_DIR names no folder with the public data")


@pytest.mark.parametrize(
    ("model", "dataset", "family"),
    [
        ("ResNet-18", None, "resnet18"),
        ("ResNet-18 (batch size 64)", "CIFAR-10", "resnet18"),
        ("resnet50", "imagenet", "resnet50"),
        ("VGG", "CIFAR-10", "vgg-cifar"),
        ("VGG", None, "vgg-cifar"),
        ("VGG", "ImageNet", "vgg-imagenet"),
        ("VGG-16", "CIFAR-10", "vgg16"),
        ("vgg16", None, "vgg16"),
        ("LSTM", "Wikitext2", "lstm-lm"),
        ("LM (batch size 5)", None, "lstm-lm"),
        ("LSTM", "IMDB", "lstm-imdb"),
        ("Recommendation", "ML-20M", "autoencoder-rec"),
        ("NeuMF", "MovieLens", "neumf"),
        ("ncf", "movielens-1m", "neumf"),
        ("bert_base_uncased", "squad", "bert-base"),
        ("BERT", "SQuAD", "bert-base"),
        ("bert-large-uncased", "squad", "bert-large"),
        ("MobileNetV3", "ImageNet", "mobilenetv3"),
        ("mobilenet_v3_small", "ImageNet", "mobilenetv3"),
        ("MobileNetV3-Large", "ImageNet", "mobilenetv3-large"),
        ("mobilenet_v2", None, "mobilenetv2"),
        ("EfficientNet", "CIFAR-10", "efficientnet-b0"),
        ("My Own Net!", None, "my-own-net"),
    ],
)
def test_names_map_to_families(model: str, dataset: str | None, family: str) -> None:
    assert names.family_of(model, dataset) == family


def test_depths_are_families_and_share_a_group() -> None:
    assert names.family_of("ResNet-18") != names.family_of("ResNet-50")
    assert (
        names.family_group("resnet18") == names.family_group("resnet50") == names.family_group("resnet20") == "resnet"
    )
    assert {names.family_group(f"mobilenet{form}") for form in ("v2", "v3", "v3-large")} == {"mobilenet"}
    assert names.family_group("vgg-cifar") == names.family_group("vgg16") == "vgg"
    assert names.family_group("dcgan") == "dcgan" != names.family_group("cyclegan")
    assert names.family_group("transformer") == "transformer"


@pytest.mark.parametrize("empty", ["", "  ", "---", "(batch size 8)"])
def test_a_name_of_nothing_is_refused(empty: str) -> None:
    with pytest.raises(InputError, match="holds no letter or digit"):
        names.family_of(empty)


@given(st.text(max_size=40), st.none() | st.text(max_size=20))
def test_any_name_gives_a_slug_that_stays(model: str, dataset: str | None) -> None:
    try:
        slug = names.family_of(model, dataset)
    except InputError:
        assert not re.search("[a-z0-9]", re.sub(r"\(batch size \d+\)\s*$", "", model.lower()))
        return
    assert re.fullmatch(names.FAMILY_PATTERN, slug)
    assert names.family_of(slug) == slug


def test_the_alias_table_is_consistent() -> None:
    for slug in names.families():
        assert names.is_known_family(slug)
        assert re.fullmatch(names.FAMILY_PATTERN, slug)
        assert names.family_of(slug) == slug
    for model in names.known_models():
        assert names.is_known_family(names.family_of(model))
    assert not names.is_known_family("my-own-net")


def test_data_sets_have_one_spelling() -> None:
    assert names.dataset_slug("CIFAR-10") == names.dataset_slug("cifar10") == "cifar10"
    assert names.dataset_slug("ImageNet") == "imagenet"
    assert names.dataset_slug("My Set") == "my-set"


@needs_data
def test_every_name_of_the_sources_is_known() -> None:
    folder = Path(DATA or "")
    solo = pd.read_csv(folder / "lucid/single_data.csv")
    pairs = pd.read_csv(folder / "lucid/colocate_info.csv")
    used = set(zip(solo["model"], solo["dataset"], strict=True))
    for i in ("1", "2"):
        used |= set(zip(pairs[f"model{i}"], pairs[f"dataset{i}"], strict=True))
    for path in sorted((folder / "zeus").glob("summary_*.csv")):
        table = pd.read_csv(path)
        used |= set(zip(table["network"], table["dataset"], strict=True))
    eaco = pd.read_csv(folder / "eaco/solo.csv")
    used |= set(zip(eaco["model"], eaco["dataset"], strict=True))
    for jobs in json.loads((folder / "gavel/throughputs.json").read_text()).values():
        used |= {(key.split("'")[1], None) for key in jobs}
    for path in sorted((folder / "gavel/traces").glob("*.trace")):
        used |= {(line.split("\t")[0], None) for line in path.read_text().splitlines() if line.strip()}
    used |= {(m, None) for m in pd.read_csv(folder / "philly/philly_103959.csv")["model_name"].unique()}
    unknown = {(m, d) for m, d in used if not names.is_known_family(names.family_of(m, d))}
    assert len(used) > 40
    assert unknown == set()
