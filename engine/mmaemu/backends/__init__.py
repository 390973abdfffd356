# SPDX-License-Identifier: Apache-2.0
"""Who runs a Plan. Every backend gives the bits of the reference, or refuses."""
