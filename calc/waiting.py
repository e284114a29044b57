"""The queue of a server: first come, first served, within a priority where requests have one."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any


class Queue:
    """Requests that wait; `head` is the next one, None where nobody waits."""

    def __init__(self, ranked: bool = False) -> None:
        """Start empty; ranked: the least `rank` goes first, and not the first that came."""
        self.ranked = ranked
        self.head: Any = None
        self._line: deque[Any] = deque()
        self._heap: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self._heap) if self.ranked else len(self._line)

    def append(self, request: Any) -> None:
        """Queue a request that has come."""
        if self.ranked:
            heapq.heappush(self._heap, (request.rank, request))
            self.head = self._heap[0][1]
            return
        self._line.append(request)
        if self.head is None:
            self.head = request

    def appendleft(self, request: Any) -> None:
        """Put a request that gave way before all others; with ranks, in its place."""
        if self.ranked:
            self.append(request)
            return
        self._line.appendleft(request)
        self.head = request

    def popleft(self) -> None:
        """Take the head out."""
        if self.ranked:
            heapq.heappop(self._heap)
            self.head = self._heap[0][1] if self._heap else None
            return
        self._line.popleft()
        self.head = self._line[0] if self._line else None
