"""What tests give the processes of Ray: nothing to look up, no more than this machine has."""

import importlib.util
import os

import pytest

from server import ROOT

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Where /dev/shm is small, Ray would refuse the disk.
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "service.lost_answers:middlewares",
}

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: it has no build for this platform or this Python",
)
