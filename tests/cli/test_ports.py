"""A port that is in use: `run` refuses it before it creates anything, and `doctor` says what listens there."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.program import Program, cormorant

pytestmark = pytest.mark.slow("starts the program, which loads everything")


class Stranger(BaseHTTPRequestHandler):
    """Another program that is alive."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "alive"}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - their signature
        """Be silent."""


@pytest.fixture
def stranger() -> Iterator[str]:
    """The address of another program that answers."""
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a program that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def slow() -> Iterator[str]:
    """The address of a program that sends one byte of a head after the other, for ever."""
    has_ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                while not has_ended.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        has_ended.set()
        thread.join()


@pytest.mark.parametrize("who", ["stranger", "mute", "slow"])
def test_run_refuses_a_busy_port_in_one_line_and_creates_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, who: str
) -> None:
    address: str = request.getfixturevalue(who)
    (tmp_path / "config.toml").write_text(f'[web]\nlisten = "{address}"\n')

    ended = cormorant("run", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")

    assert (ended.code, ended.out) == (2, "")
    said = (
        f"web.listen: cannot listen on {address}: address already in use; end what uses it, or set another web.listen"
    )
    assert ended.err == f"cormorant: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_an_address_of_another_machine_is_refused_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[web]\nlisten = "192.0.2.1:7979"\nkey = "long-enough-to-be-a-key-0123"\n')

    ended = cormorant("run", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")

    assert ended.code == 2
    assert "192.0.2.1:7979: cannot assign requested address; set another web.listen\n" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_doctor_reports_a_stranger_at_the_port_as_a_failure(tmp_path: Path, stranger: str) -> None:
    (tmp_path / "config.toml").write_text(f'[web]\nlisten = "{stranger}"\n')

    ended = cormorant("doctor", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")

    assert ended.code == 1
    assert f"FAIL  port      web.listen: cannot listen on {stranger}: address already in use" in ended.out
    assert "-> end what uses it, or set another web.listen" in ended.out


@pytest.mark.parametrize("base", ["/", "/cormorant"])
def test_doctor_recognises_cormorant_itself_and_reports_it_as_running(tmp_path: Path, base: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "config.toml").write_text(f'[web]\nlisten = "{address}"\nurl_base = "{base}"\n')
    before = cormorant("doctor", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")

    with Program("-m", "cormorant", "run", cwd=tmp_path, CORMORANT_WEB__ENABLED="true") as program:
        program.line_with(" ready in ")
        ended = cormorant("doctor", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")
        program.send(signal.SIGTERM)
        program.end()

    assert f"ok    port      {address} is free" in before.out
    assert ended.code == 0, ended.out
    assert f"ok    port      Cormorant is running at http://{address}{base}\n" in ended.out
