"""The query of a stream or a WebSocket: in which order it is answered."""

from starlette.datastructures import QueryParams

from schemas.errors import InvalidRequest

MAX_NAME = 64
"""Characters of an unknown name that an error repeats (a count)."""


def check_query(query: QueryParams) -> None:
    """Raises InvalidRequest when the query has anything but an order."""
    for name in query:
        if name != "order":
            loc = ("query", name[:MAX_NAME])
            raise InvalidRequest.at(loc, "the query takes order and nothing else")


def is_in_order(query: QueryParams) -> bool:
    """Whether the answers come in the order of the requests, or as they are ready.

    Raises:
        InvalidRequest: the query says neither.
    """
    given = query.get("order", "input")
    if given not in ("input", "completion"):
        raise InvalidRequest.at(("query", "order"), "order should be input or completion")
    return given == "input"
