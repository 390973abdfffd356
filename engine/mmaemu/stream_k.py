# SPDX-License-Identifier: Apache-2.0
"""CUTLASS 2.x Stream-K: which output tiles have their K split, and where, from sizes and multiprocessors alone.

Source: CUTLASS 3.8 threadblock_swizzle_streamk.h. A wave is one block for each multiprocessor. Tiles that fill whole
waves are computed by one block each; the rest may be shared out over more blocks, by iterations of one K tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_NEVER = -(1 << 31)
_FEWEST_ITERATIONS = 2
_COHORT_ROWS, _COHORT_COLUMNS = 8, 4
_COHORT = _COHORT_ROWS * _COHORT_COLUMNS
_COHORT_EFFICIENCY = 0.85

Cuts = tuple[int, ...]
"""The K iterations at which a tile is cut; () for a tile that one block computes."""


@dataclass(frozen=True)
class Grid:
    """Output tiles, the iterations of each, and the device they run on."""

    tiles_m: int
    tiles_n: int
    iterations: int
    sm_count: int
    ctas_per_sm: int

    @property
    def tiles(self) -> int:
        return self.tiles_m * self.tiles_n


@dataclass(frozen=True)
class Choice:
    """How many of the first tiles are shared, among how many blocks."""

    shared_tiles: int = 0
    blocks: int = 0


def tile_splits(
    m: int,
    n: int,
    k: int,
    *,
    sm_count: int,
    ctas_per_sm: int,
    tile: tuple[int, int] = (64, 128),
    k_tile: int = 64,
) -> dict[tuple[int, int], Cuts]:
    """(tile row, tile column) -> the iterations of `k_tile` at which its K is cut. Whole tiles are left out."""
    grid = Grid(-(-m // tile[0]), -(-n // tile[1]), -(-k // k_tile), sm_count, ctas_per_sm)
    if grid.tiles == 0 or grid.iterations == 0 or sm_count < 2:
        return {}
    choice = choose(grid)
    if choice.blocks == 0:
        return {}
    ranges = _block_starts(grid, choice)
    cohorts = _in_cohorts(grid, choice.shared_tiles)
    cuts: dict[tuple[int, int], Cuts] = {}
    for index in range(choice.shared_tiles):
        first = index * grid.iterations
        inside = tuple(start - first for start in ranges if first < start < first + grid.iterations)
        if inside:
            cuts[_place(index, grid, cohorts)] = inside
    return cuts


def choose(grid: Grid) -> Choice:
    """Whether sharing pays, by the cost model of the source."""
    whole_waves, partial = divmod(grid.tiles, grid.sm_count)
    if partial == 0:
        return Choice()
    occupancy = grid.ctas_per_sm
    if whole_waves < occupancy:
        return _best(grid, partial, occupancy - whole_waves, partial_wave=True)
    if occupancy > 1 and whole_waves % occupancy == occupancy - 1:
        found = _best(grid, partial, 1, partial_wave=True)
        if found.blocks:
            return found
    return _best(grid, partial + grid.sm_count, occupancy - (whole_waves - 1) % occupancy, partial_wave=False)


def _best(grid: Grid, shared_tiles: int, waves: int, *, partial_wave: bool) -> Choice:
    """The number of blocks with the largest saving, the largest number among equals; none where all would lose."""
    iterations = shared_tiles * grid.iterations
    fewest = min(grid.sm_count, shared_tiles + 1) if partial_wave else grid.sm_count
    most = min(grid.sm_count * waves, iterations // _FEWEST_ITERATIONS)
    alone = grid.iterations * -(-shared_tiles // grid.sm_count)
    best, score = 0, _NEVER
    for blocks in range(fewest, most + 1):
        saving = alone - _cost(grid, shared_tiles, iterations, blocks)
        if saving >= score:
            best, score = blocks, saving
    return Choice(shared_tiles, best) if score >= 0 and best else Choice()


def _cost(grid: Grid, shared_tiles: int, iterations: int, blocks: int) -> int:
    """Iterations that `blocks` blocks take, and what joining their sums costs, in the source's float32 arithmetic."""
    waves = -(-blocks // grid.sm_count)
    run = -(-iterations // blocks) * waves
    if blocks % shared_tiles == 0:
        peers, skew = blocks // shared_tiles, np.float32(0)
    else:
        peers = -(-blocks // shared_tiles) + 1
        skew = np.float32(0.02) * np.float32(peers) * np.float32(run)
    return run + int(np.float32(2 * waves) + skew + np.float32(2 * peers))


def _block_starts(grid: Grid, choice: Choice) -> list[int]:
    """First iteration of each block, counted through all shared tiles."""
    iterations = choice.shared_tiles * grid.iterations
    blocks = min(choice.blocks, iterations)
    each = iterations // blocks
    longer = iterations - each * blocks
    regions = choice.shared_tiles if blocks > choice.shared_tiles and blocks % choice.shared_tiles == 0 else 1
    in_region, longer_in_region = blocks // regions, longer // regions
    return [
        region * (iterations // regions) + block * each + min(block, longer_in_region)
        for region in range(regions)
        for block in range(in_region)
    ]


def _in_cohorts(grid: Grid, shared_tiles: int) -> bool:
    """Whether tiles are counted through cohorts of 8x4, which large grids are."""
    rows, columns = -(-grid.tiles_m // _COHORT_ROWS), -(-grid.tiles_n // _COHORT_COLUMNS)
    alone = grid.tiles - shared_tiles
    row, column = divmod((shared_tiles - 1) // _COHORT, columns)
    column = columns - 1 if row > 0 else column
    inside = (row + 1) * _COHORT_ROWS < grid.tiles_m and (column + 1) * _COHORT_COLUMNS < grid.tiles_n
    full = np.float32(alone) / np.float32(rows * columns * _COHORT) > np.float32(_COHORT_EFFICIENCY)
    return bool(inside and alone >= grid.sm_count * grid.ctas_per_sm * 2 and full)


def _place(index: int, grid: Grid, cohorts: bool) -> tuple[int, int]:
    if cohorts:
        cohort, within = divmod(index, _COHORT)
        row, column = divmod(cohort, -(-grid.tiles_n // _COHORT_COLUMNS))
        down, across = divmod(within, _COHORT_COLUMNS)
        return row * _COHORT_ROWS + down, column * _COHORT_COLUMNS + across
    if grid.tiles_m < grid.tiles_n:
        across, down = divmod(index, grid.tiles_m)
        return down, across
    return divmod(index, grid.tiles_n)
