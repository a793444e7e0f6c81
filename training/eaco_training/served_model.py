"""The registered model in MLflow's models-from-code form: MLflow runs this file when it loads the model.

Input and output are the long tables of ``eaco_training.longform``; the one artifact, ``predictor``, is the folder that
``eaco_predictor.predictor.Predictor.save`` wrote. Nothing else imports this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from eaco_predictor.predictor import Predictor
from eaco_training.longform import frame_from_predictions, sets_from_frame


class EacoModel(PythonModel):  # type: ignore[misc]
    """A predictor behind MLflow's interface."""

    def load_context(self, context: Any) -> None:
        """Load the predictor from the model's own artifact."""
        self._predictor = Predictor.load(Path(context.artifacts["predictor"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One output row for each input row."""
        del context, params
        sets, places = sets_from_frame(model_input)
        ids = [str(name) for name in model_input["set_id"]]
        return frame_from_predictions(ids, places, self._predictor.predict(sets))


set_model(EacoModel())
