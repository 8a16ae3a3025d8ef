#!/usr/bin/env python3
"""Fails if a file includes a header from a room that its own room may not see.

The table is the house rule of ARCHITECTURE.md; `sim` may be seen by the cli alone.
"""
import pathlib
import re
import sys

MAY = {
    "base": "",
    "gpu": "base",
    "nvml": "base",
    "rule": "base gpu",
    "sense": "base gpu nvml",
    "act": "base gpu rule loop",
    "lease": "base gpu rule",
    "trace": "base gpu",
    "engine": "base gpu rule",
    "replay": "base gpu rule trace",
    "loop": "base",
    "view": "base gpu rule engine act",
    "compat": "base gpu rule engine view",
    "jobs": "base gpu engine sense act lease",
    "session": "base gpu rule engine sense jobs act loop view",
    "cli": "*",
    "sim": "base nvml trace",
}
# Third-party headers stay out of our headers: each costs every includer its compile time. (Tests include them anyway.)
OURS_ONLY = re.compile(r'^#include <(fmt|CLI|toml\+\+|nlohmann|pybind11|gtest|rapidcheck|benchmark)\b', re.M)


def room_of(path: pathlib.Path) -> str:
    parts = path.parts
    return "sim" if parts[0] == "sim" else parts[1]


def main() -> int:
    bad = 0
    files = [f for top in ("src", "sim") for f in pathlib.Path(top).rglob("*.[hc]*")]
    for f in files:
        me, text = room_of(f), f.read_text()
        test = f.stem.endswith("_test")
        for inc in re.findall(r'^#include "([\w-]+)/', text, re.M):
            if inc not in MAY:
                print(f"{f}: includes {inc}/, which is no room")
                bad = 1
            elif MAY[me] != "*" and not test and inc != me and inc not in MAY[me].split():
                print(f"{f}: {me}/ may not include {inc}/")
                bad = 1
        if f.suffix == ".h" and not test and OURS_ONLY.search(text):
            print(f"{f}: a third-party header in a header of ours")
            bad = 1
        if f.suffix == ".h" and not re.match(r"#pragma once\n//", text):
            print(f"{f}: a header begins with '#pragma once' and a comment that says what it is")
            bad = 1
    print(f"layers: {len(files)} files looked at, {'broken' if bad else 'all in order'}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
