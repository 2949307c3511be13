# SPDX-License-Identifier: Apache-2.0
"""A server with OpenSandbox's lifecycle API, execd and egress that really runs commands and keeps files."""
