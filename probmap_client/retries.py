"""When to try again."""

from dataclasses import dataclass

from probmap_client.errors import Disconnected, Overloaded, ProbmapError

PASSING = (Disconnected, Overloaded)
"""The failures that another try may not meet."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and when a request is tried again.

    Every request is a pure function of what it holds, so each may be sent twice. It is, when the
    server has no room (429, 503) or the connection is lost, and never when it is refused for
    what it says, or the answer takes too long.

    Attributes:
        tries: how often a request is sent at most (a count); 1 never tries again.
        first_wait: before the second try (seconds); it doubles from try to try.
        longest_wait: before any try, whatever the server's Retry-After says (seconds).
    """

    tries: int = 4
    first_wait: float = 0.1
    longest_wait: float = 10.0

    def wait(self, failure: ProbmapError, tried: int, chance: float) -> float | None:
        """How long to wait before the next try (seconds); None: there is none.

        Args:
            failure: of the last try.
            tried: how often the request was sent (a count).
            chance: in [0, 1), so that callers refused together do not come back together.
        """
        if tried >= self.tries or not isinstance(failure, PASSING):
            return None
        backoff = self.first_wait * 2.0 ** (tried - 1) * (0.5 + 0.5 * chance)
        asked = failure.retry_after if isinstance(failure, Overloaded) else None
        # Not before the server's time, and not all callers at that very moment.
        return min(self.longest_wait, backoff + (asked or 0.0))
