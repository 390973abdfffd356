# SPDX-License-Identifier: Apache-2.0
"""The conditions of a call, one function each: None where the call passes, a Finding where it does not."""
