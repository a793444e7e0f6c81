"""The service as a process: it binds first, says where it is, and stops in good order."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from eaco_datasets.errors import EacoError
from eaco_serving import cli
from eaco_serving.runner import bind, url_of

SERVE = """
import sys
from types import SimpleNamespace
from eaco_datasets.errors import NotReadyError
from eaco_predictor.predictor import PredictorInfo
from eaco_serving import cli, default

def load(settings, say):
    say('loading ...')
    if {fail}:
        raise NotReadyError('nothing is registered')
    info = PredictorInfo('v1', 'none', ('simulated',), '0', 1, (), (), {{'simulated': 1.0}}, 0, {{}})
    return SimpleNamespace(info=info, predict=lambda sets: [])

default.load_default = load
sys.exit(cli.run(['serve', '--port', '0']))
"""


@contextmanager
def serving(fail: bool) -> Iterator[subprocess.Popen[str]]:
    code = SERVE.format(fail=fail)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_told_to_stop(number: signal.Signals, code: int) -> None:
    with serving(fail=False) as process:
        assert process.stderr is not None
        log = ""
        for line in process.stderr:
            log += line
            if "simulated: 100%" in line:
                break
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", log)
        assert found, log
        answer = httpx.get(found[1] + "/readyz", trust_env=False)
        assert answer.json() == {"status": "ready"}
        process.send_signal(number)
        assert process.wait(20) == code
        assert "Traceback" not in process.stderr.read()


def test_it_ends_with_1_when_nothing_can_be_served() -> None:
    with serving(fail=True) as process:
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "eaco: nothing is registered"


def test_a_port_in_use_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.run(["serve", "--port", port]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"eaco: cannot listen on 127.0.0.1:{port}: ")
    assert err.count("\n") == 1


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with pytest.raises(EacoError, match=r"^cannot listen on 192\.0\.2\.1:0: "):
        bind("192.0.2.1", 0)


def test_the_url_names_the_port_taken() -> None:
    with bind("127.0.0.1", 0) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"
