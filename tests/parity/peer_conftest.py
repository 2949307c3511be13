# SPDX-License-Identifier: Apache-2.0
"""Stand-in for upstream's tests_common plugin: only what the copied files use. Ours, not upstream's."""

from __future__ import annotations

import os
import tempfile

# Before anything imports airflow: keep its config, logs and metadata DB out of $HOME.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="peer-airflow-"))
os.environ.setdefault("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")

import pytest

REGISTERED_SECRET = "db-password-91c3"


def pytest_configure(config):
    config.addinivalue_line("markers", "enable_redact: secret masking is left on for this test")
    config.addinivalue_line("markers", "db_test: needs a metadata database")


@pytest.fixture
def registered_secret():
    from airflow.sdk._shared.secrets_masker import reset_secrets_masker
    from airflow.sdk.log import mask_secret

    reset_secrets_masker()
    mask_secret(REGISTERED_SECRET)
    yield REGISTERED_SECRET
    reset_secrets_masker()


@pytest.fixture
def create_connection_without_db(monkeypatch):
    """Publish a Connection through its environment variable, so no metadata database is needed."""

    def create(connection):
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection.conn_id.upper()}", connection.as_json())
        return connection

    return create
