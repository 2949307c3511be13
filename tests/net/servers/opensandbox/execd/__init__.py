# SPDX-License-Identifier: Apache-2.0
"""The agent inside each sandbox of the test server: commands and files, as execd has them."""
