"""The catalogue of reference jobs: what each trains, where it is built, and what is known of its size. No torch.

Its data are the files ``*_reference.json`` beside this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.names import dataset_slug

FLOP_PER_MAC = 2
"""A multiply-accumulate is two floating-point operations."""

_FILE_ENDING = "_reference.json"
_ONLY_INPUT = "input"


@dataclass(frozen=True, slots=True)
class Figure:
    """A count and where it is from: published by ``source``, or derived by hand as ``source`` says.

    ``input_shape`` is the shape of one sample that the count holds for, where it is not the job's own.
    """

    value: int
    status: Literal["published", "hand-derived"]
    source: str
    input_shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """One reference training job.

    Args:
        name: unique name.
        family: slug of ``eaco_datasets.names``.
        dataset: slug of the training data; ``dataset_aliases`` are other names that sources give the same data.
        build: ``package.module:function`` taking a batch size and returning a ``TrainingJob``.
        batch_sizes: batch sizes that sources measured, or usual ones; every one can be built.
        input_shapes: name -> shape of one sample, without the batch.
        samples_per_epoch: samples in one pass over the training data; None where there is no such thing.
        optimizer: the optimizer stepped.
        parameters: trained parameters.
        forward_macs: multiply-accumulates (half the FLOPs) of one sample's forward pass, convolutions and matrix
            products only; None where a step has no single forward pass.
        notes: what was chosen, and what a reader must know.
    """

    name: str
    family: str
    dataset: str
    build: str
    batch_sizes: tuple[int, ...]
    input_shapes: Mapping[str, tuple[int, ...]] = field(hash=False)
    samples_per_epoch: int | None
    optimizer: str
    parameters: Figure
    forward_macs: Figure | None
    notes: str = ""
    dataset_aliases: tuple[str, ...] = ()

    @property
    def forward_flops(self) -> int | None:
        """FLOPs of one sample's forward pass, a multiply-accumulate counted as two."""
        return None if self.forward_macs is None else FLOP_PER_MAC * self.forward_macs.value


@cache
def reference_jobs() -> tuple[ReferenceJob, ...]:
    """Every reference job, in the order of the files."""
    documents = sorted(
        (entry for entry in files("eaco_features.zoo").iterdir() if entry.name.endswith(_FILE_ENDING)),
        key=lambda entry: entry.name,
    )
    return tuple(
        _parsed(name, raw)
        for document in documents
        for name, raw in json.loads(document.read_text(encoding="utf-8"))["jobs"].items()
    )


def reference_job(name: str) -> ReferenceJob:
    """The reference job of this name.

    Raises:
        UnknownNameError: there is none.
    """
    by_name = {job.name: job for job in reference_jobs()}
    if name not in by_name:
        raise UnknownNameError("reference job", name, by_name)
    return by_name[name]


def reference_of(family: str, dataset: str | None = None) -> ReferenceJob | None:
    """The reference job of a family on a data set, or None where the catalogue has none.

    Args:
        family: family slug.
        dataset: any spelling of the data set; when None, the first listed of the family's jobs is meant. Another
            data set has other input shapes, so one that no job trains on gives None.
    """
    of_family = [job for job in reference_jobs() if job.family == family]
    if dataset is None:
        return next(iter(of_family), None)
    wanted = dataset_slug(dataset)
    return next((job for job in of_family if wanted in (job.dataset, *job.dataset_aliases)), None)


def epoch_samples(family: str, dataset: str | None = None) -> int | None:
    """Samples in one pass over the training data of a family's reference job; None where it cannot be known.

    Without ``dataset`` that is where the family's reference jobs train on data of different sizes.
    """
    if dataset is not None:
        job = reference_of(family, dataset)
        return None if job is None else job.samples_per_epoch
    sizes = {job.samples_per_epoch for job in reference_jobs() if job.family == family}
    return sizes.pop() if len(sizes) == 1 else None


def _parsed(name: str, raw: Mapping[str, Any]) -> ReferenceJob:
    shapes = raw["input_shapes"] if "input_shapes" in raw else {_ONLY_INPUT: raw["input_shape"]}
    return ReferenceJob(
        name=name,
        family=raw["family"],
        dataset=raw["dataset"],
        build=raw["build"],
        batch_sizes=tuple(raw["batch_sizes"]),
        input_shapes={key: tuple(shape) for key, shape in shapes.items()},
        samples_per_epoch=raw["samples_per_epoch"],
        optimizer=raw["optimizer"],
        parameters=_figure(raw["parameters"]),
        forward_macs=None if raw["forward_macs"] is None else _figure(raw["forward_macs"]),
        notes=raw.get("notes", ""),
        dataset_aliases=tuple(raw.get("dataset_aliases", ())),
    )


def _figure(raw: Mapping[str, Any]) -> Figure:
    shape = raw.get("input_shape")
    return Figure(raw["value"], raw["status"], raw["source"], None if shape is None else tuple(shape))
