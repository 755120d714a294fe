"""Every mapping by name: each module of `mappings/catalogue` defines one, found by itself."""

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import TypeVar

from mappings import base, catalogue, processors
from mappings.errors import UnknownName
from mappings.parameters import Parameters
from mappings.processor import Processor

P = TypeVar("P", bound=Parameters)


def discovered(package: ModuleType, kind: type[P]) -> dict[str, type[P]]:
    """The classes derived from `kind` that the modules of `package` define, by their name."""
    found: dict[str, type[P]] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, kind):
                if value.__module__ == module.name:
                    found[str(value.model_fields["name"].default)] = value
    return found


# mypy wants a class to search for that can be made; an abstract one serves as well here.
MAPPINGS: dict[str, type[base.Mapping]] = discovered(catalogue, base.Mapping)  # type: ignore[type-abstract]
"""The registered mappings by name."""

PROCESSORS: dict[str, type[Processor]] = discovered(processors, Processor)
"""The registered logits processors by name."""


def registered(registry: Mapping[str, type[P]], name: str) -> type[P]:
    """What is registered under `name`; raises UnknownName."""
    if name not in registry:
        kind = "mapping" if registry is MAPPINGS else "processor"
        raise UnknownName(f"there is no {kind} {name[:64]!r}; there are {', '.join(registry)}")
    return registry[name]
