"""Tracking and registry on a real PostgreSQL: any ``--tracking-uri`` that MLflow knows will do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from eaco_datasets.simulated import simulate_profiles
from eaco_training import registry
from eaco_training.train import train

SERVER = os.environ.get("EACO_TEST_POSTGRES")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not SERVER, reason="EACO_TEST_POSTGRES is not set: it is the address of a PostgreSQL server (user@host:port)"
    ),
]


@pytest.fixture
def database() -> Iterator[str]:
    """The address of a database of this test's own."""
    psycopg = pytest.importorskip("psycopg")
    name = f"eaco_test_{uuid4().hex[:12]}"
    with psycopg.connect(f"postgresql://{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield f"postgresql+psycopg://{SERVER}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_champion_is_registered_and_read_back(database, tmp_path):
    profiles = simulate_profiles(seed=0, gpus=["t4"], n_sets_per_gpu=40)
    result = train(
        profiles,
        dataset="small",
        model="soft-minimum",
        home=tmp_path,
        tracking_uri=database,
        register_as="eaco",
        evaluate_under=None,
    )
    champion = registry.load_champion(tmp_path, database)
    assert champion.info == result.predictor.info
    (version,) = registry.list_versions(tmp_path, database, name="eaco")
    assert version.predictor_version == result.predictor.info.version
    assert "champion" in version.aliases
