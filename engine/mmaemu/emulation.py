# SPDX-License-Identifier: Apache-2.0
"""`mmaemu.emulate`: inside it, whoever calls torch's scaled products gets the bits of the profile's GPU.

A TorchDispatchMode sees each operator after autograd and before any kernel, on every device, whatever library made the
call and by whatever name: torch._scaled_mm and torch.nn.functional.scaled_mm both end there. Replacing functions by
name would miss calls through torch.ops and through names that were imported before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmaemu.errors import BackendUnavailableError

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    raise BackendUnavailableError.because(
        "torch", got="no torch", wanted="the package torch", hint="pip install 'mmaemu[torch]'"
    ) from None

from mmaemu import api, functional, profiles
from mmaemu.profiles import Profile
from mmaemu.request import Splitk


@dataclass(frozen=True)
class EmulatedCall:
    """One call that was emulated: sizes, types (torch's names) and mode."""

    function: str
    """_scaled_mm, or _scaled_mm_v2, which is what torch.nn.functional.scaled_mm calls."""
    m: int
    n: int
    k: int
    a: str
    b: str
    out_dtype: str
    scale_a: tuple[int, ...]
    scale_b: tuple[int, ...]
    bias: bool
    use_fast_accum: bool
    profile: str


class emulate(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Emulate every `torch._scaled_mm` and `torch.nn.functional.scaled_mm` inside a `with` block.

        with mmaemu.emulate(profile="l40s") as emulation:
            model(x)
        emulation.calls     # how many products were emulated

    Operands may lie on the CPU or on a CUDA device; results come back where they were. All other operators run as
    ever. NaN, Inf, zeros and errors are those of `mmaemu.scaled_mm`. There is no derivative: operands that require
    grad raise UnsupportedFeatureError, unless the call stands under torch.no_grad() or in an autograd.Function, as it
    does in fp8 training libraries.

    Blocks nest, and the innermost decides. torch keeps modes by thread: a thread started inside a block is not
    emulated unless it enters one itself; one instance may serve several threads and counts for all of them. Functions
    compiled by torch.compile run uncompiled inside a block, with the same result, so fullgraph=True is refused by torch
    there; `torch.ops.mmaemu.scaled_mm` can be compiled.

    profile: a name or a Profile. splitk, backend: as in `mmaemu.scaled_mm`. log: keep an EmulatedCall of every call in
    `.log`.
    """

    def __init__(
        self,
        profile: str | Profile | None = None,
        *,
        splitk: int | Splitk | None = None,
        backend: str = "auto",
        log: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.profile = profiles.get(profile)
        _ = self.profile.gemm  # a profile of instructions alone is refused here, not at the first call
        self.calls = 0
        self.log: list[EmulatedCall] = []
        self._options: dict[str, Any] = {"profile": self.profile, "splitk": splitk, "backend": backend}
        self._keeps_log = log
        self._lock = threading.Lock()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        run = _EMULATED.get(func)
        if run is None or not _has_data(args):
            return func(*args, **kwargs)
        named = _by_name(func, args, kwargs)
        result = run(named, self._options)
        with self._lock:
            self.calls += 1
            if self._keeps_log:
                self.log.append(_record(func, named, result, self.profile.name))
        return result


def _has_data(args: tuple[Any, ...]) -> bool:
    """False while torch traces with tensors that have shapes alone: its own rules tell it what comes out."""
    from torch._subclasses.fake_tensor import FakeTensor

    return not any(
        isinstance(arg, FakeTensor) or (isinstance(arg, torch.Tensor) and arg.device.type == "meta") for arg in args
    )


def _by_name(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    named = {argument.name: argument.default_value for argument in func._schema.arguments}
    for argument, value in zip(func._schema.arguments, args, strict=False):
        named[argument.name] = value
    return named | kwargs


def _v1(named: dict[str, Any], options: dict[str, Any]) -> Any:
    return api.scaled_mm(
        named["self"], named["mat2"], named["scale_a"], named["scale_b"], named["bias"], named["scale_result"],
        named["out_dtype"], named["use_fast_accum"], out=named.get("out"), **options,
    )  # fmt: skip


def _v2(named: dict[str, Any], options: dict[str, Any]) -> Any:
    result = functional.scaled_mm(
        named["self"], named["mat2"], named["scale_a"], named["recipe_a"], named["scale_b"], named["recipe_b"],
        named["swizzle_a"], named["swizzle_b"], named["bias"], named["out_dtype"], named["contraction_dim"],
        named["use_fast_accum"], **options,
    )  # fmt: skip
    return result if named.get("out") is None else named["out"].copy_(result)


def _emulated() -> dict[Any, Callable[[dict[str, Any], dict[str, Any]], Any]]:
    """The operators of this torch that multiply with scales."""
    aten = torch.ops.aten
    found: dict[Any, Callable[[dict[str, Any], dict[str, Any]], Any]] = {}
    for name, run in (("_scaled_mm", _v1), ("_scaled_mm_v2", _v2)):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            found[getattr(packet, overload)] = run
    return found


_EMULATED = _emulated()


def _record(func: Any, named: dict[str, Any], result: torch.Tensor, profile: str) -> EmulatedCall:
    a, b = named["self"], named["mat2"]
    scales = [
        named[name][0] if isinstance(named[name], list | tuple) else named[name] for name in ("scale_a", "scale_b")
    ]
    return EmulatedCall(
        function=func._schema.name.removeprefix("aten::"),
        m=a.shape[0],
        n=b.shape[1],
        k=a.shape[1],
        a=_name(a.dtype),
        b=_name(b.dtype),
        out_dtype=_name(result.dtype),
        scale_a=tuple(scales[0].shape),
        scale_b=tuple(scales[1].shape),
        bias=named["bias"] is not None,
        use_fast_accum=named["use_fast_accum"],
        profile=profile,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
