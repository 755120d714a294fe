"""Admission: bounds what all requests together hold, whatever the endpoint."""

import asyncio
import math
import time
from collections import Counter
from typing import Literal

from mappings.errors import ProbmapError
from service.errors import NotReady, Overloaded
from service.settings import Settings, raises

MAX_RETRY_AFTER = 60
"""The longest wait that is advised (seconds)."""

Resource = Literal["bytes", "rows"]

SMOOTHING = 0.1
"""The weight of the newest request in the mean time for which rows are held."""


class Admission:
    """Hands out permits, and refuses at once when the server holds all it may.

    To be used on the event loop alone.

    Attributes:
        held_bytes: bodies, logits and answers that requests hold now (bytes).
        held_rows: rows of logits that wait or are being computed (a count).
        permits: requests that have a permit (a count).
        refused: how many requests were refused, by reason.
        closing: set once nobody is let in any more.
    """

    def __init__(self, settings: Settings) -> None:
        self.limits: dict[Resource, int] = {
            "bytes": settings.max_inflight_bytes,
            "rows": settings.max_inflight_rows,
        }
        self.held_bytes = 0
        self.held_rows = 0
        self.permits = 0
        self.closing = asyncio.Event()
        self.refused: Counter[str] = Counter()
        self._usual_seconds = 0.0
        self._freed = asyncio.Event()

    def enter(self) -> "Permit":
        """A permit, which holds nothing yet; raises NotReady when the server is stopping."""
        if self.closing.is_set():
            raise self.refusal("draining", NotReady("the server is stopping; ask another one"))
        self.permits += 1
        return Permit(self)

    def close(self) -> None:
        """Lets nobody in any more."""
        self.closing.set()

    def refusal(self, reason: str, error: ProbmapError) -> ProbmapError:
        """The error of a refusal, counted."""
        self.refused[reason] += 1
        return error

    def overloaded(self, resource: Resource) -> ProbmapError:
        """The error of a budget that is used up."""
        wait = min(max(1, math.ceil(self._usual_seconds)), MAX_RETRY_AFTER)
        message = (
            f"the server is busy: requests hold all of its {self.limits[resource]:,} {resource} "
            f"({raises(f'max_inflight_{resource}')}); try again in {wait} s"
        )
        return self.refusal(resource, Overloaded(message, wait))

    def observe(self, seconds: float) -> None:
        """Notes for how long rows were held."""
        self._usual_seconds += SMOOTHING * (seconds - self._usual_seconds)

    def change(self, size: int, rows: int) -> None:
        """Adds to what is held; less than 0 where it is given back."""
        self.held_bytes += size
        self.held_rows += rows
        if size < 0 or rows < 0:
            self._freed.set()

    async def freed(self) -> None:
        """Waits until something is given back."""
        self._freed.clear()
        await self._freed.wait()


class Permit:
    """What one request holds, from its first byte until its answer is sent."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._is_held = True
        self._rows_since = 0.0
        self.bytes = 0
        self.rows = 0

    def hold(self, size: int, rows: int = 0) -> None:
        """Sets what the request holds now.

        A request that is alone may hold anything: its own limits say how much.

        Args:
            size: bytes.
            rows: rows of logits (a count).

        Raises:
            Overloaded: others hold too much for it.
        """
        reason = self._shortage(size, rows)
        if reason is not None:
            raise self._admission.overloaded(reason)
        self._set(size, rows)

    def expect(self, size: int) -> None:
        """Raises Overloaded when the request could not hold so many bytes now."""
        reason = self._shortage(size, 0)
        if reason is not None:
            raise self._admission.overloaded(reason)

    async def hold_when_fits(self, size: int) -> None:
        """Holds so many bytes as soon as others leave room for them."""
        while self._shortage(size, 0) is not None:
            await self._admission.freed()
        self._set(size, 0)

    def _shortage(self, size: int, rows: int) -> Resource | None:
        """What there is too little of for a request to hold so much."""
        admission = self._admission
        other_bytes = admission.held_bytes - self.bytes
        other_rows = admission.held_rows - self.rows
        if size > self.bytes and other_bytes and other_bytes + size > admission.limits["bytes"]:
            return "bytes"
        # No room for a single row: that is known before the body is read for how many it has.
        wanted = max(rows, 1)
        if wanted > self.rows and other_rows and other_rows + wanted > admission.limits["rows"]:
            return "rows"
        return None

    def settle(self, size: int) -> None:
        """Sets what a computed request still holds: no rows, and whatever its answer takes."""
        self._set(size, 0)

    def release(self) -> None:
        """Gives the permit back; once is enough."""
        if self._is_held:
            self._is_held = False
            self._set(0, 0)
            self._admission.permits -= 1

    def _set(self, size: int, rows: int) -> None:
        now = time.monotonic()
        if rows and not self.rows:
            self._rows_since = now
        elif self.rows and not rows:
            self._admission.observe(now - self._rows_since)
        self._admission.change(size - self.bytes, rows - self.rows)
        self.bytes, self.rows = size, rows
