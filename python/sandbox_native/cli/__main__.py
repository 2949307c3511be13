# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from sandbox_native.cli import main

raise SystemExit(main())
