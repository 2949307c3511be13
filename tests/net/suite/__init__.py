# SPDX-License-Identifier: Apache-2.0
"""One table of behaviours that every backend has, and the columns it is looked at in."""
