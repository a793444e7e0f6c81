"""Options that several commands take: one declaration each, so that a name means the same everywhere.

``--predictor`` is a registered predictor, ``--model`` an algorithm to train or evaluate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

DatasetOption = Annotated[
    str, Option("--dataset", help="lucid, gavel, zeus, eaco, simulated, embedded, or a .parquet or .csv file.")
]
DataDirOption = Annotated[
    Path | None,
    Option("--data-dir", envvar="EACO_DATA_DIR", help="Folder with the public files (lucid/, gavel/, zeus/)."),
]
HomeOption = Annotated[Path, Option("--home", envvar="EACO_HOME", help="Folder of EaCO's state.")]
TrackingOption = Annotated[
    str | None,
    Option("--tracking-uri", envvar="EACO_TRACKING_URI", help="MLflow server or store, not the one of --home."),
]
PredictorOption = Annotated[
    str, Option("--predictor", metavar="NAME", envvar="EACO_PREDICTOR_NAME", help="Registered predictor.")
]
AliasOption = Annotated[
    str, Option("--alias", envvar="EACO_PREDICTOR_ALIAS", help="Alias of the predictor's version that answers.")
]
PredictorDirOption = Annotated[
    Path | None, Option("--predictor-dir", metavar="DIR", help="A saved predictor, in place of the registered one.")
]
SeedOption = Annotated[int, Option("--seed", min=0, help="Seeds all that is random.")]
JsonOption = Annotated[
    str | None, Option("--json", metavar="OUT", help="Write JSON; - is stdout, and then nothing else goes there.")
]

HOME, PREDICTOR, ALIAS = Path(".eaco"), "eaco", "champion"
"""Defaults of ``--home``, ``--predictor`` and ``--alias``."""
