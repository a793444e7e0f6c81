"""Which predictor a face uses: the registered one, a saved one, or, on a fresh machine, the embedded default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation
from eaco_predictor.prediction import SetPrediction
from eaco_serving.settings import Settings

if TYPE_CHECKING:
    from eaco_features.job_graphs import GraphBook
    from eaco_predictor.predictor import Predictor, PredictorInfo

DEFAULT_NAME, DEFAULT_ALIAS = "eaco", "champion"
IN_SAMPLE = "/in-sample/"


@dataclass(frozen=True)
class RegisteredPredictor:
    """A predictor with the figures of its training run; ``target/protocol/figure`` -> value."""

    predictor: Predictor
    out_of_sample: Mapping[str, float] = field(default_factory=dict)
    in_sample: Mapping[str, float] = field(default_factory=dict)

    @property
    def info(self) -> PredictorInfo:
        """Version, data and provenance."""
        return self.predictor.info

    def predict(self, sets: Sequence[CoLocation], graphs: GraphBook | None = None) -> list[SetPrediction]:
        """One prediction a set, in order; model graphs are looked up in ``graphs``, else in the catalogue."""
        return self.predictor.predict(sets, graphs)


def load_default(settings: Settings, say: Callable[[str], None]) -> RegisteredPredictor:
    """The registered predictor that the settings name; where the default is not registered yet, it is trained first.

    Args:
        say: told what takes long, line by line.

    Raises:
        NotReadyError: another model or alias was asked for and is not registered.
    """
    from eaco_training.registry import ensure_champion, list_versions, load_champion

    home, uri = settings.home, settings.tracking_uri
    name, alias = settings.predictor_name, settings.predictor_alias
    if (name, alias) == (DEFAULT_NAME, DEFAULT_ALIAS):
        predictor = ensure_champion(home, uri, say)
    else:
        predictor = load_champion(home, uri, name=name, alias=alias)
    version = predictor.info.version
    figures = next((v.figures for v in list_versions(home, uri, name=name) if v.predictor_version == version), {})
    return RegisteredPredictor(
        predictor,
        out_of_sample={k: v for k, v in figures.items() if IN_SAMPLE not in k},
        in_sample={k: v for k, v in figures.items() if IN_SAMPLE in k},
    )


def load_saved(folder: Path) -> RegisteredPredictor:
    """A predictor from the folder that ``Predictor.save`` wrote; no figures come with it.

    Raises:
        InputError: there is no such folder, or it holds no predictor.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", where="--predictor-dir", expected="the folder of a saved predictor")
    from eaco_predictor.predictor import Predictor

    return RegisteredPredictor(Predictor.load(folder))
