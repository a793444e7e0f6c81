"""The registry of profile data: what there is, on which GPUs, under which licence, and one call that loads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.readers import eaco, gavel, lucid, zeus
from eaco_datasets.schema import read_profiles, validate_profiles

SIMULATED = "simulated"
EMBEDDED = "embedded"
DEFAULT_DATASET = EMBEDDED
TABLE_SUFFIXES = (".parquet", ".pq", ".csv")


@dataclass(frozen=True, slots=True)
class Source:
    """Where profiles come from. ``files`` are relative to the data folder; ``notes`` say what a reader must know."""

    name: str
    what: str
    gpus: tuple[str, ...]
    licence: str
    non_commercial: bool
    url: str
    citation: str
    embedded: bool
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


_LUCID = Source(
    name=lucid.SOURCE,
    what="solo jobs and 830 co-located pairs, 9 model families in the pairs",
    gpus=(lucid.GPU,),
    licence="S-Lab License 1.0 (non-commercial)",
    non_commercial=True,
    url="https://github.com/S-Lab-System-Group/Lucid",
    citation="Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training Jobs, ASPLOS'23",
    embedded=False,
    files=(lucid.SOLO_FILE, lucid.PAIR_FILE),
    notes=(
        "PPO and TD3 relative speeds are exactly 1 and were not measured: provenance imputed",
        "relative speeds above 1.05 are noise of the solo measurement",
        "memory is the mean of a solo job but the maximum of a pair",
    ),
)
_GAVEL = Source(
    name=gavel.SOURCE,
    what="solo jobs on 1 to 8 GPUs and co-located pairs, 7 model families",
    gpus=gavel.GPUS,
    licence="MIT",
    non_commercial=False,
    url="https://github.com/stanford-futuredata/gavel",
    citation="Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020",
    embedded=False,
    files=(gavel.FILE,),
    notes=(
        "[0, 0] is a pair that could not be run, for whatever reason: outcome failed, no speed",
        "whether MPS was on is not recorded: sharing mode unknown",
        "A3C and CycleGAN are named without a batch size; their scripts' defaults are taken (20 frames, 1 image)",
    ),
)
_ZEUS = Source(
    name=zeus.SOURCE,
    what="solo epoch time and mean GPU power, 6 workloads by batch size and power limit",
    gpus=tuple(zeus.FILES.values()),
    licence="Apache-2.0",
    non_commercial=False,
    url="https://github.com/ml-energy/zeus",
    citation="Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training, NSDI 2023",
    embedded=False,
    files=tuple(zeus.FILES),
    notes=("precision is not recorded: fp32 is assumed",),
)
_EACO = Source(
    name=eaco.SOURCE,
    what="published tables 1 to 4: 4 solo jobs and 6 job sets on a whole node of 8 GPUs",
    gpus=(eaco.GPU,),
    licence="published figures",
    non_commercial=False,
    url="https://arxiv.org/abs/2412.08294",
    citation="EaCO: Resource Sharing Dynamics and Its Impact on Energy Efficiency for DNN Training, arXiv 2412.08294",
    embedded=True,
    notes=(
        "batch size and precision are not published: defaults of PyTorch's ImageNet example are taken (32 a GPU, fp32)",
        "of a set only averages are published: no job's relative speed is known",
        "the four-job row's energy is not power x time; its epoch time is not given",
    ),
)
_SIMULATED = Source(
    name=SIMULATED,
    what="generated solo jobs and sets of 2 to 4 jobs, by formulas for contention, power and memory",
    gpus=(),
    licence="Apache-2.0",
    non_commercial=False,
    url="",
    citation="made by EaCO itself (eaco_datasets.simulated); nothing in it was measured",
    embedded=True,
    notes=("nothing in it was measured: a predictor trained on it knows its formulas, not hardware",),
)

_PARTS: dict[str, str] = {f"{gavel.SOURCE}-{gpu}": gpu for gpu in gavel.GPUS}
"""Data sets that are one GPU type's rows of Gavel."""


def sources() -> tuple[Source, ...]:
    """Every source of profiles, the embedded ones first."""
    return (_SIMULATED, _EACO, _LUCID, _GAVEL, _ZEUS)


def source(name: str) -> Source:
    """The source of this name.

    Raises:
        UnknownNameError: there is no such source.
    """
    by_name = {s.name: s for s in sources()}
    if name not in by_name:
        raise UnknownNameError("source", name, by_name)
    return by_name[name]


def dataset_names() -> tuple[str, ...]:
    """Every name that ``load_dataset`` takes besides a file."""
    return (EMBEDDED, *(s.name for s in sources()), *_PARTS)


def sources_of(name: str) -> tuple[Source, ...]:
    """The sources behind a data set's name, e.g. of ``gavel-k80`` Gavel; none behind a file."""
    if name == EMBEDDED:
        return (_SIMULATED, _EACO)
    parent = gavel.SOURCE if name in _PARTS else name
    return tuple(s for s in sources() if s.name == parent)


def load_dataset(name: str = DEFAULT_DATASET, data_dir: Path | None = None) -> pd.DataFrame:
    """The checked profile table of a data set.

    Args:
        name: ``lucid``, ``gavel``, ``gavel-k80``, ``gavel-p100``, ``zeus``, ``eaco``, ``simulated``, ``embedded``
            (simulated and eaco), or a path to a ``.parquet`` or ``.csv`` file.
        data_dir: the folder with the public files, for those that are not embedded.

    Raises:
        UnknownNameError: no such data set, and no path to a table either.
        InputError: the data folder or a file of it is missing.
        DataError: a file breaks its schema.
    """
    if _is_path(name):
        return read_profiles(Path(name))
    if name in _PARTS:
        return gavel.read(data_dir, gpus=(_PARTS[name],))
    if name == EMBEDDED:
        parts = [load_dataset(SIMULATED), load_dataset(eaco.SOURCE)]
        return validate_profiles(pd.concat(parts, ignore_index=True), where=EMBEDDED)
    if name == SIMULATED:
        from eaco_datasets.simulated import simulate_profiles

        return validate_profiles(simulate_profiles(), where=SIMULATED)
    readers = {lucid.SOURCE: lucid.read, gavel.SOURCE: gavel.read, zeus.SOURCE: zeus.read, eaco.SOURCE: eaco.read}
    if name not in readers:
        raise UnknownNameError("data set", name, dataset_names())
    return readers[name](data_dir)


def _is_path(name: str) -> bool:
    return name not in dataset_names() and (
        Path(name).suffix.lower() in TABLE_SUFFIXES or "/" in name or "\\" in name or Path(name).is_file()
    )
