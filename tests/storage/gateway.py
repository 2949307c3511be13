# SPDX-License-Identifier: Apache-2.0
"""A real S3 server on loopback: versitygw over a folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from started import started

ROOT = Path(__file__).parents[2]
REGION = "us-east-1"


@dataclass(frozen=True)
class Account:
    """Credentials, and where they are good."""

    key: str
    secret: str
    endpoint: str

    def client(self) -> Any:
        """The vendor's own client, which shows what is there."""
        return boto3.client(
            "s3",
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            endpoint_url=self.endpoint,
            region_name=REGION,
            config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
        )

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        """For s3fs."""
        return {
            "key": self.key,
            "secret": self.secret,
            "endpoint_url": endpoint or self.endpoint,
            "client_kwargs": {"region_name": REGION},
            # s3fs tries each again as well.
            "config_kwargs": {"retries": {"max_attempts": 1}},
        }

    def connection(self, endpoint: str | None = None) -> str:
        """As Airflow reads a connection from the environment."""
        extra = {"endpoint_url": endpoint or self.endpoint, "region_name": REGION}
        return json.dumps({"conn_type": "aws", "login": self.key, "password": self.secret, "extra": extra})

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """As the vendor's clients read it from the environment."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
        }


class Gateway:
    """The server, its administrator and what lies in it."""

    def __init__(self, program: str, root: Account) -> None:
        self._program = program
        self.root = root
        self.client = root.client()

    def bucket(self) -> str:
        """Make a bucket."""
        name = f"bucket-{secrets.token_hex(4)}"
        self.client.create_bucket(Bucket=name)
        return name

    def role(self, bucket: str, prefix: str, *actions: str) -> Account:
        """Make an account that may only do ``actions`` under ``prefix``; ``ListBucket`` is of the bucket."""
        account = Account(f"role-{secrets.token_hex(4)}", secrets.token_hex(8), self.root.endpoint)
        subprocess.run(
            [
                *[self._program, "admin", "--access", self.root.key, "--secret", self.root.secret],
                *["--endpoint-url", self.root.endpoint, "--region", REGION],
                *["create-user", "--access", account.key, "--secret", account.secret, "--role", "user"],
            ],
            check=True,
            capture_output=True,
        )
        resources = [f"arn:aws:s3:::{bucket}/{prefix}*"]
        if "ListBucket" in actions:
            resources.append(f"arn:aws:s3:::{bucket}")
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": [account.key]},
            "Action": [f"s3:{action}" for action in actions],
            "Resource": resources,
        }
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        self.client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        return account

    def objects(self, bucket: str) -> dict[str, bytes]:
        """All that is there."""
        found = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for item in page.get("Contents", ()):
                body = self.client.get_object(Bucket=bucket, Key=item["Key"])["Body"]
                found[item["Key"]] = body.read()
        return found

    def uploads(self, bucket: str) -> list[str]:
        """The keys of all multipart uploads that are open."""
        answer = self.client.list_multipart_uploads(Bucket=bucket)
        return [upload["Key"] for upload in answer.get("Uploads", ())]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def program() -> str:
    """Build the server, once, below ``build``."""
    command = [str(ROOT / ".ci" / "test-server"), "versitygw"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Gateway]:
    """Run the server on a folder of its own.

    :raises RuntimeError: it did not start; the text has its log.
    """
    binary = program()
    data, accounts = folder / "data", folder / "accounts"
    data.mkdir(parents=True)
    accounts.mkdir()
    port = free_port()
    root = Account("root", secrets.token_hex(8), f"http://127.0.0.1:{port}")
    environment = {
        "PATH": os.environ["PATH"],
        "ROOT_ACCESS_KEY": root.key,
        "ROOT_SECRET_KEY": root.secret,
        "HOME": str(folder),
    }
    command = [binary, "--port", f"127.0.0.1:{port}", "--region", REGION, "--iam-dir", str(accounts)]
    command += ["--quiet", "posix", str(data)]
    gateway = Gateway(binary, root)
    with started(command, environment, folder / "log", gateway.client.list_buckets):
        yield gateway
