# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox: where the server is, what the constructor takes and costs, copies of a backend."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from net_tools import run_python
from sandbox_native import registry
from sandbox_native.backends import _opensandbox_service as service
from sandbox_native.backends.opensandbox import OpenSandboxBackend
from sandbox_native.contract import AttachableSandboxBackend, SandboxTerminalError
from servers.opensandbox.handle import OpenSandboxServer


class Hook:
    """Stands in for Airflow's look-up of connections."""

    def __init__(self, **fields: Any) -> None:
        empty = {"host": None, "port": None, "schema": None, "password": None, "extra_dejson": {}}
        self.connection = SimpleNamespace(**{**empty, **fields})
        self.asked: list[str] = []

    def get_connection(self, conn_id: str) -> SimpleNamespace:
        self.asked.append(conn_id)
        return self.connection


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("OPEN_SANDBOX_API_KEY", raising=False)
    monkeypatch.delenv("OPEN_SANDBOX_DOMAIN", raising=False)

    def connection(**fields: Any) -> Hook:
        module = ModuleType("airflow.providers.common.compat.sdk")
        module.BaseHook = hook = Hook(**fields)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return hook

    return connection


@pytest.mark.parity("B ctor")
@pytest.mark.parametrize(
    ("name", "value"),
    [("image", ""), ("cpu", ""), ("memory", ""), ("sandbox_timeout", 0), ("ready_timeout", 0)],
)
def test_the_constructor_names_what_it_refuses(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        OpenSandboxBackend(**{name: value})


def test_the_registry_makes_one() -> None:
    backend = registry.backend("opensandbox", image="x")
    assert isinstance(backend, OpenSandboxBackend)
    assert isinstance(backend, AttachableSandboxBackend)
    assert backend.name == "opensandbox"


@pytest.mark.parity("B Conn#1")
def test_a_connection_gives_all_there_is(airflow: Any) -> None:
    hook = airflow(
        host="sandbox.example",
        port=443,
        schema="https",
        password="key",
        extra_dejson={"request_timeout": "12.5", "use_server_proxy": "false", "debug": True},
    )
    assert service.resolve("some", None) == service.Settings(
        "https://sandbox.example:443/v1", "https", 12.5, False, "key"
    )
    assert hook.asked == ["some"]


@pytest.mark.parametrize(("value", "expected"), [("true", True), (" YES ", True), (0, None), (False, False)])
def test_the_extra_use_server_proxy(airflow: Any, value: Any, expected: bool | None) -> None:
    airflow(host="h", extra_dejson={"use_server_proxy": value})
    if expected is None:
        with pytest.raises(SandboxTerminalError, match="use_server_proxy"):
            service.resolve("some", None)
    else:
        assert service.resolve("some", None).use_server_proxy is expected
    # The constructor's wins, and then the extra is not looked at.
    assert service.resolve("some", True).use_server_proxy is True


def test_defaults_of_a_connection(airflow: Any) -> None:
    airflow(host="h")
    assert service.resolve("some", None) == service.Settings("http://h/v1", "http", 30.0, True, "")


def test_an_address_may_have_its_scheme(airflow: Any) -> None:
    airflow(host="https://h/", schema="http")
    assert service.resolve("some", None).base_url == "https://h/v1"
    airflow(host="h", schema="ftp")
    with pytest.raises(SandboxTerminalError, match="ftp"):
        service.resolve("some", None)


@pytest.mark.parity("B Conn#2")
def test_the_connection_is_looked_up_once(opensandbox_server: OpenSandboxServer, airflow: Any) -> None:
    host, _, port = opensandbox_server.domain.partition(":")
    hook = airflow(host=host, port=int(port), password=opensandbox_server.api_key)
    backend = OpenSandboxBackend()
    assert hook.asked == []
    backend.destroy(backend.create())
    assert hook.asked == ["opensandbox_default"]


@pytest.mark.parity("B Conn#3")
def test_without_a_connection_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", "env.example:1")
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", "from env")
    with pytest.raises(SandboxTerminalError, match="blanks"):
        service.resolve(None, None)
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", "key")
    assert service.resolve(None, None) == service.Settings(
        "http://env.example:1/v1", "http", 30.0, True, "key"
    )
    assert service.resolve(None, False).use_server_proxy is False
    monkeypatch.delenv("OPEN_SANDBOX_DOMAIN")
    assert service.resolve(None, None).base_url == "http://localhost:8080/v1"


@pytest.mark.parity("B Conn#4")
@pytest.mark.parametrize(
    ("extra", "value"),
    [
        ("request_timeout", "never"),
        ("request_timeout", 0),
        ("request_timeout", "inf"),
        ("use_server_proxy", "sometimes"),
    ],
)
def test_an_extra_that_means_nothing_is_named(airflow: Any, extra: str, value: Any) -> None:
    airflow(host="h", extra_dejson={extra: value})
    with pytest.raises(SandboxTerminalError, match=extra):
        OpenSandboxBackend().create()


@pytest.mark.parity("B Conn#5")
@pytest.mark.parametrize("host", [None, ""])
def test_a_connection_without_a_host_is_never_localhost(airflow: Any, host: str | None) -> None:
    airflow(host=host)
    with pytest.raises(SandboxTerminalError, match="has no host"):
        OpenSandboxBackend().create()


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "me:secret@a.example"},
        {"host": "http://me:secret@a.example"},
        {"host": "a.example?key=secret"},
        {"host": "a.example#secret"},
        {"host": "a.example secret"},
        {"host": "a.example", "password": "secret\n"},
    ],
)
def test_an_address_or_key_that_is_none_is_refused_and_not_shown(
    airflow: Any, fields: dict[str, str]
) -> None:
    airflow(**fields)
    part = "password" if "password" in fields else "The host of connection 'opensandbox_default'"
    with pytest.raises(SandboxTerminalError, match=part) as caught:
        OpenSandboxBackend().create()
    assert "secret" not in str(caught.value)


def test_without_airflow_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.common.compat.sdk", None)
    with pytest.raises(SandboxTerminalError, match="opensandbox_conn_id=None"):
        OpenSandboxBackend().create()


def test_the_key_is_in_no_text(
    monkeypatch: pytest.MonkeyPatch, opensandbox_server: OpenSandboxServer
) -> None:
    secret = "very-secret-key"
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", secret)
    opensandbox_server.faults.add(
        "create", "status", status=401, body={"code": "INVALID_API_KEY", "message": f"{secret} is wrong"}
    )
    backend = OpenSandboxBackend(None)
    with pytest.raises(SandboxTerminalError, match=r"HTTP 401\): \*\*\* is wrong") as caught:
        backend.create()
    assert secret not in str(caught.value)
    assert secret not in repr(service.resolve(None, None))
    assert secret not in repr(backend.__dict__)


def test_copies_have_the_options_and_work(opensandbox_server: OpenSandboxServer) -> None:
    backend = OpenSandboxBackend(None, image="python:3.12", sandbox_timeout=90.5)
    box = backend.create()
    for other in (copy.copy(backend), copy.deepcopy(backend), pickle.loads(pickle.dumps(backend))):
        assert (other.image, other.sandbox_timeout) == ("python:3.12", 90.5)
        assert other.run_command(box, "echo there", timeout=60, max_output_bytes=100).stdout == "there\n"


COST = """
import sys
from sandbox_native import _sandbox_native
import sandbox_native.contract
before = set(sys.modules)
from sandbox_native.backends.opensandbox import OpenSandboxBackend
OpenSandboxBackend(None)
OpenSandboxBackend()
with open("/proc/self/maps") as maps:
    assert "libcurl" not in maps.read(), "libcurl is loaded"
print(*sorted(set(sys.modules) - before))
"""


def test_constructing_one_loads_nothing() -> None:
    done = run_python(COST)
    assert done.returncode == 0, done.stderr
    # Nothing of HTTP, threads or the standard library's larger parts.
    assert set(done.stdout.split()) <= {
        "sandbox_native.backends",
        "sandbox_native.backends.opensandbox",
        "sandbox_native.validate",
    }
