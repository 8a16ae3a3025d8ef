#!/usr/bin/env python3
"""Fails if a file includes a header from a module that its own module may not see, or a document names a file that is gone.

src/modules.txt says who may see whom; an edge that nobody uses is refused too, so that it stays as tight as the house is.
"""
import pathlib
import re
import sys

# Third-party headers stay out of our headers: each costs every includer its compile time. (Tests include them anyway.)
OURS_ONLY = re.compile(r'^#include <(fmt|CLI|toml\+\+|nlohmann|pybind11|gtest|rapidcheck|benchmark)\b', re.M)


def module_of(path: pathlib.Path) -> str:
    parts = path.parts
    return parts[0] if parts[0] in ("sim", "python") else parts[1]


def read_modules(path: pathlib.Path) -> dict:
    """What each module may include, itself left out. A module sees only modules below it, so there are no circles."""
    may = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            module, _, seen = line.partition(":")
            sees = set(may) if seen.strip() == "*" else set(seen.split())
            if sees - set(may):
                sys.exit(f"{path}: {module} sees {', '.join(sorted(sees - set(may)))}, which is no module below it")
            may[module] = sees
    return may


def missing_files():
    """(document, name) of each `folder/file.ext` or `file.ext` that a document for developers names in vain."""
    there = [f for top in ("src", "sim", "python", "tests", "tools", "docs", "man", "examples", "fuzz", "bench", "packaging")
             for f in pathlib.Path(top).rglob("*") if f.is_file()]
    names = {f.name for f in there} | {f.name for f in pathlib.Path(".").iterdir()}
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`([\w./-]+\.(?:h|cc|py|cmake|txt|scd|toml|js))`", pathlib.Path(document).read_text()):
            found = pathlib.Path(name).exists() or pathlib.Path("src", name).exists() if "/" in name else name in names
            if not found and "NAME" not in name:
                yield document, name


def missing_tests():
    """Tests that docs/guarantees.md names in vain."""
    tests = [f for top in ("src", "sim", "tests", "python") for pattern in ("*_test.cc", "*_test.h", "test_*.py")
             for f in pathlib.Path(top).rglob(pattern)]
    there = set()
    for f in tests:
        text = f.read_text()
        there |= set(re.findall(r"^def (test_\w+)", text, re.M))
        there |= {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text, re.M)}
    for name in re.findall(r"`(test_\w+|[A-Z]\w+\.\w+)`", pathlib.Path("docs/guarantees.md").read_text()):
        if name not in there and name != "Suite.Name":
            yield name


def main() -> int:
    bad = 0
    for name in missing_tests():
        print(f"docs/guarantees.md: names the test {name}, which is not there")
        bad = 1
    for document, name in missing_files():
        print(f"{document}: names {name}, which is not there")
        bad = 1
    modules = pathlib.Path("src/modules.txt")
    may = read_modules(modules)
    used = {module: set() for module in may}
    files = [f for top in ("src", "sim", "python/src") for f in pathlib.Path(top).rglob("*.[hc]*")]
    for f in files:
        me, text = module_of(f), f.read_text()
        test = f.stem.endswith("_test")
        if me not in may:
            print(f"{f}: stands in {me}/, which is no module: {modules} has no line for it")
            bad = 1
            continue
        for inc in re.findall(r'^#include "([\w-]+)/', text, re.M):
            if inc == "tests" and "test" in f.stem:  # what all unit tests share
                continue
            if inc not in may:
                print(f"{f}: includes {inc}/, which is no module")
                bad = 1
            elif test or inc == me:
                continue
            elif inc in may[me]:
                used[me].add(inc)
            else:
                print(f"{f}: {me}/ may not include {inc}/")
                bad = 1
        if f.suffix == ".h" and not test and OURS_ONLY.search(text):
            print(f"{f}: a third-party header in a header of ours")
            bad = 1
        if f.suffix == ".h" and not re.match(r"#pragma once\n//", text):
            print(f"{f}: a header begins with '#pragma once' and a comment that says what it is")
            bad = 1
    for module, sees in may.items():
        for unused in sorted(sees - used[module] if module != "cli" else ()):
            print(f"{modules}: {module}/ includes nothing of {unused}/: take it out")
            bad = 1
    print(f"layers: {len(files)} files looked at, {'broken' if bad else 'all in order'}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
