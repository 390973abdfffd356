# SPDX-License-Identifier: Apache-2.0
"""The door between the caller's arrays and bit patterns: torch tensors, numpy and ml_dtypes arrays, Bits.

torch is never imported here, only used when the caller's own operand is a torch tensor.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from mmaemu.bits import Bits, Spec
from mmaemu.errors import BackendUnavailableError, InvalidInputError
from mmaemu.model import formats
from mmaemu.model.formats import AnyBits

Kind = Literal["torch", "numpy", "bits", "spec"]


@dataclass(frozen=True, eq=False)
class Operand:
    """One tensor of a call: torch's dtype name, shape, strides in elements, and its bit patterns."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bits: AnyBits | None
    """None for a shape without data, and for dtypes that mmaemu has no format for."""
    kind: Kind
    device: Any = None
    requires_grad: bool = False
    """True where torch would record the call for autograd."""
    offset: int = 0
    """Where a view begins in its memory, in elements, as far as torch tells."""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps, as torch says it: strides of a size of 1, and of no elements, do not matter."""
        expected = 1
        if 0 in self.shape:
            return True
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def data(self) -> AnyBits:
        if self.bits is None:
            raise InvalidInputError.because(
                "operands",
                got="a shape without data",
                wanted="values",
                hint="Shapes alone are enough for explain only.",
            )
        return self.bits


def read(value: Any, field: str) -> Operand:
    """The operand that `value` is. InvalidInputError if it is no tensor of a kind that mmaemu knows."""
    if isinstance(value, Bits):
        return Operand(value.dtype, value.shape, value.layout, value.array, "bits")
    if isinstance(value, Spec):
        return Operand(dtype_name(value.dtype), tuple(value.shape), value.layout, None, "spec")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _read_torch(value, torch)
    if isinstance(value, np.ndarray | np.generic):
        return _read_numpy(np.asarray(value))
    raise InvalidInputError.because(
        field,
        got=f"a {type(value).__name__}",
        wanted="a torch tensor, a numpy array or mmaemu.Bits",
        hint="Wrap a number as numpy.float32(x) or torch.tensor(x)." if isinstance(value, int | float) else "",
    )


def read_target(value: Any, field: str) -> Operand:
    """What `read` tells of a tensor that is to be written, without its data: torch cannot resize a tensor whose memory
    is lent out."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return Operand(dtype, tuple(value.shape), tuple(value.stride()), None, "torch", value.device,
            offset=value.storage_offset(),
        )  # fmt: skip
    return read(value, field)


def dtype_name(dtype: Any) -> str:
    """torch's name of a dtype given as torch.dtype, numpy dtype or string."""
    text = dtype if isinstance(dtype, str) else None
    if text is None:
        try:
            text = str(dtype) if str(dtype).startswith("torch.") else np.dtype(dtype).name
        except TypeError:
            raise InvalidInputError.because("out_dtype", got=repr(dtype)[:80], wanted="a dtype or its name") from None
    text = text.removeprefix("torch.")
    short = {fmt.name: fmt.torch_name for fmt in formats.ALL}
    return short.get(text, text)


def give_back(bits: AnyBits, dtype: str, like: Operand) -> Any:
    """`bits` as the kind of tensor that `like` was, on its device."""
    if like.kind == "torch":
        torch = sys.modules["torch"]
        signed = torch.from_numpy(np.ascontiguousarray(bits).view(f"i{bits.itemsize}" if bits.itemsize > 1 else "u1"))
        return signed.view(getattr(torch, dtype)).to(like.device)
    if like.kind == "numpy":
        return np.ascontiguousarray(bits).view(_numpy_dtype(dtype))
    return Bits(dtype, bits)


def fill(out: Any, bits: AnyBits, dtype: str) -> Any:
    """`out`, holding `bits`. A torch tensor of another shape is resized as torch resizes; others must fit."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor):
        if tuple(out.shape) != bits.shape:
            if out.numel():
                warnings.warn(
                    f"An output with one or more elements was resized since it had shape {list(out.shape)}, "
                    f"which does not match the required output shape {list(bits.shape)}.",
                    stacklevel=3,
                )
            out.resize_(bits.shape)
        return out.copy_(give_back(bits, dtype, read_target(out, "out")))
    target = out.array if isinstance(out, Bits) else out
    if target.shape != bits.shape:
        raise InvalidInputError.because("out", got=f"shape {target.shape}", wanted=f"shape {bits.shape}")
    if not target.flags.writeable:
        raise InvalidInputError.because("out", got="a read-only array", wanted="one that can be written")
    target[...] = bits if isinstance(out, Bits) else bits.view(target.dtype)
    return out


def _read_torch(value: Any, torch: Any) -> Operand:
    name, fmt, words = _torch_type(value.dtype, torch)
    device, bits = value.device, None
    if fmt is not None and device.type != "meta":
        plain = value.detach() if value.requires_grad else value
        plain = plain.view(words) if device.type == "cpu" else plain.view(words).cpu()
        bits = plain.numpy().view(fmt.storage)
    return Operand(
        dtype=name,
        shape=tuple(value.shape),
        strides=value.stride(),
        bits=bits,
        kind="spec" if device.type == "meta" else "torch",
        device=device,
        requires_grad=bool(value.requires_grad and torch.is_grad_enabled()),
        offset=value.storage_offset(),
    )


@cache
def _torch_type(dtype: Any, torch: Any) -> tuple[str, formats.Format | None, Any]:
    """A torch.dtype's name, its format, and the integers that its words can be viewed as."""
    name = str(dtype).removeprefix("torch.")
    fmt = _format_or_none(name)
    words = None if fmt is None else {1: torch.uint8, 2: torch.int16, 4: torch.int32}[fmt.itemsize]
    return name, fmt, words


def _read_numpy(value: np.ndarray[Any, Any]) -> Operand:
    value = value.astype(value.dtype.newbyteorder("="), copy=False)  # a view of swapped bytes would be other bits
    name = value.dtype.name
    fmt = _format_or_none(name)
    bits = None if fmt is None else value.view(fmt.storage)
    return Operand(name, value.shape, tuple(s // value.itemsize for s in value.strides), bits, "numpy")


def _format_or_none(name: str) -> formats.Format | None:
    return next((fmt for fmt in formats.ALL if fmt.torch_name == name and fmt is not formats.TF32), None)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name in ("float32", "float16"):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise BackendUnavailableError.because(
            "out_dtype",
            got=f"{name} for numpy operands",
            wanted="the package ml_dtypes",
            hint="pip install ml_dtypes, or pass mmaemu.Bits.",
        ) from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found
