"""Imports point one way, and nothing happens at import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = ("mappings", "schemas", "service", "probmap_client")

MAY_IMPORT = {
    "mappings": {"mappings"},
    "schemas": {"mappings", "schemas"},
    "service": {"mappings", "schemas", "service", "probmap_client"},
    "probmap_client": {"probmap_client"},
}
"""The packages of this repository that each may import."""

OUTSIDE = {
    "mappings": {"torch", "pydantic", "numpy", "triton"},
    "schemas": {"torch", "pydantic", "pydantic_core", "numpy"},
    "probmap_client": {"httpx", "numpy"},
}
"""The installed packages that each may import; the service may import any."""

NOT_IN_THE_CORE = {"os", "time", "datetime", "asyncio", "socket", "random", "threading", "logging"}
"""Parts of the standard library that would bring environment, clock or network into it."""

MODULES = [
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in sorted(ROOT.glob(f"{package}/**/*.py"))
]
each_module = pytest.mark.parametrize("module", MODULES, ids=str)


def imported(module: Path) -> Iterator[str]:
    """Every module that a module imports, wherever in it the import stands."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module)


@each_module
def test_imports_point_one_way(module: Path) -> None:
    package = module.parts[0]
    roots = {name.partition(".")[0] for name in imported(module)}
    assert roots & {*PACKAGES, "tests"} <= MAY_IMPORT[package]


@each_module
def test_only_known_libraries_are_imported(module: Path) -> None:
    package = module.parts[0]
    roots = {name.partition(".")[0] for name in imported(module)}
    outside = roots - set(sys.stdlib_module_names) - set(PACKAGES)
    if package in OUTSIDE:
        assert outside <= OUTSIDE[package]
    if package == "mappings":
        assert not roots & NOT_IN_THE_CORE


EFFECTS = {
    "open", "print", "system", "run", "Popen", "start", "connect", "listen", "getenv", "seed",
    "manual_seed", "set_num_threads", "basicConfig", "create_app", "Settings", "mkdir",
    "write_text", "write_bytes", "unlink", "simplefilter", "filterwarnings", "sleep", "Thread",
    "set_default_dtype", "set_default_device",
}  # fmt: skip
"""What must not be called while a module is imported."""


def top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything that runs when a module is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults]
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


@each_module
def test_nothing_happens_at_import(module: Path) -> None:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    for node in top_level(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            assert called not in EFFECTS, f"line {node.lineno} calls {called}"
        assert not isinstance(node, ast.While | ast.With | ast.Try), f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) != "os.environ", f"line {node.lineno}"


SILENT = """
import socket, sys, threading
def refuse(*_):
    raise AssertionError("a socket at import")
socket.socket.connect = socket.socket.bind = refuse
import mappings.registry, mappings.evaluate, schemas.request, service.app, service.cli
import probmap_client
assert threading.active_count() == 1, threading.enumerate()
"""


def test_importing_everything_starts_no_thread_opens_no_socket_and_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SILENT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is(package: str) -> None:
    for module in MODULES:
        if module.parts[0] == package and module.name != "__init__.py":
            tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
            assert ast.get_docstring(tree), f"{module} has no docstring"


@each_module
def test_no_module_is_longer_than_a_few_screens(module: Path) -> None:
    assert len((ROOT / module).read_text(encoding="utf-8").splitlines()) <= 400


def test_no_module_is_a_drawer_for_everything() -> None:
    for module in MODULES:
        assert module.stem not in {"utils", "helpers", "common", "manager", "misc"}
