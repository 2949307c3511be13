# SPDX-License-Identifier: Apache-2.0
"""Types of the C extension. Grouped as the files of csrc/py are."""
