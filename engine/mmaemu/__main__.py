# SPDX-License-Identifier: Apache-2.0
"""`python -m mmaemu` is the command `mmaemu`."""

import sys

from mmaemu.cli import main

sys.exit(main())
