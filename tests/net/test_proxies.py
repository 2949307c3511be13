# SPDX-License-Identifier: Apache-2.0
"""Proxies from the environment: which one, and what it sees."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from net_tools import Authority, soon
from sandbox_native.http import Client, TransportError
from sandbox_native.proxies import proxy_for
from scripted import Peer, Server, answers

Serve = Callable[..., Server]
P = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "environ", "want"),
    [
        ("http://h/", {}, None),
        ("http://h/", {"http_proxy": P}, P),
        ("http://h/", {"HTTP_PROXY": P}, P),
        ("http://h/", {"HTTP_PROXY": "http://upper:1", "http_proxy": P}, P),
        ("http://h/", {"HTTP_PROXY": P, "http_proxy": ""}, None),
        ("http://h/", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, None),
        ("http://h/", {"http_proxy": P, "REQUEST_METHOD": "GET"}, P),
        ("http://h/", {"https_proxy": P}, None),
        ("https://h/", {"https_proxy": P}, P),
        ("HTTPS://h/", {"HTTPS_PROXY": P}, P),
        ("https://h/", {"http_proxy": P}, None),
        ("https://h/", {"all_proxy": P}, P),
        ("http://h/", {"ALL_PROXY": P}, P),
        ("http://h/", {"all_proxy": P, "http_proxy": "http://own:1"}, "http://own:1"),
        ("http://h/", {"http_proxy": "proxy:3128"}, P),
        ("http://h/", {"http_proxy": " proxy:3128 "}, P),
        ("http://h/", {"http_proxy": "socks5h://u:p@proxy"}, "socks5h://u:p@proxy"),
        ("http://127.0.0.1/", {"http_proxy": P}, P),  # loopback is no exception
        # no_proxy
        ("http://h/", {"http_proxy": P, "no_proxy": "*"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": ""}, P),
        ("http://h/", {"http_proxy": P, "NO_PROXY": "h"}, None),
        ("http://H/", {"http_proxy": P, "no_proxy": "h"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": "H"}, None),
        ("http://h./", {"http_proxy": P, "no_proxy": "h"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": "a, h ,b"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": "a h b"}, None),
        ("http://a.h/", {"http_proxy": P, "no_proxy": "h"}, None),
        ("http://a.h/", {"http_proxy": P, "no_proxy": ".h"}, None),
        ("http://a.h/", {"http_proxy": P, "no_proxy": "*.h"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": ".h"}, None),
        ("http://ah/", {"http_proxy": P, "no_proxy": "h"}, P),
        ("http://h/", {"http_proxy": P, "no_proxy": "a.h"}, P),
        ("http://h/", {"http_proxy": P, "no_proxy": "."}, P),
        ("http://h/", {"http_proxy": P, "no_proxy": ","}, P),
        ("http://h/", {"http_proxy": P, "no_proxy": "h:80"}, None),
        ("http://h/", {"http_proxy": P, "no_proxy": "h:81"}, P),
        ("https://h/", {"https_proxy": P, "no_proxy": "h:443"}, None),
        ("http://h:81/", {"http_proxy": P, "no_proxy": "h:81"}, None),
        ("http://127.0.0.1/", {"http_proxy": P, "no_proxy": "127.0.0.1"}, None),
        ("http://127.0.0.1/", {"http_proxy": P, "no_proxy": "127.0.0.0/8"}, None),
        ("http://128.0.0.1/", {"http_proxy": P, "no_proxy": "127.0.0.0/8"}, P),
        ("http://127.0.0.1/", {"http_proxy": P, "no_proxy": "7.0.0.1"}, P),
        ("http://127.0.0.1:99/", {"http_proxy": P, "no_proxy": "127.0.0.1:99"}, None),
        ("http://[::1]/", {"http_proxy": P, "no_proxy": "::1"}, None),
        ("http://[::1]/", {"http_proxy": P, "no_proxy": "[::1]"}, None),
        ("http://[::1]:99/", {"http_proxy": P, "no_proxy": "[::1]:99"}, None),
        ("http://[::1]/", {"http_proxy": P, "no_proxy": "[::1]:99"}, P),
        ("http://[fd00::5]/", {"http_proxy": P, "no_proxy": "fd00::/8"}, None),
        ("http://[fd00::5]/", {"http_proxy": P, "no_proxy": "10.0.0.0/8"}, P),
    ],
)
def test_which_proxy(url: str, environ: dict[str, str], want: str | None) -> None:
    assert proxy_for(url, environ) == want


@pytest.mark.parametrize(
    "value", ["ftp://user:secret@proxy", "http://user:secret@proxy\r\nX: y", "file:///x"]
)
def test_no_proxy_at_all(value: str) -> None:
    with pytest.raises(ValueError, match="HTTP_PROXY") as error:
        proxy_for("http://h/", {"HTTP_PROXY": value})
    assert "secret" not in str(error.value)


def test_http_goes_through_the_proxy(serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(answers(body=b"from the proxy"))
    monkeypatch.setenv("HTTP_PROXY", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
    answer = client.request("GET", "http://target.invalid/path", deadline=soon(), headers={"X-Key": "k"})
    assert answer.body == b"from the proxy"
    (request,) = proxy.requests
    assert request.target == "http://target.invalid/path"
    assert base64.b64decode(request.headers["proxy-authorization"].removeprefix("Basic ")) == b"user:p@ss"
    assert request.headers["x-key"] == "k"


def test_no_proxy_goes_direct(serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve(answers(body=b"proxy")), serve(answers(body=b"direct"))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    assert client.request("GET", server.url(), deadline=soon()).body == b"direct"
    assert proxy.connections == 0


def tunnel(peer: Peer) -> None:
    """A proxy that connects and copies both ways."""
    head = peer.read_head()
    target = head.split(b" ")[1].decode()
    peer.server.connects.append(head)  # type: ignore[attr-defined]
    host, _, port = target.partition(":")
    with socket.create_connection((host, int(port))) as onward:
        peer.send(b"HTTP/1.1 200 Established\r\nX-Proxy: yes\r\n\r\n")

        def back() -> None:
            while data := onward.recv(65536):
                peer.sock.sendall(data)

        thread = threading.Thread(target=back, daemon=True)
        thread.start()
        while data := peer.receive():
            onward.sendall(data)
        with contextlib.suppress(OSError):
            onward.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_https_goes_through_a_tunnel(
    serve: Serve, client: Client, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, proxy = serve(answers(body=b"inner"), authority.context()), serve(tunnel)
    proxy.connects = []  # type: ignore[attr-defined]
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
    for _ in range(3):
        answer = client.request("POST", server.url(), deadline=soon(), body=b"x", headers={"X-Key": "secret"})
        assert answer.body == b"inner"
        assert "x-proxy" not in answer.headers
    (head,) = proxy.connects  # type: ignore[attr-defined]
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} ".encode())
    assert b"secret" not in head
    assert server.requests[0].headers["x-key"] == "secret"


@pytest.mark.parametrize("status", ["407 Authenticate", "403 Forbidden", "502 Bad Gateway"])
def test_a_proxy_that_refuses_the_tunnel(
    serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.answer(b"no", status)

    proxy = serve(script)
    monkeypatch.setenv("https_proxy", f"http://user:secret@127.0.0.1:{proxy.port}")
    with pytest.raises(TransportError, match=status[:3]) as error:
        client.request("POST", "https://target.invalid/", deadline=soon(), body=b"x")
    assert (error.value.kind, error.value.sent) == ("proxy", False)
    assert "secret" not in str(error.value)


def test_a_proxy_that_is_not_there(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, kind in (
        ("http://user:secret@127.0.0.1:1", "connect"),
        ("http://user:secret@no.invalid:1", "resolve"),
    ):
        monkeypatch.setenv("http_proxy", value)
        with pytest.raises(TransportError) as error:
            client.request("POST", "http://target.invalid/", deadline=soon(), body=b"x")
        assert (error.value.kind, error.value.sent) == (kind, False)
        assert "secret" not in str(error.value)


def test_a_client_may_leave_proxies_alone(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    url = serve(answers()).url()
    assert Client(proxies=False).request("GET", url, deadline=soon()).body == b"ok"
    with pytest.raises(TransportError):
        Client().request("GET", url, deadline=soon())
