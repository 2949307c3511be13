# SPDX-License-Identifier: Apache-2.0
"""A test server with the Islo API as it was observed: both planes, and sandboxes that really run commands."""
