#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lay out the provider's own sandbox tests (from its source archive, provider 1.0.0) in DIR, ready to run.
# usage: fetch_peer_tests.sh DIR [python]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); dir=$1; py=${2:-python3}
want=133379edbdea70c09f7d66e10ed2110f6ad3f6872fbe7891fcc9cf6ca0376708
mkdir -p "$dir/dl"
tgz=$dir/dl/apache_airflow_providers_common_ai-1.0.0.tar.gz
[ -f "$tgz" ] || "$py" -m pip download -q --no-deps --no-binary :all: -d "$dir/dl" apache-airflow-providers-common-ai==1.0.0
echo "$want  $tgz" | sha256sum -c --quiet
rm -rf "$dir/tests"; mkdir -p "$dir/tests/unit"
tar xzf "$tgz" -C "$dir/tests" --strip-components=2 --wildcards \
  '*/tests/unit/__init__.py' '*/tests/unit/common/__init__.py' '*/tests/unit/common/ai/__init__.py' \
  '*/tests/unit/common/ai/sandbox/*' '*/tests/unit/common/ai/toolsets/__init__.py' '*/tests/unit/common/ai/toolsets/test_sandbox.py'
cp "$here/peer_conftest.py" "$dir/tests/conftest.py"
printf '[pytest]\ntestpaths = tests\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\ntimeout = 300\n' >"$dir/pytest.ini"
