"""Type stubs and examples: mypy reads the packages as its users' mypy would, and every docstring does what it says."""
import doctest
import importlib
import os
import pathlib
import pkgutil
import subprocess
import sys

import pytest
from conftest import BUILD, LIMIT, ROOT

PACKAGES = ("lull", "gpuselect", "gpu_sentinel")
mypy = pytest.mark.skipif(not pathlib.Path("/usr/bin/mypy").exists(), reason="needs Debian's mypy")


def modules():
    for package in PACKAGES:
        yield package
        for found in pkgutil.iter_modules([str(ROOT / "python" / package), str(BUILD / "python" / package)]):
            if found.name != "__main__":
                yield f"{package}.{found.name}"


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Runs mypy or its tools; the checks share what it has read of Python's own library. Errors in what a program imports
    are not shown, as with packages that are installed."""
    folder = tmp_path_factory.mktemp("mypy")
    env = {**os.environ, "MYPYPATH": str(ROOT / "python"), "MYPY_CACHE_DIR": str(folder), "PYTHONPATH": str(BUILD / "python")}

    def run(*words):
        return subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, timeout=LIMIT * 5,
                              env=env, cwd=folder)

    return run


@pytest.mark.parametrize("name", sorted(set(modules())))
def test_examples_in_docstrings(name):
    done = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert done.failed == 0


def test_examples_are_found_in_what_is_made_in_cpp():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert [test for test in finder.find(importlib.import_module("lull._core")) if test.examples]


GOOD = """
from typing import List, Optional

import gpu_sentinel
import gpuselect
import lull

for gpu in lull.status():
    power: Optional[float] = gpu.power
    index: int = gpu.index
    print(gpu.why("power"), index + 1)
with lull.pick(count=2, name="A100", mem_free="20GiB", wait="10m") as picked:
    indices: List[int] = picked.indices

def selector(gpu: gpuselect.GpuInfo) -> bool:
    return "3090" in gpu.name and gpu.util is not None and gpu.util <= 5

chosen: str = gpuselect.gpuselect(count=2, devices=[0, 1], selector=selector)
state: gpu_sentinel.SentinelState = gpu_sentinel.Sentinel(1, 0.8, 1, 0.7, print).state
usage: float = gpu_sentinel.get_gpu_usage(device_ids=None)
"""

BAD = [("lull.status()[0].powr", '"Gpu" has no attribute "powr"'),
       ("lull.status()[0].power + 1", "Unsupported operand types"),  # it may be None
       ("lull.pick(cuont=2)", 'Unexpected keyword argument "cuont"'),
       ("gpuselect.gpuselect(count='2')", "incompatible type"),
       ("gpuselect.gpustatus()[0].utl", 'has no attribute "utl"'),
       ("gpu_sentinel.Sentinel(1, 0.8, 1, 0.7)", 'Missing positional argument "kill_fn"'),
       ("gpu_sentinel.get_gpu_usage()", 'Missing positional argument "device_ids"')]


@mypy
def test_a_program_that_uses_all_three_is_checked_strictly(check, tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    done = check("mypy", "--strict", "--follow-imports=silent", tmp_path / "good.py")
    assert done.returncode == 0, done.stdout


@mypy
def test_mistakes_are_found(check, tmp_path):
    lines = [line for line, _ in BAD]
    (tmp_path / "bad.py").write_text("\n".join(["import gpu_sentinel, gpuselect, lull", *lines]))
    found = check("mypy", "--strict", "--follow-imports=silent", tmp_path / "bad.py").stdout.splitlines()
    for number, (line, said) in enumerate(BAD, start=2):
        assert any(f"bad.py:{number}: error: " in one and said in one for one in found), (line, found)
    assert len([one for one in found if ": error: " in one]) == len(BAD)


@mypy
def test_the_drop_ins_are_strict_themselves(check):
    done = check("mypy", "--strict", "--follow-imports=silent", "-p", "gpuselect", "-p", "gpu_sentinel")
    assert done.returncode == 0, done.stdout


# What pybind11's classes cannot say of themselves, how a class that nobody makes is made, and names for types alone.
NO_MISTAKES = ("metaclass differs", ".__init__ is inconsistent", "Type alias for ")


@mypy
def test_stubs_say_what_is_there(check):
    """stubtest compares them with the module itself."""
    done = check("mypy.stubtest", "lull", "--ignore-missing-stub")
    assert "checked " in done.stdout, done.stdout + done.stderr
    mistakes = [one for one in done.stdout.split("error: ")[1:] if not any(words in one for words in NO_MISTAKES)]
    assert mistakes == []
