# SPDX-License-Identifier: Apache-2.0
"""How many calls may be inside at once, and how many bytes they may hold; the next one is told when to come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mmaemu.errors import ServiceBusyError

_LONGEST_WAIT = 60


class Place:
    """One admitted call; `hold` counts its body against what all may hold together."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held = 0

    def hold(self, count: int) -> None:
        """ServiceBusyError where these bytes do not fit beside those of the other calls."""
        admission = self._admission
        # A call that is alone may always go on: its own body has a limit of its own.
        if admission.held_bytes + count > admission.max_held_bytes and admission.held_bytes > self.held:
            raise admission.busy(f"{admission.held_bytes} bytes of waiting calls")
        self.held += count
        admission.held_bytes += count


class Admission:
    """Used from the event loop alone, so its counters need no lock."""

    def __init__(self, workers: int, queue_length: int, max_held_bytes: int) -> None:
        self.workers = workers
        self.places = workers + queue_length
        self.max_held_bytes = max_held_bytes
        self.inside = 0
        self.held_bytes = 0
        self._seconds = 1.0

    @contextmanager
    def enter(self) -> Iterator[Place]:
        """A place for one call. ServiceBusyError where all are taken."""
        if self.inside >= self.places:
            raise self.busy(f"{self.inside} calls inside")
        place = Place(self)
        self.inside += 1
        try:
            yield place
        finally:
            self.inside -= 1
            self.held_bytes -= place.held

    def took(self, seconds: float) -> None:
        """Remember how long calls take, for the estimate in Retry-After."""
        self._seconds += 0.2 * (seconds - self._seconds)

    def busy(self, got: str) -> ServiceBusyError:
        error = ServiceBusyError.because(
            "queue", got=got, wanted=f"at most {self.places}, and {self.max_held_bytes} bytes", hint="Come back later."
        )
        wait = self._seconds * self.inside / self.workers
        error.retry_after = max(1, min(_LONGEST_WAIT, round(wait)))
        return error
