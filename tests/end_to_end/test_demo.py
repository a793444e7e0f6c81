"""The whole system as a user meets it: the demonstration, and a real service asked over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from eaco_serving.demo import PLACEMENT, SHARED, service
from eaco_serving.schemas import PredictionOut, PredictionsOut, PredictorOut
from eaco_serving.schemas_place import DecisionOut

pytestmark = pytest.mark.slow


def test_the_demo_predicts_and_places_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eaco_serving.cli", "demo"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for said in ("relative speed", "GPU power", "decision", "GPU-a0", "simulated data", "simulated: "):
        assert said in done.stdout
    assert "no prediction" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_real_service_answers_by_its_schema(tmp_path: Path) -> None:
    lines: list[str] = []
    with service(tmp_path, lines.append) as client:
        about = PredictorOut.model_validate_json(client.get("/predictor").content)
        assert about.simulated
        assert about.provenance["simulated"] > 0
        told = PredictionOut.model_validate_json(client.post("/predict", json=SHARED).content)
        assert told.abstained is None
        assert told.predictor_version == about.version
        assert told.provenance["simulated"] > 0
        assert all(0 < j.relative_speed.lower <= j.relative_speed.mean <= 1.05 for j in told.jobs)
        swapped = {**SHARED, "jobs": list(reversed(SHARED["jobs"]))}  # type: ignore[call-overload]
        other = PredictionOut.model_validate_json(client.post("/predict", json=swapped).content)
        assert list(reversed(other.jobs)) == told.jobs
        many = client.post("/predict", json={"candidates": [SHARED, swapped] * 100})
        assert PredictionsOut.model_validate_json(many.content).predictions == [told, other] * 100
        decision = DecisionOut.model_validate_json(client.post("/place", json=PLACEMENT).content)
        assert decision.decision in ("share", "exclusive")
        refused = client.post("/predict", json={**SHARED, "gpu": "abacus"})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/gpu")
        unread = httpx.Client(base_url=client.base_url, trust_env=False)
        assert unread.get("/nowhere").headers["content-type"] == "application/problem+json"
        unread.close()
    assert any("simulated" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


@dataclass(frozen=True)
class FreshMachine:
    """A home where nothing was registered when a placement was asked for, and what came of it."""

    home: Path
    decision: Any
    said: str


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> FreshMachine:
    folder = tmp_path_factory.mktemp("fresh")
    request = folder / "request.json"
    request.write_text(json.dumps(PLACEMENT))
    decision, said = eaco_json(folder / "home", "place", str(request))
    return FreshMachine(folder / "home", decision, said)


def eaco_json(home: Path, *args: str) -> tuple[Any, str]:
    """All that a command writes to stdout, which must be JSON, and what it writes to stderr."""
    command = [sys.executable, "-m", "eaco_serving.cli", *args, "--home", str(home), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_json_alone_goes_to_stdout_even_where_the_default_is_trained_first(machine: FreshMachine) -> None:
    assert DecisionOut.model_validate(machine.decision).decision in ("share", "exclusive")
    assert "training the default" in machine.said
    asked = ("predict", "--gpu", "v100", "--sharing-mode", "time-slice", "--job", "resnet50:64:amp")
    prediction, said = eaco_json(machine.home, *asked)
    told = PredictionOut.model_validate(prediction)
    assert "training the default" not in said
    (listed,) = eaco_json(machine.home, "predictors", "list")[0]["versions"]
    assert listed["predictor_version"] == told.predictor_version
    assert listed["held_out"]["relative_speed_out_of_family_macro_mae"] > 0


def test_serving_a_registered_predictor_never_imports_torch(machine: FreshMachine) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import eaco_serving.app, eaco_serving.runner\n"
        "from eaco_serving.convert import co_location\n"
        "from eaco_serving.default import load_default\n"
        "from eaco_serving.demo import SHARED\n"
        "from eaco_serving.schemas import SetIn\n"
        "from eaco_serving.settings import load_settings\n"
        f"served = load_default(load_settings(home=Path({str(machine.home)!r})), lambda line: None)\n"
        "(answer,) = served.predict([co_location(SetIn.model_validate(SHARED))])\n"
        "assert answer.abstained is None, answer\n"
        "print(sorted({'torch', 'torch_geometric', 'pynvml'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stderr
