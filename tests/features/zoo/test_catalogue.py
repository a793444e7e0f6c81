"""The catalogue of reference jobs: complete over every source, consistent, and readable without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.names import FAMILY_PATTERN, dataset_slug, families, family_of
from eaco_datasets.readers import gavel
from eaco_datasets.sources import load_dataset
from eaco_features.zoo.catalogue import ReferenceJob, reference_job, reference_jobs, reference_of

NAMED_BY_SOURCES = {
    "lucid": (
        *(("BERT", "SQuAD"), ("DCGAN", "LSUN"), ("EfficientNet", "CIFAR-10"), ("LSTM", "Wikitext2")),
        *(("MobileNetV2", "CIFAR-10"), ("MobileNetV3", "ImageNet"), ("NeuMF", "MovieLens"), ("PointNet", "ShapeNet")),
        *(("PPO", "LunarLander"), ("TD3", "BipedalWalker"), ("ResNet18", "CIFAR-10"), ("ResNet50", "ImageNet")),
        *(("Transformer", "Multi30k"), ("VGG", "CIFAR-10")),
    ),
    "gavel": tuple(gavel.DATASETS.items()),
    "zeus": (
        *(("bert_base_uncased", "squad"), ("bert_base_uncased", "sentiment140"), ("deepspeech2", "librispeech")),
        *(("ncf", "movielens-1m"), ("resnet50", "imagenet"), ("shufflenetv2", "cifar100")),
    ),
    "eaco": (("AlexNet", "ImageNet"), ("ResNet-18", "ImageNet"), ("ResNet-50", "ImageNet"), ("VGG-16", "ImageNet")),
}
"""Model and data set of every job that a source measured, as the source writes them."""


def missing(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {pair for pair in pairs if reference_of(*pair) is None}


@pytest.mark.parametrize("source", NAMED_BY_SOURCES)
def test_every_job_that_a_source_names_has_a_reference(source: str) -> None:
    named = NAMED_BY_SOURCES[source]
    assert not missing({(family_of(model, dataset), dataset) for model, dataset in named})


@pytest.mark.parametrize("source", NAMED_BY_SOURCES)
def test_every_row_of_a_source_has_a_reference(source: str) -> None:
    folder = os.environ.get("EACO_DATA_DIR")
    if folder is None and source != "eaco":
        pytest.skip("EACO_DATA_DIR is not set: the measured tables are not part of the project")
    table = load_dataset(source, None if folder is None else Path(folder))
    pairs = set(zip(table["family"], table["dataset"], strict=True))
    assert pairs
    assert not missing(pairs)
    assert pairs == {(family_of(m, d), dataset_slug(d)) for m, d in NAMED_BY_SOURCES[source]}


def test_every_reference_is_of_a_known_family_and_names_are_unique() -> None:
    jobs = reference_jobs()
    assert {job.family for job in jobs} <= set(families())
    assert len({job.name for job in jobs}) == len(jobs) >= 30
    assert len({(job.family, job.dataset) for job in jobs}) == len(jobs)
    assert len({job.build for job in jobs}) == len(jobs)


@pytest.mark.parametrize("job", reference_jobs(), ids=lambda job: job.name)
def test_a_reference_is_well_formed(job: ReferenceJob) -> None:
    assert re.fullmatch(FAMILY_PATTERN, job.family)
    assert job.dataset == dataset_slug(job.dataset)
    assert list(job.dataset_aliases) == [dataset_slug(name) for name in job.dataset_aliases]
    assert re.fullmatch(r"eaco_features\.zoo\.\w+:build_\w+", job.build)
    assert job.batch_sizes
    assert list(job.batch_sizes) == sorted(set(job.batch_sizes))
    assert job.batch_sizes[0] > 0
    assert job.input_shapes
    assert all(size > 0 for shape in job.input_shapes.values() for size in shape)
    assert job.samples_per_epoch is None or job.samples_per_epoch > 0
    for figure in (job.parameters, job.forward_macs):
        if figure is not None:
            assert figure.value > 0
            assert figure.status in ("published", "hand-derived")
            assert figure.source


def test_a_job_is_found_by_its_name() -> None:
    assert all(reference_job(job.name) is job for job in reference_jobs())


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown reference job 'bert-base-squat'.*bert-base-squad"):
        reference_job("bert-base-squat")


def test_a_family_is_found_by_any_spelling_of_its_data_set() -> None:
    squad, tweets = reference_of("bert-base", "SQuAD"), reference_of("bert-base", "sentiment140")
    assert squad is not None
    assert tweets is not None
    assert (squad.name, tweets.name) == ("bert-base-squad", "bert-base-sentiment140")
    assert reference_of("neumf", "MovieLens") is reference_of("neumf", "ML-1M") is reference_of("neumf")


def test_without_a_data_set_the_first_listed_job_is_meant() -> None:
    for family in {job.family for job in reference_jobs()}:
        assert reference_of(family) is next(job for job in reference_jobs() if job.family == family)


def test_another_data_set_or_family_has_no_reference() -> None:
    assert reference_of("bert-base", "imagenet") is None
    assert reference_of("my-own-net") is None


def test_forward_flops_are_twice_the_multiply_accumulates() -> None:
    job = reference_job("gpt2-small-openwebtext")
    assert job.forward_macs is not None
    assert job.forward_flops == 2 * job.forward_macs.value
    assert reference_job("td3-bipedalwalker").forward_flops is None


def test_reading_the_catalogue_does_not_import_torch() -> None:
    code = (
        "import sys; from eaco_features.zoo.catalogue import reference_jobs; assert reference_jobs();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lucids_mobilenet_is_the_small_one_and_the_large_one_is_another_family() -> None:
    """Torchvision's documentation: 2,542,856 parameters (Small), 5,483,032 (Large)."""
    counts = {
        name: reference_of(family_of(name)) for name in ("MobileNetV3", "mobilenet_v3_small", "mobilenet_v3_large")
    }
    assert {name: job and job.parameters.value for name, job in counts.items()} == {
        "MobileNetV3": 2_542_856,
        "mobilenet_v3_small": 2_542_856,
        "mobilenet_v3_large": 5_483_032,
    }
