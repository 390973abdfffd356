# SPDX-License-Identifier: Apache-2.0
"""The local calls as functions against one service: `url`, or MMAEMU_URL. Connections are kept between calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmaemu_client.client import Client
from mmaemu_client.settings import Settings, resolve

if TYPE_CHECKING:
    from mmaemu.profiles import Profile
    from mmaemu.request import Splitk
    from mmaemu.trace import Trace

_MOST_KEPT = 8
_kept: dict[Settings, Client] = {}


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    out: Any = None,
    url: str | None = None,
) -> Any:
    """What `mmaemu.scaled_mm` returns, computed by the service: same arguments, same bits, same errors.

    overrides: values of the profile to replace, as in `Profile.with_overrides`. backend: one of the service's. out:
    written here, when the reply has come.
    """
    return _client(url).scaled_mm(
        a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
        profile=profile, overrides=overrides, splitk=splitk, backend=backend, out=out,
    )  # fmt: skip


def accumulate(
    a: Any,
    b: Any,
    *,
    use_fast_accum: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = "float32",
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    url: str | None = None,
) -> Any:
    """What `mmaemu.accumulate` returns, computed by the service: the float32 accumulators before the epilogue."""
    return _client(url).accumulate(
        a, b, use_fast_accum=use_fast_accum, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype,
        profile=profile, overrides=overrides, splitk=splitk, backend=backend,
    )  # fmt: skip


def explain(
    a: Any,
    b: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    cells: Iterable[Sequence[int]] = (),
    profile: str | Profile | None = None,
    overrides: Mapping[str, Any] | None = None,
    splitk: int | Splitk | None = None,
    backend: str = "auto",
    url: str | None = None,
) -> Trace:
    """What `mmaemu.explain` returns, computed by the service. a and b may be shapes without data: `mmaemu.Spec`."""
    return _client(url).explain(
        a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
        cells=cells, profile=profile, overrides=overrides, splitk=splitk, backend=backend,
    )  # fmt: skip


def mma(
    a: Any,
    b: Any,
    c: Any,
    fmt_a: str | None = None,
    fmt_b: str | None = None,
    *,
    preset: str,
    acc: str | None = None,
    url: str | None = None,
) -> Any:
    """What `mmaemu.model.dot` returns, computed by the service: one instruction, [count] accumulators.

    a, b: [count, K]; c: [count]. Arrays of plain unsigned words are bit patterns of fmt_a, fmt_b and acc (default f32),
    and the result is words again. Tensors with a dtype of their own need no format, save "tf32" for float32 words.
    """
    return _client(url).mma(a, b, c, fmt_a, fmt_b, preset=preset, acc=acc)


def profiles(*, url: str | None = None) -> Any:
    """The profiles that the service knows."""
    return _client(url).profiles()


def profile(name: str, *, url: str | None = None) -> Any:
    """One profile of the service: every value with its source and confidence."""
    return _client(url).profile(name)


def backends(*, url: str | None = None) -> Any:
    """The service's backends, and why those that it lacks are missing."""
    return _client(url).backends()


def version(*, url: str | None = None) -> Any:
    """The service's engine version."""
    return _client(url).version()


def limits(*, url: str | None = None) -> Any:
    """The sizes above which the service refuses a call."""
    return _client(url).limits()


def health(*, url: str | None = None) -> Any:
    """What the service says about its own process."""
    return _client(url).health()


def _client(url: str | None) -> Client:
    """The client for these settings. The variables are read at every call, so that changing one has its effect.

    No lock, for a child forked while it is held would wait for ever: each step on the dict is atomic.
    """
    settings = resolve(url)
    client = _kept.get(settings)
    if client is not None:
        return client
    for oldest in list(_kept)[: len(_kept) - _MOST_KEPT + 1]:
        # Not closed: another thread may be waiting on it. Its connections go with its last user.
        _kept.pop(oldest, None)
    made = Client(
        settings.url,
        api_key=settings.api_key or "",
        timeout=settings.timeout,
        max_retries=settings.max_retries,
        ca_bundle=settings.ca_bundle,
    )
    return _kept.setdefault(settings, made)
