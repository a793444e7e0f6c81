"""Settings from EACO_* and options."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from eaco_datasets.errors import InputError
from eaco_serving.settings import load_settings


def test_options_win_over_the_environment_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EACO_PORT", "9001")
    monkeypatch.setenv("EACO_HOME", "/var/lib/eaco")
    settings = load_settings(port=9002, home=None)
    assert (settings.port, settings.home, settings.host) == (9002, Path("/var/lib/eaco"), "127.0.0.1")
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "http"), ("PORT", "70000"), ("LOG_LEVEL", "loud"), ("MAX_BODY_MIB", "0"), ("ACCESS_LOG", "maybe")],
)
def test_a_bad_variable_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"EACO_{name}", value)
    with pytest.raises(InputError, match=rf"^EACO_{name}: .*{value}.*$") as caught:
        load_settings()
    assert "\n" not in str(caught.value)


def test_a_bad_option_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EACO_PORT", raising=False)
    with pytest.raises(InputError, match=r"^--port: "):
        load_settings(port=-1)
