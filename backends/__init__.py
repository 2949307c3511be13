# SPDX-License-Identifier: Apache-2.0
"""One module per service; ``sandbox_native.registry`` names them."""
