"""The root command: what it imports, what it says, how it exits."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from eaco_datasets import errors
from eaco_serving import cli


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_every_command_and_imports_no_heavy_library() -> None:
    done = run_python(
        "import sys\n"
        "from eaco_serving.cli import run\n"
        "code = run(['--help'])\n"
        "heavy = {'mlflow', 'sklearn', 'fastapi', 'pandas', 'numpy', 'lightgbm', 'torch', 'pydantic'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stdout
    for name in cli.COMMANDS:
        assert f" {name} " in done.stdout


def test_the_service_never_imports_torch_nor_mlflow_before_it_loads_a_model() -> None:
    done = run_python(
        "import sys\n"
        "import eaco_serving.app, eaco_serving.runner, eaco_serving.commands.serve\n"
        "print(sorted({'torch', 'torch_geometric', 'pynvml', 'mlflow'} & set(sys.modules)))\n"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_importing_the_faces_builds_no_app_and_reads_no_settings() -> None:
    import eaco_serving.app
    import eaco_serving.settings

    assert not hasattr(eaco_serving.app, "app")
    assert not any(isinstance(v, eaco_serving.settings.Settings) for v in vars(eaco_serving.settings).values())


@pytest.mark.parametrize(
    "args", [["--version"], ["--help"], [], ["predict", "--help"], ["serve", "--help"], ["datasets"], ["predictors"]]
)
def test_asking_is_not_failing(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 0
    out, err = capsys.readouterr()
    assert "eaco" in out.lower()
    assert err == ""


@pytest.mark.parametrize(
    "args",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["predict"],
        ["predict", "--gpu", "v100", "--sharing-mode", "time-slice"],
        ["predict", "--gpu"],
        ["place"],
        ["serve", "--port", "many"],
        ["serve", "--port", "70000"],
        ["serve", "--log-level", "loud"],
        ["demo", "now"],
        ["datasets", "frobnicate"],
        ["predictors", "--frobnicate"],
        ["predictors", "list", "--name", "eaco"],
        ["serve", "--model", "eaco"],
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 2
    one_line(capsys)


def test_a_typing_error_is_met_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predcit"]) == 2
    assert "predict" in one_line(capsys)


def test_model_is_an_algorithm_and_predictor_a_registered_one_everywhere() -> None:
    algorithms = {("train",), ("evaluate",)}
    registered = {("serve",), ("predict",), ("place",)} | {
        ("predictors", sub) for sub in ("list", "compare", "promote", "rollback")
    }
    assert {call for call, names in options_of_every_command().items() if "--model" in names} == algorithms
    assert {call for call, names in options_of_every_command().items() if "--predictor" in names} == registered


def options_of_every_command() -> dict[tuple[str, ...], set[str]]:
    """The long options of each command that does something."""
    found: dict[tuple[str, ...], set[str]] = {}

    def look(call: tuple[str, ...], command: Any) -> None:
        if isinstance(command, TyperGroup):
            for name, sub in command.commands.items():
                look((*call, name), sub)
        else:
            found[call] = {option for parameter in command.params for option in parameter.opts}

    for name in cli.COMMANDS:
        look((name,), typer.main.get_command(import_module(f"eaco_serving.commands.{name}").app))
    return found


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            errors.InputError("odd", where="x.csv:3:speed", expected="a number"),
            2,
            "x.csv:3:speed: odd; expected a number",
        ),
        (errors.DataError("two\nlines"), 2, "two lines"),
        (errors.UnknownNameError("GPU", "v1", ["v100"]), 2, "v100"),
        (errors.MissingExtraError("torch", "gnn"), 2, "pip install 'eaco[gnn]'"),
        (errors.EacoError("it broke"), 1, "it broke"),
        (errors.FetchError("no network"), 1, "no network"),
        (errors.NotReadyError("no model"), 1, "no model"),
        (ValueError("a bug"), 1, "internal error: ValueError: a bug (EACO_DEBUG=1 shows where)"),
        (typer.Abort(), 130, "interrupted"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_failure_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    command(monkeypatch, error)
    assert cli.run(["demo"]) == code
    if said:
        assert said in one_line(capsys)


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EACO_DEBUG", "1")
    command(monkeypatch, ValueError("a bug"))
    assert cli.run(["demo"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_exit_codes_of_a_command_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    command(monkeypatch, typer.Exit(1))
    assert cli.run(["demo"]) == 1


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_broken_pipe_is_quiet(lines: int) -> None:
    code = (
        "import sys, os, types, typer\n"
        "from eaco_serving import cli\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def demo() -> None:\n"
        f"    for _ in range({lines}): print('a line')\n"
        "cli.import_module = lambda name: types.SimpleNamespace(app=app)\n"
        "sys.exit(cli.run(['demo']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr.read() == ""
    process.stderr.close()


def command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make ``eaco demo`` raise."""
    app = typer.Typer()

    @app.command()
    def demo() -> None:
        raise error

    def load(_name: str) -> Any:
        return SimpleNamespace(app=app)

    monkeypatch.setattr(cli, "import_module", load)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert err.startswith("eaco: ")
    return err
