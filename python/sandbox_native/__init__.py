# SPDX-License-Identifier: Apache-2.0
"""Disposable sandboxes for LLM agents: Airflow tasks and pydantic-ai programs, with a C core."""
