# SPDX-License-Identifier: Apache-2.0
"""What a user writes: `make user-types` runs this script and has pyright check it, in strict mode, outside the tree."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import mmaemu
import mmaemu.remote
from mmaemu import Bits, profiles, remote
from mmaemu.testing import assert_bitwise_equal

one = Bits("float32", np.array(0x3F800000, np.uint32))
a = Bits("float8_e4m3fn", np.full((16, 32), 0x38, np.uint8))
b = Bits("float8_e4m3fn", np.full((16, 32), 0x38, np.uint8).T)

out = mmaemu.scaled_mm(a, b, one, one, out_dtype="bfloat16", profile="l40s")
assert_bitwise_equal(out, Bits("bfloat16", np.full((16, 16), 0x4200, np.uint16)))  # 32.0

trace = mmaemu.explain(a, b, one, one, out_dtype="bfloat16", profile="l40s", cells=[(0, 0)])
assert_type(trace, mmaemu.Trace)
assert_type(profiles.names(), list[str])
assert_type(profiles.get("l40s"), mmaemu.Profile)

try:
    mmaemu.scaled_mm(a, a, one, one, profile="l40s")
except mmaemu.ReferenceRejectsError as error:
    assert_type(error.message, str)
except mmaemu.MmaemuError as error:
    raise SystemExit(f"the wrong refusal: {error}") from error

with remote.Client("http://127.0.0.1:1") as client:  # nothing is sent until a method is called
    assert_type(client, mmaemu.remote.Client)
print("user_script: ok")
