# SPDX-License-Identifier: Apache-2.0
"""From a successful answer to a result. Damage is BadReplyError, never wrong bits."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any

from mmaemu import wire
from mmaemu.bits import Bits
from mmaemu.errors import BadReplyError, InvalidInputError
from mmaemu_client.exchange import Answer

if TYPE_CHECKING:
    from mmaemu.trace import Trace

JSON = "application/json"

_SHA256 = re.compile(r"(?:^|,)\s*sha-256\s*=\s*:([A-Za-z0-9+/=]*):\s*(?=,|;|$)")


def tensors(answer: Answer) -> wire.Reply:
    """The tensors and the info of a computed reply, checked against its digest."""
    _check(answer, wire.CONTENT_TYPE, digest_needed=True)
    try:
        return wire.reply_from_safetensors(answer.body)
    except InvalidInputError as error:
        raise BadReplyError(f"The reply is damaged: {error.message}", **error.details()) from None


def tensor(reply: wire.Reply, name: str, dtype: str, shape: tuple[int, ...] | None) -> Bits:
    """The one tensor of `reply`, of the dtype and shape that the call asks for (None: its operands do not say)."""
    found = reply.tensors.get(name)
    if found is None:
        got = f"tensors {', '.join(sorted(reply.tensors))[:80] or 'none'}"
        raise BadReplyError.because("reply", got=got, wanted=f"a tensor {name}")
    if found.dtype != dtype or (shape is not None and found.shape != shape):
        wanted = dtype if shape is None else f"{dtype} of shape {shape}"
        raise BadReplyError.because(name, got=f"{found.dtype} of shape {found.shape}", wanted=wanted)
    return found


def check_profile(digest: Any, expected: str | None) -> None:
    """BadReplyError if the service computed with another profile of the same name. None expects nothing."""
    if expected is not None and digest != expected:
        raise BadReplyError.because(
            "profile",
            got=f"one with digest {str(digest)[:12]}",
            wanted=f"the caller's own, {expected[:12]}",
            hint="The service runs another engine version; pass the profile's name to take its numbers.",
        )


def trace(answer: Answer) -> Trace:
    """The trace of a computed reply, checked against its digest."""
    from mmaemu.trace import Trace

    _check(answer, JSON, digest_needed=True)
    data = _parse(answer)
    if not isinstance(data, dict):
        raise BadReplyError.because("reply", got=f"a JSON {type(data).__name__}", wanted="a JSON object")
    try:
        return Trace.from_dict(data)
    except InvalidInputError as error:
        hint = "Client and service are of different versions."
        raise BadReplyError.because("reply", got=f"a trace with {error.got}", wanted=error.wanted, hint=hint) from None


def told_json(answer: Answer) -> Any:
    """JSON that describes the service. A digest is checked where there is one."""
    _check(answer, JSON, digest_needed=False)
    return _parse(answer)


def _check(answer: Answer, content_type: str, *, digest_needed: bool) -> None:
    got = answer.headers.get("content-type", "none")
    if got.partition(";")[0].strip().lower() != content_type:
        raise BadReplyError.because(
            "reply",
            got=f"content type {got[:80]}",
            wanted=content_type,
            hint="Is the address that of an mmaemu service?",
        )
    coding = answer.headers.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise BadReplyError.because("reply", got=f"content coding {coding[:80]}", wanted="a body as it is")
    _check_digest(answer, needed=digest_needed)


def _check_digest(answer: Answer, *, needed: bool) -> None:
    header = answer.headers.get("content-digest")
    if header is None and not needed:
        return
    found = _SHA256.search(header or "")
    if found is None:
        raise BadReplyError.because(
            "Content-Digest", got="no sha-256", wanted="the reply's SHA-256", hint="A proxy may have removed it."
        )
    try:
        expected = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        expected = b""
    if not hmac.compare_digest(expected, hashlib.sha256(answer.body).digest()):
        raise BadReplyError.because(
            "Content-Digest",
            got=f"a body of {len(answer.body)} bytes with another SHA-256",
            wanted="the bytes that the service sent",
            hint="Something on the way has changed the reply.",
        )


def _parse(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise BadReplyError.because("reply", got="a body that is not JSON", wanted="JSON") from None
