#!/usr/bin/env python3
"""The compiler time of a first `./run`, without a cache, against one reference source of this project."""
import os
import shutil
import subprocess
import tempfile

from figures import finish, report, run_cpu

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REFERENCE = os.path.join(ROOT, "src/rule/parse.cc")
MOST = 200  # 400 s on a machine where the reference source takes 2 s


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
    finally:
        shutil.rmtree(folder)
    finish()


main()
