# SPDX-License-Identifier: Apache-2.0
"""The page at GET /: a file without scripts, its one style sheet allowed by its digest."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib import resources

import mmaemu

_PAGE = (resources.files("mmaemu_server") / "web" / "index.html").read_text("utf-8")
_STYLE = re.search(r"<style>(.*?)</style>", _PAGE, re.DOTALL)
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE[1].encode() if _STYLE else b"").digest()).decode("ascii")

POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(base_url: str) -> str:
    """The page, its example addressed to this service."""
    return _PAGE.replace("{{base_url}}", html.escape(base_url)).replace("{{version}}", html.escape(mmaemu.__version__))
