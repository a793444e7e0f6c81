"""Model families: one alias table maps every source's model names to slugs.

The table is data (``data/aliases.json``). Names are compared without case and punctuation, and without Gavel's
``(batch size N)`` ending, so ``ResNet-18``, ``resnet18`` and ``ResNet-18 (batch size 64)`` are one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from eaco_datasets.errors import InputError

FAMILY_PATTERN = r"^[a-z0-9][a-z0-9.+-]*$"
"""What a family slug looks like."""

_BATCH_SIZE_ENDING = re.compile(r"\s*\(batch size \d+\)\s*$", re.IGNORECASE)
_PUNCTUATION = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class _Aliases:
    family_by_key: Mapping[str, str]
    ambiguous_by_key: Mapping[str, Mapping[str, str]]
    group_by_prefix: Mapping[str, str]
    dataset_by_key: Mapping[str, str]
    families: tuple[str, ...]
    models: tuple[str, ...]


def family_of(model: str, dataset: str | None = None) -> str:
    """The family slug of a model as its source names it, e.g. ``ResNet-18`` -> ``resnet18``.

    A few names say too little by themselves (Lucid's ``VGG`` and ``LSTM``, Gavel's ``LM`` and ``Recommendation``):
    they mean a known family with the data set that their source trains on, or when no data set is given; with
    another one the data set is part of the slug (``vgg-imagenet``). A model that the table does not know gets a
    slug of its own name.

    Raises:
        InputError: ``model`` holds no letter or digit.
    """
    table = _aliases()
    bare = _BATCH_SIZE_ENDING.sub("", model)
    key = _key(bare)
    if not key:
        raise InputError(f"model name {model!r} holds no letter or digit", expected="a name such as resnet50")
    if (family := table.family_by_key.get(key)) is not None:
        return family
    if (by_dataset := table.ambiguous_by_key.get(key)) is None:
        return _slug(bare)
    if dataset is None or not _key(dataset):
        return next(iter(by_dataset.values()))
    return by_dataset.get(dataset_slug(dataset)) or f"{_slug(bare)}-{dataset_slug(dataset)}"


def is_known_family(slug: str) -> bool:
    """Whether the alias table knows this family slug."""
    return slug in _aliases().families


def families() -> tuple[str, ...]:
    """All family slugs of the alias table, sorted."""
    return _aliases().families


def known_models() -> tuple[str, ...]:
    """All model names that map to a known family: the slugs and the names of the sources, sorted."""
    return _aliases().models


def family_group(slug: str) -> str:
    """The group of a family, held out as one: all ResNets, all MobileNets ...; else the family itself."""
    prefixes = _aliases().group_by_prefix
    matching = [p for p in prefixes if slug.startswith(p)]
    return prefixes[max(matching, key=len)] if matching else slug


def dataset_slug(name: str) -> str:
    """One spelling for a training data set, e.g. ``CIFAR-10`` -> ``cifar10``; an unknown one is normalised."""
    return _aliases().dataset_by_key.get(_key(name)) or _slug(name)


def _key(name: str) -> str:
    return _PUNCTUATION.sub("", name.lower())


def _slug(name: str) -> str:
    return _PUNCTUATION.sub("-", name.lower()).strip("-")


@cache
def _aliases() -> _Aliases:
    raw = json.loads(files("eaco_datasets").joinpath("data/aliases.json").read_text(encoding="utf-8"))
    by_family: dict[str, list[str]] = raw["families"]
    ambiguous: dict[str, dict[str, str]] = raw["ambiguous"]
    named = {n for slug, names in by_family.items() for n in (slug, *names)} | set(ambiguous)
    return _Aliases(
        family_by_key={_key(n): slug for slug, names in by_family.items() for n in (slug, *names)},
        ambiguous_by_key={_key(n): by_dataset for n, by_dataset in ambiguous.items()},
        group_by_prefix=raw["groups"],
        dataset_by_key={_key(n): slug for slug, names in raw["datasets"].items() for n in (slug, *names)},
        families=tuple(sorted(by_family)),
        models=tuple(sorted(named)),
    )
