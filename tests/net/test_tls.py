# SPDX-License-Identifier: Apache-2.0
"""TLS is verified, by what the environment names, or not spoken at all."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from net_tools import Authority, CancelFd, soon
from sandbox_native.http import Client, RequestCancelled, TransportError
from scripted import Peer, Server, answers

Serve = Callable[..., Server]


@pytest.fixture
def trusting(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_trusted_server(serve: Serve, client: Client, authority: Authority, host: str) -> None:
    server = serve(answers(), authority.context())
    for _ in range(5):
        assert client.request("POST", server.url(host=host), deadline=soon(), body=b"x").body == b"ok"
    assert server.connections == 1


def test_trust_from_a_folder(
    serve: Serve, client: Client, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", str(authority.hashed_folder()))
    assert client.request("GET", serve(answers(), authority.context()).url(), deadline=soon()).ok


def refused(client: Client, server: Server, **options: str) -> TransportError:
    with pytest.raises(TransportError) as error:
        client.request("POST", server.url(**options), deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent, server.requests) == ("tls", False, [])
    return error.value


def test_an_unknown_authority(serve: Serve, client: Client, authority: Authority) -> None:
    refused(client, serve(answers(), authority.context()))


@pytest.mark.usefixtures("trusting")
def test_another_host(serve: Serve, client: Client, authority: Authority) -> None:
    refused(client, serve(answers(), authority.context("DNS:other.example")), host="localhost")


@pytest.mark.parametrize("what", ["missing", "empty", "text"])
def test_a_file_that_holds_no_certificates(
    serve: Serve,
    client: Client,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    what: str,
) -> None:
    file = tmp_path / "ca.pem"
    if what != "missing":
        file.write_text("" if what == "empty" else "no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    refused(client, serve(answers(), authority.context()))


def test_what_the_environment_names_replaces_the_systems(
    serve: Serve, client: Client, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # An authority of another name is all that is trusted, in the folder as in the file.
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.ca))
    refused(client, serve(answers(), authority.context()))


def test_certificates_that_change_on_disk_are_noticed(
    serve: Serve, client: Client, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other").ca.read_bytes()
    bundle = tmp_path / "ca.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    server = serve(answers(), authority.context())
    bundle.write_bytes(other)
    refused(client, server)
    bundle.write_bytes(other + authority.ca.read_bytes())
    assert client.request("GET", server.url(), deadline=soon()).ok
    bundle.write_bytes(other)
    fresh = Client()  # the first one still has its connection
    server.requests.clear()
    refused(fresh, server)


@pytest.mark.usefixtures("trusting")
def test_only_tls_1_2_and_newer(serve: Serve, client: Client, authority: Authority) -> None:
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    refused(client, serve(answers(), context))


@pytest.mark.usefixtures("trusting")
def test_plain_http_behind_an_https_url(serve: Serve, client: Client) -> None:
    server = serve(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(TransportError) as error:
        client.request("POST", server.url().replace("http:", "https:"), deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("tls", False)


def never(peer: Peer) -> None:
    peer.wait_until_closed()


def test_a_handshake_that_hangs(serve: Serve, cancel: CancelFd) -> None:
    server = serve(never)
    url = server.url().replace("http:", "https:")
    with pytest.raises(TransportError) as error:
        Client(connect_timeout=0.3).request("POST", url, deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("connect_timeout", False)
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    with pytest.raises(RequestCancelled) as cancelled:
        Client().request("POST", url, deadline=soon(), body=b"x", cancel_fd=cancel.fd)
    timer.join()
    assert cancelled.value.sent is False


@pytest.mark.usefixtures("trusting")
def test_a_session_is_resumed_on_another_lane(serve: Serve, client: Client, authority: Authority) -> None:
    reused: list[bool] = []
    together = threading.Barrier(2, timeout=100)

    def script(peer: Peer) -> None:
        assert isinstance(peer.sock, ssl.SSLSocket)
        reused.append(bool(peer.sock.session_reused))
        while True:
            if peer.read_request().target == "/wait":
                together.wait()
            peer.answer()

    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = serve(script, context)
    client.request("GET", server.url(), deadline=soon())
    threads = [
        threading.Thread(
            target=client.request, args=("GET", server.url("/wait")), kwargs={"deadline": soon()}
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reused == [False, True]
