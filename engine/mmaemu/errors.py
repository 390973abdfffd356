# SPDX-License-Identifier: Apache-2.0
"""Every error that mmaemu raises on purpose.

    MmaemuError
      InvalidInputError           (also ValueError)    the call is not well formed in mmaemu's own terms
        WireFormatError                                a body or file is not what the wire format says
        LimitExceededError                             larger than this service or command allows
      ReferenceRejectsError       (also RuntimeError)  torch or cuBLASLt would refuse this call
        ReferenceRejectsValueError (also ValueError)   torch refuses it with a ValueError
      UnsupportedFeatureError                          the hardware runs it, mmaemu has not modelled it
      BackendUnavailableError                          this machine cannot: a package, compiler or device is missing
      RemoteError                                      the service could not answer
        ServiceUnreachableError                        no connection
        RemoteTimeoutError                             the deadline passed
        ServiceBusyError                               it refused for now; retry_after says how long
        BadReplyError                                  its answer is not what the protocol says

The first three kinds of refusal never stand in for each other. Each error names the field, what came and what was
wanted, and the same sentence travels over HTTP.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class MmaemuError(Exception):
    """Base of all. `code` is stable and is the last part of the problem type over HTTP."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, field: str = "", got: str = "", wanted: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.got = got
        self.wanted = wanted
        self.hint = hint

    @classmethod
    def because(cls, field: str, *, got: object, wanted: str, hint: str = "") -> Self:
        """The usual sentence: field, what came, what was wanted, what to do."""
        text = f"{field}: got {got}; wanted {wanted}."
        return cls(f"{text} {hint}" if hint else text, field=field, got=str(got), wanted=wanted, hint=hint)

    def details(self) -> dict[str, str]:
        """The filled fields, as the problem body carries them."""
        named = {"field": self.field, "got": self.got, "wanted": self.wanted, "hint": self.hint}
        return {name: text for name, text in named.items() if text}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details()), self.__dict__


def _rebuild(cls: type[MmaemuError], message: str, details: dict[str, str]) -> MmaemuError:
    """Errors cross from worker processes: pickling keeps the class and every field."""
    return cls(message, **details)


class InvalidInputError(MmaemuError, ValueError):
    """The call is not well formed: an unknown profile, a Python float for a scale, cells outside the result."""

    code = "invalid-input"
    status = 422


class WireFormatError(InvalidInputError):
    """A body or file is not what the wire format says: truncated, overlapping tensors, JSON that is not JSON."""

    code = "wire-format"
    status = 400


class LimitExceededError(InvalidInputError):
    """The body, the work or the number of cells is above the limit that `/v1/limits` shows."""

    code = "limit-exceeded"
    status = 413


class ReferenceRejectsError(MmaemuError, RuntimeError):
    """torch or cuBLASLt would refuse this call, so there are no bits to give. Also a RuntimeError, as torch's is."""

    code = "reference-rejects"
    status = 422


class ReferenceRejectsValueError(ReferenceRejectsError, ValueError):
    """A refusal for which the profile's version of torch raises ValueError. Still a RuntimeError, like its base."""

    code = "reference-rejects-value"


class UnsupportedFeatureError(MmaemuError):
    """The hardware would run this call; mmaemu has not modelled it and does not guess."""

    code = "unsupported-feature"
    status = 501


class BackendUnavailableError(MmaemuError):
    """This machine lacks what the call needs; the message names the pip line or the device."""

    code = "backend-unavailable"
    status = 503


class RemoteError(MmaemuError):
    """The service could not answer. Raised by the client alone."""

    code = "remote"


class ServiceUnreachableError(RemoteError):
    """No connection to the service, after all retries."""

    code = "service-unreachable"
    status = 503


class RemoteTimeoutError(RemoteError):
    """The total deadline over all retries passed."""

    code = "remote-timeout"
    status = 504


class ServiceBusyError(RemoteError):
    """The service refused for now (429 or 503); `retry_after` is its own estimate in seconds, where it gave one."""

    code = "service-busy"
    status = 429
    retry_after: float | None = None


class BadReplyError(RemoteError):
    """The reply is not what the protocol says: a wrong content type, a damaged body, a digest that does not match."""

    code = "bad-reply"
    status = 502
