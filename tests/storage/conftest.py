# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import gateway
import proxy as proxies
from sandbox_native import _obstore, uploads

WRITERS = ["obstore", "s3fs"]


def pytest_configure(config: pytest.Config) -> None:
    # What a developer's machine has set is not what a test means.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = "/dev/null"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gateway.Gateway]:
    with gateway.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3: gateway.Gateway) -> str:
    return s3.bucket()


@pytest.fixture(scope="session")
def _proxy(s3: gateway.Gateway) -> Iterator[proxies.Proxy]:
    # One for all tests, so that s3fs makes one client, which takes it a third of a second.
    with proxies.before(s3.root.endpoint) as running:
        yield running


@pytest.fixture
def proxy(_proxy: proxies.Proxy) -> proxies.Proxy:
    _proxy.seen = []
    _proxy.rule = lambda _: None
    return _proxy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as S3 takes them."""
    monkeypatch.setattr(uploads, "PART", uploads.MIN_PART)


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of writing to S3; without obstore as if it were not installed."""
    if request.param == "s3fs":
        monkeypatch.setattr(_obstore, "installed", lambda: False)
    elif not _obstore.installed():
        raise RuntimeError("obstore is not installed; see requirements-dev.lock")
    name: str = request.param
    return name
