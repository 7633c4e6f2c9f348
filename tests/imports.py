"""What the modules of packages import of one another, read from their source."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """A module, and the dotted names that it imports."""

    name: str
    on_load: frozenset[str]
    """What is imported when the module is."""
    in_functions: frozenset[str]
    """What is imported when one of its functions is called."""
    for_types: frozenset[str]
    """What is imported for type checkers alone."""

    @property
    def imported(self) -> frozenset[str]:
        """All of it that is ever loaded."""
        return self.on_load | self.in_functions


@dataclass(frozen=True)
class Imports:
    """Some packages below one folder."""

    root: Path
    packages: tuple[str, ...]
    modules: dict[str, Module] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", dict(self._read()))

    def _read(self) -> Iterator[tuple[str, Module]]:
        paths = [path for package in self.packages for path in (self.root / package).rglob("*.py")]
        parts = {path: path.relative_to(self.root).with_suffix("").parts for path in paths}
        for path, name in parts.items():
            module = ".".join(name[:-1] if name[-1] == "__init__" else name)
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            found = list(_imports(tree.body, "on_load"))
            kinds = ("on_load", "in_functions", "for_types")
            yield module, Module(module, *(frozenset(name for name, at in found if at == kind) for kind in kinds))

    def find(self, imported: str) -> str | None:
        """The module of these packages that an import of this name is about; None if it is not one of them."""
        return max(_within(imported) & self.modules.keys(), key=len, default=None)

    def of(self, module: str, names: Iterable[str]) -> set[str]:
        """The modules of these packages that imports of these names execute, but for the packages around a module.

        An import of ``a.b`` executes ``a`` before, unless it is being executed already.
        """
        about = {found for found in map(self.find, names) if found}
        around = {package for found in about for package in _within(found)} - _within(module)
        return (about | around) - {module}

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """For every module those that it imports, whenever it does."""
        return {name: self.of(name, module.imported) for name, module in self.modules.items()}

    @cached_property
    def graph_with_types(self) -> dict[str, set[str]]:
        """As ``graph``, with what is imported for type checkers alone."""
        return {name: self.graph[name] | self.of(name, module.for_types) for name, module in self.modules.items()}

    @cached_property
    def graph_on_load(self) -> dict[str, set[str]]:
        """For every module those that are imported when it is, directly."""
        return {name: self.of(name, module.on_load) for name, module in self.modules.items()}

    def loaded_with(self, module: str) -> set[str]:
        """A module and all others that are imported when it is."""
        loaded, new = set[str](), {module}
        while new:
            loaded |= new
            new = {after for before in new for after in self.graph_on_load[before]} - loaded
        return loaded

    def libraries_of(self, module: str) -> set[str]:
        """The third-party packages, and those of Python, that are imported when a module is."""
        names = {name.split(".")[0] for part in self.loaded_with(module) for name in self.modules[part].on_load}
        return names - set(self.packages)

    def circle(self) -> list[str]:
        """Modules that import one another in a circle, the first again at the end; [] if there is none."""
        try:
            TopologicalSorter(self.graph_with_types).prepare()
        except CycleError as error:
            found: list[str] = error.args[1]
            return found
        return []


def _within(name: str) -> set[str]:
    """A dotted name and all that it lies in."""
    parts = name.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def _imports(nodes: Iterable[ast.AST], at: str) -> Iterator[tuple[str, str]]:
    """The dotted name of everything that is imported, and the field of ``Module`` that it belongs to."""
    for node in nodes:
        match node:
            case ast.Import():
                yield from ((alias.name, at) for alias in node.names)
            case ast.ImportFrom():
                assert not node.level, "imports are absolute"
                yield from ((f"{node.module}.{alias.name}", at) for alias in node.names)
            case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
                yield from _imports(node.body, "for_types")
                yield from _imports(node.orelse, at)
            case _:
                function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from _imports(ast.iter_child_nodes(node), "in_functions" if function else at)
