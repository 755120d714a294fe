"""Where in a request a value belongs that came beside it, under a name.

It is named like the field it stands for: `targets`, `seed`, or `alpha`, which is the mapping's;
where that is not enough, like its place in the request: `mapping.seed`, `processors.0.ids`,
`jacobian.vector`.
"""

from typing import Any

from schemas.errors import MAX_NAME, InvalidRequest, Loc, path, shortened
from schemas.request import Request

Fields = dict[str, Any]


def place_of(fields: Fields, name: str, model: type[Request]) -> tuple[Fields, Loc]:
    """The object that a value belongs to, and where in the request that puts the value.

    Args:
        fields: the request's, without logits; what stands beside a mapping's name may move.
        name: the value's.
        model: the kind of request.

    Raises:
        InvalidRequest: the name stands for no place, or for one that is taken.
    """
    holder, loc = _place(fields, name, model)
    if loc[-1] in holder:
        raise InvalidRequest.at(loc, f"{path(loc)} is given twice; give it once")
    return holder, loc


def _place(fields: Fields, name: str, model: type[Request]) -> tuple[Fields, Loc]:
    mapping = fields.get("mapping")
    match name.split("."):
        case [field] if isinstance(mapping, dict) and field not in model.model_fields:
            return mapping, ("mapping", field[:MAX_NAME])
        case [field]:
            return fields, (field[:MAX_NAME],)
        case ["mapping", field] if isinstance(mapping, str):
            # The fields that stand beside its name go with it.
            beside = [other for other in fields if other not in model.model_fields]
            moved = {other: fields.pop(other) for other in beside}
            fields["mapping"] = {**moved, "name": mapping}
            return fields["mapping"], ("mapping", field[:MAX_NAME])
        case ["mapping", field] if isinstance(mapping, dict):
            return mapping, ("mapping", field[:MAX_NAME])
        case ["jacobian", "vector"] if isinstance(fields.get("jacobian"), dict):
            return fields["jacobian"], ("jacobian", "vector")
        case ["processors", place, field] if place.isascii() and place.isdecimal():
            chain = fields.get("processors")
            if isinstance(chain, list) and len(place) < MAX_NAME and int(place) < len(chain):
                number = int(place)
                if isinstance(chain[number], str):
                    chain[number] = {"name": chain[number]}
                if isinstance(chain[number], dict):
                    return chain[number], ("processors", number, field[:MAX_NAME])
    raise InvalidRequest.at(
        (name[:MAX_NAME],),
        f"{shortened(name)} stands for nothing in the request; name it like a field, such as "
        '"alpha", or like a place that the request has, such as "processors.0.ids"',
    )
