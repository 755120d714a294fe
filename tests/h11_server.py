"""The command line, its server with the other HTTP parser that uvicorn has."""

import sys
from typing import Any

import uvicorn

from service import cli


class H11Config(uvicorn.Config):
    """uvicorn's configuration, with the parser in Python whatever is asked for."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **{**options, "http": "h11"})


if __name__ == "__main__":
    uvicorn.Config = H11Config  # type: ignore[misc, assignment]
    sys.exit(cli.main())
