"""Which probmap this is."""

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The installed version; 0 when run from a checkout that is not installed."""
    try:
        return version("probmap")
    except PackageNotFoundError:
        return "0"
