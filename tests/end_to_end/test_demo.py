"""The whole system as a user meets it: the demonstration, and a real service asked over HTTP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_serving_a_registered_predictor_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import eaco_serving.app, eaco_serving.runner\n"
        "from eaco_serving.convert import co_location\n"
        "from eaco_serving.default import load_default\n"
        "from eaco_serving.demo import SHARED\n"
        "from eaco_serving.schemas import SetIn\n"
        "from eaco_serving.settings import load_settings\n"
        f"served = load_default(load_settings(home=Path({str(tmp_path)!r})), lambda line: None)\n"
        "(answer,) = served.predict([co_location(SetIn.model_validate(SHARED))])\n"
        "assert answer.abstained is None, answer\n"
        "print(sorted({'torch', 'torch_geometric', 'pynvml'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stderr
