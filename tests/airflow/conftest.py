# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Before anything imports Airflow, which reads and writes its home as it is imported: not the user's own.
_home = tempfile.mkdtemp(prefix="sandbox-native-airflow-home-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _home
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
