# SPDX-License-Identifier: Apache-2.0
import sandbox_native._sandbox_native as native


def test_the_extension_loads() -> None:
    assert native.__name__ == "sandbox_native._sandbox_native"
