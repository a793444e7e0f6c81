"""Names of the models of each target. A new model is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from eaco_datasets.errors import UnknownNameError
from eaco_predictor.models.baselines import Mean, NoInterference, TimeSlice
from eaco_predictor.models.by_name import LightGBMByName
from eaco_predictor.models.ensemble import Ensemble
from eaco_predictor.models.graph_trees import GraphTrees
from eaco_predictor.models.matrix_models import Forest, LightGBM, Ridge, ShallowForest
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


def _seeded(model: Callable[..., TargetModel], target: str, **fixed: Any) -> Maker:
    return partial(model, target, **fixed)


def _fixed(model: Callable[..., TargetModel], *arguments: str) -> Maker:
    return lambda _seed: model(*arguments)


def _graph_trees(target: str, roofline: Callable[[], RooflineModel]) -> dict[str, Maker]:
    return {
        "lightgbm-graph": _seeded(GraphTrees, target),
        "roofline-lightgbm": lambda seed: GraphTrees(target, seed, roofline()),
    }


_MAKERS: Mapping[str, Mapping[str, Maker]] = {
    "relative_speed": {
        "ensemble": _seeded(Ensemble, "relative_speed"),
        "mean": _fixed(Mean),
        "no-interference": _fixed(NoInterference),
        "time-slice": _fixed(TimeSlice),
        "soft-minimum": _fixed(SoftMinimum),
        "ridge": _seeded(Ridge, "relative_speed"),
        "lightgbm-graph": _seeded(LightGBM, "relative_speed", inputs="graph"),
        "lightgbm-both": _seeded(LightGBM, "relative_speed", inputs="both"),
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
        "roofline": _fixed(RooflineMemUtil),
        **_graph_trees("mem_util_pct", RooflineMemUtil),
        "mean": _fixed(Mean, "mem_util_pct"),
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


def model_names(target: str) -> tuple[str, ...]:
    """Models of a target, the default first.

    Raises:
        UnknownNameError: nobody learns that target.
    """
    return tuple(_MAKERS[target_spec(target).name])


def default_model(target: str) -> str:
    """The best model out of sample by macro MAE (``docs/evaluation.md``); for power, once something was observed."""
    return model_names(target)[0]


def baselines(target: str) -> tuple[str, ...]:
    """What a target's models are compared with."""
    return _BASELINES[target_spec(target).name]


def make_model(target: str, name: str, seed: int = 0) -> TargetModel:
    """An unfitted model.

    Raises:
        UnknownNameError: no model of that name learns the target.
    """
    names = model_names(target)
    if name not in names:
        raise UnknownNameError(f"model of {target}", name, names)
    return _MAKERS[target][name](seed)
