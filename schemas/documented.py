"""Types that pass what is already read, and show in the documentation what that may be."""

from collections.abc import Mapping as Dict
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema
from torch import Tensor

from mappings.parameters import Parameters


class Registered:
    """Lets what is already read pass; documents everything that is registered."""

    def __init__(self, base: type[Parameters], registry: Dict[str, type[Parameters]]) -> None:
        self.base = base
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(self.base)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        union: Any = reduce(or_, self.registry.values())
        if len(self.registry) > 1:
            union = Annotated[union, Field(discriminator="name")]
        objects = handler(TypeAdapter(union).core_schema)
        return {"anyOf": [{"type": "string", "enum": list(self.registry)}, objects]}


class Rows:
    """Lets a tensor that is already read pass; documents it as rows of numbers."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(Tensor)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        row = {"type": "array", "items": {"type": "number"}}
        return {"anyOf": [row, {"type": "array", "items": row}]}
