"""No module imports itself by way of others, imports under ``TYPE_CHECKING`` included.

``BASELINE`` has the size of the circles that are left, by their first module; they may only shrink.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gateway", "adapters", "features", "storage_adapters", "console", "pipeline")
BASELINE: dict[str, int] = {}


def modules() -> dict[str, Path]:
    """Return the modules of the tree by their dotted names."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the tree that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                inside = f"{node.module}.{one.name}"
                found.add(inside if inside in known else node.module)
    return found & known.keys()


def circles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the sets of modules that reach each other (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    for root in sorted(graph):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        path.append(root)
        work = [(root, iter(sorted(graph[root])))]
        while work:
            at, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in path:
                    low[at] = min(low[at], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    members = path[path.index(at) :]
                    del path[path.index(at) :]
                    if len(members) > 1:
                        yield sorted(members)


def test_no_module_is_in_a_circle() -> None:
    known = modules()
    graph = {name: imports_of(path, known) - {name} for name, path in known.items()}
    found = {one[0]: one for one in circles(graph)}
    assert {name: len(one) for name, one in found.items()} == BASELINE, found
