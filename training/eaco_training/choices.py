"""What can be asked for: targets, and models of a target."""

from __future__ import annotations

from eaco_datasets.errors import InputError, MissingExtraError, UnknownNameError
from eaco_features.examples import TARGETS

_NOT_COLD = ("node_power_w",)
"""Of the whole node, read from the utilisation of its GPUs: nothing of it can be told from a model graph."""
_NETWORKS = ("gnn", "gnn-solo")
"""Models that the extra ``gnn`` brings."""
ABLE = "a model that can do with what is known of these jobs"
"""What to ask for instead of a model that answers nothing."""


def checked_target(target: str, *, cold: bool = False) -> str:
    """The target itself. Raises as ``models_of`` does."""
    if target not in TARGETS:
        raise UnknownNameError("target", target, TARGETS, where="--target")
    if cold and target in _NOT_COLD:
        able = ", ".join(name for name in TARGETS if name not in _NOT_COLD)
        raise InputError(
            f"{target} is not predicted from model graphs alone", where="--cold", expected=f"one of {able}"
        )
    return target


def models_of(target: str, *, cold: bool = False) -> tuple[str, ...]:
    """Every model that can predict the target; ``cold``: without a solo profile.

    Raises:
        UnknownNameError: nobody learns that target.
        InputError: ``cold``, and the target is not predicted from graphs.
    """
    from eaco_predictor.registry import model_names

    checked_target(target, cold=cold)
    return tuple(model_names(target, cold=cold))


def models_left_out(target: str, *, cold: bool = False) -> dict[str, MissingExtraError]:
    """The target's models that ``models_of`` lacks because their extra is not installed, and what each would raise.

    The network is offered wherever trees that read graphs are.
    """
    from eaco_predictor.registry import make_model

    missing: dict[str, MissingExtraError] = {}
    known = models_of(target, cold=cold)
    for name in _NETWORKS if "lightgbm-graph" in known else ():
        if name in known:
            continue
        try:
            make_model(target, name)
        except UnknownNameError:
            continue
        except MissingExtraError as error:
            missing[name] = error
    return missing


def known_model(target: str, model: str | None, *, cold: bool = False) -> str:
    """The model's name, the target's default for ``None``.

    Raises:
        UnknownNameError: nobody knows such a model of the target.
        MissingExtraError: it needs an extra that is not installed.
    """
    from eaco_predictor.registry import default_model

    known = models_of(target, cold=cold)
    if model is None:
        return default_model(target, cold=cold)
    if model not in known:
        missing = models_left_out(target, cold=cold)
        if model in missing:
            raise missing[model]
        raise UnknownNameError(f"model of {target}", model, known, where="--model")
    return model
