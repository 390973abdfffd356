# SPDX-License-Identifier: Apache-2.0
"""The HTTP service: one API process, worker processes that compute.

settings, limits and admission say what is allowed; routes read a body and hand it to devices; work is what a worker
does with it; problems makes every refusal.
"""

from __future__ import annotations
