#!/usr/bin/env python3
"""The compiler time of a first `./run` and the time from a changed file to its passing unit tests, both without a cache,
against one reference source of this project."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from figures import BUILD, finish, report, run_cpu

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REFERENCE = os.path.join(ROOT, "src/rule/parse.cc")
MOST = 200  # 400 s on a machine where the reference source takes 2 s
CHANGED = ("rule/parse", "engine/judge", "lease/picker", "act/tree", "session/session")
MOST_CHANGED = 15  # 30 s


def changed(env):
    """Seconds from a change of each file to the end of its tests, by file."""
    took = {}
    for name in CHANGED:
        module = name.partition("/")[0]
        program = f"{module}_tests"
        subprocess.run(["ninja", "-C", BUILD, program], check=True, stdout=subprocess.DEVNULL)
        file = pathlib.Path(ROOT, "src", name + "_test.cc")
        suites = set(re.findall(r"^TEST(?:_F|_P)?\((\w+),", file.read_text(), flags=re.M))
        begin = time.monotonic()
        os.utime(os.path.join(ROOT, "src", name + ".cc"))
        subprocess.run(["ninja", "-C", BUILD, "-j2", program], env=env, check=True, stdout=subprocess.DEVNULL)
        tests = ":".join(f"{suite}.*" for suite in sorted(suites))
        subprocess.run([sys.executable, os.path.join(ROOT, "tests/hermetic.py"), os.path.join(BUILD, program), "--gtest_brief=1",
                        f"--gtest_filter={tests}"], check=True, stdout=subprocess.DEVNULL)
        took[name] = time.monotonic() - begin
    return took


def main():
    folder = tempfile.mkdtemp(prefix="lull-build-")
    env = {**os.environ, "CCACHE_DISABLE": "1"}
    try:
        subprocess.run(["cmake", "--preset", "release", "-S", ROOT, "-B", folder], check=True, stdout=subprocess.DEVNULL,
                       cwd=ROOT)
        one = ["g++", "-std=gnu++23", "-O2", "-g1", "-fPIC", "-ffunction-sections", "-fdata-sections",
               f"-I{ROOT}/src", "-c", REFERENCE, "-o", os.path.join(folder, "reference.o")]
        reference = sorted(run_cpu(one, env) for _ in range(3))[1]
        all_of_it = run_cpu(["ninja", "-C", folder, "-j2", "lull", "nvidia-ml"], env)
        ratio = all_of_it / reference
        report("compiler time of a first ./run over that of src/rule/parse.cc", f"{ratio:.0f} x", f"at most {MOST} x",
               ratio <= MOST, f"({all_of_it:.0f} s, {reference:.2f} s)")
        took = changed(env)
        slowest = max(took, key=took.get)
        report("one changed file to its passing unit tests, at most", f"{took[slowest] / reference:.0f} x", f"at most {MOST_CHANGED} x",
               took[slowest] <= MOST_CHANGED * reference, "(" + ", ".join(f"{name} {one:.0f} s" for name, one in took.items()) + ")")
    finally:
        shutil.rmtree(folder)
    finish()


main()
