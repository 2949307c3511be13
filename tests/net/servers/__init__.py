# SPDX-License-Identifier: Apache-2.0
"""Test servers that speak the services' protocols; each runs as a process of its own."""
