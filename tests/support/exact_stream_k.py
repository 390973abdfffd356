# SPDX-License-Identifier: Apache-2.0
"""Stream-K played through block by block, and PyTorch's sm_90 choice of operand order as its table of cases reads."""

from __future__ import annotations

import struct
from itertools import groupby

Tile = tuple[int, int]
Ranges = list[tuple[int, int]]


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


def f32(x: float) -> float:
    """x rounded to float32: products and sums of float32 numbers that double holds exactly round once."""
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def ranges(
    m: int, n: int, k: int, sms: int, occupancy: int, tile: Tile = (64, 128), depth: int = 64
) -> dict[Tile, Ranges]:
    """Every output tile's ranges of K."""
    tm, tn, iterations = up(m, tile[0]), up(n, tile[1]), up(k, depth)
    whole = [(0, k)]
    found = {(i, j): whole for i in range(tm) for j in range(tn)}
    shared, blocks = population(tm * tn, iterations, sms, occupancy)
    if not blocks:
        return found
    owner = owners(shared, min(blocks, shared * iterations), iterations)
    for index in range(shared):
        mine = owner[index * iterations : (index + 1) * iterations]
        steps = [len(list(group)) for _, group in groupby(mine)]
        edges = [sum(steps[:i]) * depth for i in range(len(steps))] + [k]
        found[place(index, tm, tn, shared, sms * occupancy)] = list(zip(edges, edges[1:], strict=False))
    return found


def owners(tiles: int, blocks: int, iterations: int) -> list[int]:
    """The block that runs each iteration of the shared tiles."""
    per_tile = tiles if blocks > tiles and blocks % tiles == 0 else 1
    owner: list[int] = []
    total = tiles * iterations
    short, extra = divmod(total, blocks)
    for region in range(per_tile):
        for block in range(blocks // per_tile):
            owner += [region * blocks + block] * (short + (block < extra // per_tile))
    assert len(owner) == total
    return owner


def population(tiles: int, iterations: int, sms: int, occupancy: int) -> tuple[int, int]:
    """Shared tiles, and the blocks that share them; (0, 0) where each tile has a block of its own."""
    full, left = tiles // sms, tiles % sms
    if left == 0 or sms < 2:
        return 0, 0
    if full < occupancy:
        attempts = [(left, occupancy - full, True)]
    else:
        attempts = [(left, 1, True)] if occupancy > 1 and full % occupancy == occupancy - 1 else []
        attempts.append((left + sms, occupancy - (full - 1) % occupancy, False))
    for shared, waves, partial in attempts:
        blocks, score = best(shared, iterations, sms, waves, partial)
        if score >= 0:
            return shared, blocks
    return 0, 0


def best(shared: int, iterations: int, sms: int, waves: int, partial: bool) -> tuple[int, int]:
    total = shared * iterations
    low = min(sms, shared + 1) if partial else sms
    scores = {}
    for trial in range(low, min(sms * waves, total // 2) + 1):
        rounds = up(trial, sms)
        length = up(total, trial) * rounds
        if trial % shared == 0:
            peers, seam = trial // shared, 0.0
        else:
            peers = up(trial, shared) + 1
            seam = f32(f32(f32(0.02) * peers) * length)
        fixup = int(f32(f32(2.0 * rounds + seam) + 2.0 * peers))
        scores[trial] = iterations * up(shared, sms) - length - fixup
    if not scores:
        return 0, -1
    top = max(scores.values())
    return max(trial for trial, score in scores.items() if score == top), top


def place(index: int, tm: int, tn: int, shared: int, room: int) -> Tile:
    """Where the tile of this number lies."""
    columns, rows = up(tn, 4), up(tm, 8)
    row, column = divmod((shared - 1) // 32, columns)
    column = columns - 1 if row else column
    alone = tm * tn - shared
    inside = (row + 1) * 8 < tm and (column + 1) * 4 < tn
    if inside and alone >= 2 * room and f32(f32(alone) / f32(rows * columns * 32)) > f32(0.85):
        cohort, rest = divmod(index, 32)
        return cohort // columns * 8 + rest // 4, cohort % columns * 4 + rest % 4
    return (index % tm, index // tm) if tm < tn else (index // tn, index % tn)


def exchanges_operands(m: int, n: int) -> bool:
    """Whether the sm_90 kernel runs on the transposed product: the cases in the order of the source."""
    m, n = up(m, 64) * 64, up(n, 64) * 64
    cases = [
        (m == 64 and n >= 3072, False),
        (n == 64 and m >= 3072, True),
        (m == 192 and n >= 4096, True),
        (n == 192 and m >= 4096, False),
        (m * n <= 1 << 24 and m % 256 != 0 and n % 256 == 0, True),
        (m * n <= 1 << 24 and n % 256 != 0 and m % 256 == 0, False),
        (m % 256 != 0 and n % 256 != 0, (m <= n) ^ (m * n <= 1 << 20)),
        (m >= 4096 and n >= 4096, not m >= n),
    ]
    return next((answer for applies, answer in cases if applies), True)
