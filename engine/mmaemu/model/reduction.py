# SPDX-License-Identifier: Apache-2.0
"""Split-K: the partial sums of all ranges become one float32 accumulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mmaemu.model import formats, ieee
from mmaemu.model.formats import AnyBits, Format

Narrow = Callable[[AnyBits], AnyBits]


def running_sums(partials: Sequence[AnyBits], scheme: str, narrow: Narrow, fmt_out: Format) -> Iterator[AnyBits]:
    """float32 words of the sum after each range, ranges in ascending order, each addition RNE.

    compute_type: partials are float32. output_type: each partial is first converted to the output type by `narrow`.
    inplace: the running sum lives in the output buffer, so it is converted after every range but the last, which goes
    on to the epilogue in float32.
    """
    if scheme == "output_type" and len(partials) > 1:
        partials = [ieee.widen(narrow(partial), fmt_out) for partial in partials]
    total = partials[0]
    yield total
    for partial in partials[1:]:
        if scheme == "inplace":
            total = ieee.widen(narrow(total), fmt_out)
        total = ieee.add(total, partial, formats.F32)
        yield total
