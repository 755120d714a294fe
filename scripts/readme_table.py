"""Rewrites the generated parts of README.md: the tables of mappings, processors and settings."""

from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase
from pydantic_core import PydanticUndefined

from schemas.description import (
    MappingDescription,
    ParameterDescription,
    ProcessorDescription,
    describe_all,
    describe_all_processors,
)
from service.runtime import Runtime
from service.settings import Settings, flag, shown

README = Path(__file__).parents[1] / "README.md"


def rendered(text: str) -> str:
    """The README with every generated part as it should be."""
    tables = {
        "mappings": mapping_table(),
        "processors": processor_table(),
        "settings": settings_table(),
        "metrics": metrics_table(),
    }
    for name, lines in tables.items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        table = "\n".join([start, "", *lines, "", end])
        before, opened, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"README.md should hold {start} and then {end}")
        text = before + table + after
    return text


def mapping_table() -> list[str]:
    """One line a registered mapping."""
    lines = ["| name | what it is | its own parameters (default; range) |", "|---|---|---|"]
    return lines + [_line(mapping) for mapping in describe_all().mappings]


def processor_table() -> list[str]:
    """One line a registered processor."""
    lines = ["| name | what it does | its parameters (default; range) |", "|---|---|---|"]
    return lines + [_line(processor) for processor in describe_all_processors().processors]


def _line(described: MappingDescription | ProcessorDescription) -> str:
    summary = described.summary.partition(": ")[2] or described.summary
    own = [_parameter(entry) for entry in described.parameters if entry.name != "temperature"]
    return f"| `{described.name}` | {_cell(summary)} | {_cell('; '.join(own))} |"


def _parameter(entry: ParameterDescription) -> str:
    if entry.choices and entry.choices[0] == entry.default:
        return f"`{entry.name}` ({_span(entry)})"
    if entry.required:
        default = "required"
    elif entry.default is None:
        default = "off"
    else:
        default = str(entry.default).lower() if entry.type == "boolean" else f"{entry.default}"
    span = _span(entry)
    return f"`{entry.name}` ({default}{'; ' + span if span else ''})"


def _span(entry: ParameterDescription) -> str:
    if entry.choices:
        return " or ".join(f"`{choice}`" for choice in entry.choices)
    low, high = entry.minimum, entry.maximum
    parts = [
        f"≥ {low:g}" if low is not None else "",
        f"> {entry.exclusive_minimum:g}" if entry.exclusive_minimum is not None else "",
        f"≤ {high:g}" if high is not None and high < 1e6 else "",
        f"< {entry.exclusive_maximum:g}" if (entry.exclusive_maximum or 1e7) < 1e6 else "",
        "even" if entry.multiple_of == 2 else "",
    ]
    return ", ".join(part for part in parts if part)


def settings_table() -> list[str]:
    """One line a setting of the server."""
    lines = ["| flag of `probmap serve` | default | what it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is PydanticUndefined else f"`{shown(field.default)}`"
        meaning = " ".join((field.description or "").split())
        lines.append(f"| `{flag(name)}` | {default} | {_cell(meaning)} |")
    return lines


def metrics_table() -> list[str]:
    """One line a metric of the server's own."""
    lines = ["| metric | kind | labels | what it tells |", "|---|---|---|---|"]
    metrics = Runtime(Settings(device="cpu")).metrics
    observed = {
        collector._name: collector._labelnames
        for collector in vars(metrics).values()
        if isinstance(collector, MetricWrapperBase)
    }
    for family in metrics.registry.collect():
        if not family.name.startswith("probmap_"):
            continue
        known = observed.get(family.name, getattr(family, "_labelnames", ()))
        named = ", ".join(f"`{name}`" for name in known)
        suffix = "_total" if family.type == "counter" else ""
        lines.append(
            f"| `{family.name}{suffix}` | {family.type} | {named} | {_cell(family.documentation)} |"
        )
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    README.write_text(rendered(README.read_text(encoding="utf-8")), encoding="utf-8")
