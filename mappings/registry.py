"""Every mapping by name: each module of `mappings/catalogue` defines one, found by itself."""

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from mappings import catalogue, processors
from mappings.base import Mapping, Parameters
from mappings.errors import UnknownName
from mappings.processor import Processor

P = TypeVar("P", bound=Parameters)


def discovered(package: ModuleType, base: type[P]) -> dict[str, type[P]]:
    """The classes derived from `base` that the modules of `package` define, by their name."""
    found: dict[str, type[P]] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, base):
                if value.__module__ == module.name:
                    found[str(value.model_fields["name"].default)] = value
    return found


MAPPINGS: dict[str, type[Mapping]] = discovered(catalogue, Mapping)  # type: ignore[type-abstract]
"""The registered mappings by name."""

PROCESSORS: dict[str, type[Processor]] = discovered(processors, Processor)  # type: ignore[type-abstract]
"""The registered logits processors by name."""


def mapping_class(name: str) -> type[Mapping]:
    """The mapping registered under `name`; raises UnknownName."""
    if name not in MAPPINGS:
        known = ", ".join(MAPPINGS)
        raise UnknownName(f"there is no mapping {name[:64]!r}; there are {known}")
    return MAPPINGS[name]
