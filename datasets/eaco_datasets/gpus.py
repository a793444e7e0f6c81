"""The GPU catalogue: data-sheet figures with their sources, and the names GPUs go by. Kept in ``data/gpus.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.types import GpuSpec

FIGURES: tuple[str, ...] = (
    "architecture",
    "year",
    "memory_mib",
    "power_limit_w",
    "idle_w",
    "sms",
    "fp32_tflops",
    "amp_tflops",
    "bandwidth_gbs",
)
"""Fields of a ``GpuSpec`` that carry a source each."""

_NOT_FRACTIONAL = ("architecture", "year", "sms")
_MAKER_WORDS = frozenset({"nvidia", "tesla", "geforce"})
_CPU_SLUG = re.compile(r"cpu-[1-9][0-9]*core")


@cache
def gpu_specs() -> Mapping[str, GpuSpec]:
    """Every GPU type of the catalogue by slug, in the order of the catalogue (read-only).

    ``memory_mib`` is what the driver shows with the card's default ECC setting, ``amp_tflops`` the dense fp16 tensor
    rate with fp32 accumulation (the fp16 or fp32 rate where there are no tensor cores).
    """
    return MappingProxyType({record["slug"]: _spec(record) for record in _catalogue()["gpus"]})


@cache
def gpu_aliases() -> Mapping[str, str]:
    """Every other name that stands for a slug (read-only), in the form that ``gpu_slug`` compares: ``v100-sxm2``."""
    return MappingProxyType({alias: entry["slug"] for alias, entry in _catalogue()["aliases"].items()})


def gpu(name: str) -> GpuSpec:
    """The catalogue's entry for a slug or alias.

    Raises:
        UnknownNameError: nobody knows the name, or it is a CPU's, which has no data sheet here.
    """
    slug = gpu_slug(name)
    specs = gpu_specs()
    if slug not in specs:
        raise UnknownNameError("GPU type", name, specs)
    return specs[slug]


def gpu_slug(name: str) -> str:
    """The slug of a GPU name in any spelling seen: slug, alias, or as NVML reports it; or of ``cpu-<n>core``.

    Raises:
        UnknownNameError: nobody knows the name; the message suggests near ones.
    """
    key = _normalise(name)
    if _CPU_SLUG.fullmatch(key):
        return key
    if key in gpu_specs():
        return key
    try:
        return gpu_aliases()[key]
    except KeyError:
        raise UnknownNameError("GPU type", name, {*gpu_specs(), *gpu_aliases()}) from None


def _normalise(name: str) -> str:
    """Lower case, runs of anything but letters and digits as one hyphen, without the maker's words."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return "-".join(word for word in words if word and word not in _MAKER_WORDS)


def _spec(record: Mapping[str, Any]) -> GpuSpec:
    figures: dict[str, Any] = {name: float(record[name]) for name in FIGURES if name not in _NOT_FRACTIONAL}
    kept = {name: record[name] for name in ("slug", "name", *_NOT_FRACTIONAL)}
    return GpuSpec(
        **kept, **figures, sources={name: record["sources"].get(name, record["data_sheet"]) for name in FIGURES}
    )


@cache
def _catalogue() -> dict[str, Any]:
    text = resources.files("eaco_datasets").joinpath("data/gpus.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
