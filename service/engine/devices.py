"""The devices that a setting names."""

import re

import torch

from service.settings import DEVICES


def devices(choice: str) -> list[torch.device]:
    """The devices that a choice such as auto, cpu or cuda:0,cuda:1 means.

    Raises:
        ValueError: there is no such device.
    """
    if not re.match(DEVICES, choice):
        raise ValueError(f"{choice!r} is no device; give auto, cpu, cuda or cuda:0,cuda:1")
    if choice == "auto":
        choice = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = [torch.device(name) for name in choice.split(",")]
    for device in chosen:
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise ValueError(f"there is no device {device}: torch finds {count} CUDA devices")
    return chosen
