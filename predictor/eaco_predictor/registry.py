"""Names of the models of each target. A new model is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec

from eaco_datasets.errors import MissingExtraError, UnknownNameError
from eaco_predictor.models.baselines import Mean, NoInterference, TimeSlice
from eaco_predictor.models.by_name import LightGBMByName
from eaco_predictor.models.ensemble import Ensemble
from eaco_predictor.models.graph_trees import GraphTrees, RooflineTrees
from eaco_predictor.models.matrix_models import Forest, LightGBM, LightGBMBoth, LightGBMGraph, Ridge, ShallowForest
from eaco_predictor.models.repeat_reading import RepeatReading
from eaco_predictor.models.roofline import (
    RooflineEpoch,
    RooflineMemory,
    RooflineMemUtil,
    RooflineModel,
    RooflinePower,
    RooflineUtil,
)
from eaco_predictor.models.set_models import NodePower, NodePowerLine, SoftSum, SumAndCap, SumOfSolos
from eaco_predictor.models.soft_minimum import SoftMinimum
from eaco_predictor.models.solo_power import SoftCap
from eaco_predictor.protocol import TargetModel
from eaco_predictor.targets import target_spec

Maker = Callable[[int], TargetModel]
"""Makes an unfitted model from a seed."""


def _seeded(model: Callable[..., TargetModel], target: str) -> Maker:
    return partial(model, target)


def _fixed(model: Callable[..., TargetModel], *arguments: str) -> Maker:
    return lambda _seed: model(*arguments)


def _graph_trees(target: str, roofline: Callable[[], RooflineModel]) -> dict[str, Maker]:
    return {
        "lightgbm-graph": _seeded(GraphTrees, target),
        "roofline-lightgbm": lambda seed: RooflineTrees(target, seed, roofline()),
        "gnn": _gnn(target),
    }


def _gnn(target: str, *, told_solo: bool = False) -> Maker:
    def make(seed: int) -> TargetModel:
        for package in _GNN_PACKAGES:
            if find_spec(package) is None:
                raise MissingExtraError(package, "gnn")
        from eaco_predictor.gnn.model import Gnn, GnnSolo

        return (GnnSolo if told_solo else Gnn)(target, seed)

    return make


_GNN_PACKAGES = ("torch", "torch_geometric")

_MAKERS: Mapping[str, Mapping[str, Maker]] = {
    "relative_speed": {
        "ensemble": _seeded(Ensemble, "relative_speed"),
        "mean": _fixed(Mean),
        "no-interference": _fixed(NoInterference),
        "time-slice": _fixed(TimeSlice),
        "soft-minimum": _fixed(SoftMinimum),
        "ridge": _seeded(Ridge, "relative_speed"),
        "lightgbm-graph": _seeded(LightGBMGraph, "relative_speed"),
        "lightgbm-both": _seeded(LightGBMBoth, "relative_speed"),
        "gnn": _gnn("relative_speed"),
        "gnn-solo": _gnn("relative_speed", told_solo=True),
        "forest": _seeded(Forest, "relative_speed"),
        "shallow-forest": _seeded(ShallowForest, "relative_speed"),
        "lightgbm": _seeded(LightGBM, "relative_speed"),
    },
    "gpu_power_w": {
        "soft-cap": _fixed(SoftCap),
        "roofline": _fixed(RooflinePower),
        **_graph_trees("gpu_power_w", RooflinePower),
        "mean": _fixed(Mean, "gpu_power_w"),
        "repeat-reading": _fixed(RepeatReading),
        "ridge": _seeded(Ridge, "gpu_power_w"),
        "forest": _seeded(Forest, "gpu_power_w"),
        "lightgbm": _seeded(LightGBM, "gpu_power_w"),
        "lightgbm-by-name": _seeded(LightGBMByName, "gpu_power_w"),
    },
    "node_power_w": {
        "fan": _fixed(NodePower),
        "mean": _fixed(Mean, "node_power_w"),
        "line": _fixed(NodePowerLine),
    },
    "mem_mib": {
        "sum-of-solos": _fixed(SumOfSolos),
        "mean": _fixed(Mean, "mem_mib"),
        "roofline": _fixed(RooflineMemory),
        **_graph_trees("mem_mib", RooflineMemory),
    },
    "gpu_util_pct": {
        "soft-sum": _fixed(SoftSum),
        "sum-and-cap": _fixed(SumAndCap),
        "mean": _fixed(Mean, "gpu_util_pct"),
        "roofline": _fixed(RooflineUtil),
        **_graph_trees("gpu_util_pct", RooflineUtil),
    },
    "mem_util_pct": {
        "mean": _fixed(Mean, "mem_util_pct"),
        "roofline": _fixed(RooflineMemUtil),
        **_graph_trees("mem_util_pct", RooflineMemUtil),
    },
    "epoch_s": {
        "roofline": _fixed(RooflineEpoch),
        **_graph_trees("epoch_s", RooflineEpoch),
        "mean": _fixed(Mean, "epoch_s"),
    },
}

_BASELINES: Mapping[str, tuple[str, ...]] = {
    "relative_speed": ("mean", "no-interference", "time-slice", "forest"),
    "gpu_power_w": ("mean", "repeat-reading", "lightgbm", "lightgbm-by-name"),
    "node_power_w": ("mean", "line"),
    "mem_mib": ("mean",),
    "gpu_util_pct": ("mean", "sum-and-cap"),
    "mem_util_pct": ("mean",),
    "epoch_s": ("mean",),
}


_NEED_A_PROFILE: Mapping[str, tuple[str, ...]] = {
    "mem_mib": ("sum-of-solos",),
    "gpu_util_pct": ("soft-sum", "sum-and-cap"),
}
"""Models that say nothing of a job without a solo profile. (Relative speed: what is unknown is filled from graphs.)"""

_WARM_ONLY_BY_DEFAULT: Mapping[str, tuple[str, ...]] = {"gpu_power_w": ("soft-cap",)}
"""Models that win once something was observed of a job, not before."""

_OF_JOBS_ALONE: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("mem_mib", "gpu_util_pct", "mem_util_pct"), ("roofline", "lightgbm-graph", "roofline-lightgbm", "gnn")
)
"""Models that answer for each job alone, so not for what a whole set uses of a GPU."""


def model_names(target: str, *, cold: bool = False) -> tuple[str, ...]:
    """Models of a target, the default first; with ``cold`` those that can do without a solo profile.

    For what a set shares (memory, utilisation) ``cold`` is about jobs alone: that is what is predicted of them.

    The graph neural network is among them where its extra is installed.

    Raises:
        UnknownNameError: nobody learns that target.
    """
    names = tuple(_MAKERS[target_spec(target).name])
    if any(find_spec(package) is None for package in _GNN_PACKAGES):
        names = tuple(name for name in names if not name.startswith("gnn"))
    if not cold:
        return tuple(name for name in names if name not in _OF_JOBS_ALONE.get(target, ()))
    last = _WARM_ONLY_BY_DEFAULT.get(target, ())
    able = [name for name in names if name not in _NEED_A_PROFILE.get(target, ())]
    return tuple(sorted(able, key=lambda name: (name in last, name == "mean")))


def default_model(target: str, *, cold: bool = False) -> str:
    """The best model out of sample by macro MAE (``docs/evaluation.md``); for power, once something was observed.

    With ``cold``, the best for jobs of which nothing but the graph is known.
    """
    return model_names(target, cold=cold)[0]


def baselines(target: str, *, cold: bool = False) -> tuple[str, ...]:
    """What a target's models are compared with."""
    return tuple(name for name in _BASELINES[target_spec(target).name] if name in model_names(target, cold=cold))


def make_model(target: str, name: str, seed: int = 0) -> TargetModel:
    """An unfitted model.

    Raises:
        UnknownNameError: no model of that name learns the target.
        MissingExtraError: the model needs an extra that is not installed.
    """
    if name not in _MAKERS[target_spec(target).name]:
        raise UnknownNameError(f"model of {target}", name, model_names(target))
    return _MAKERS[target][name](seed)
