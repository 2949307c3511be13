# SPDX-License-Identifier: Apache-2.0
"""Which proxy a URL is reached through, from the environment variables that other HTTP clients read.

``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy``, in lower or upper case; lower case wins, as
in curl and the standard library. Decided here and not by libcurl, which reads only the lower-case
``http_proxy``, and whose rules for ``no_proxy`` changed between versions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the URL of the proxy for ``url``, or None for a direct connection.

    :param url: an http or https URL.
    :param environ: instead of ``os.environ``.
    :raises ValueError: a variable names a proxy of a kind that does not exist. The text names the variable,
        never its value, which may hold a password.
    """
    env = os.environ if environ is None else environ
    if not any(name.lower().endswith("_proxy") for name in env):
        return None
    # Only where there is a proxy: these cost a millisecond or two to load.
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    name, proxy = _first(env, f"{scheme}_proxy", "all_proxy")
    if not proxy or _bypassed(parts.hostname or "", parts.port or _port(scheme), _first(env, "no_proxy")[1]):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy.split("://", 1)[0].lower() not in SCHEMES or any(c <= " " or c > "~" for c in proxy):
        raise ValueError(f"{name} does not name a proxy: use {', '.join(SCHEMES)}")
    return proxy


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _first(env: Mapping[str, str], *names: str) -> tuple[str, str]:
    for name in names:
        if name in env:
            return name, env[name].strip()
        upper = name.upper()
        # A CGI program gets the client's "Proxy:" header in HTTP_PROXY (CVE-2016-5385).
        if upper in env and not (upper == "HTTP_PROXY" and "REQUEST_METHOD" in env):
            return upper, env[upper].strip()
    return names[0], ""


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    from ipaddress import ip_address

    host = host.lower().rstrip(".")
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    for entry in no_proxy.replace(",", " ").split():
        if entry == "*":
            return True
        name, entry_port = _split_port(entry.lower())
        if entry_port is not None and entry_port != port:
            continue
        if address is not None:
            if _covers(name, address):
                return True
        else:
            name = name.removeprefix("*").strip(".")
            if name and (host == name or host.endswith("." + name)):
                return True
    return False


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdecimal() else None
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        if port.isdecimal():
            return name, int(port)
    return entry, None


def _covers(entry: str, address: IPv4Address | IPv6Address) -> bool:
    from ipaddress import ip_network

    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return False
    return address in network
