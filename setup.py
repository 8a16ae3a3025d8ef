"""Builds lull with CMake and puts what it made into the wheel; pyproject.toml says the rest.

LULL_BUILD_DIR names a folder in which lull is built already; it is taken as it is. Otherwise the release is built in
build/wheel-TAG; where there is ccache it has what other builds compiled.
"""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
TAG = sysconfig.get_config_var("SOABI")
SCRATCH = tempfile.mkdtemp(prefix="lull-wheel-")  # so that nothing is left in the source folder
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


def version() -> str:
    return re.search(r"^project\(lull VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def built() -> pathlib.Path:
    """The folder of a finished build."""
    given = os.environ.get("LULL_BUILD_DIR")
    folder = pathlib.Path(given).resolve() if given else ROOT / "build" / f"wheel-{TAG}"
    if not given:
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        generator = [] if shutil.which("ninja") else ["-G", "Unix Makefiles"]
        run("cmake", "--preset", "release", "-S", ROOT, "-B", folder, *generator, "-DLULL_SERVE=OFF", f"-DPython3_EXECUTABLE={sys.executable}")
        run("cmake", "--build", folder, "--parallel", jobs)
    for needed in (folder / "lull", folder / "sim/libnvidia-ml.so.1"):
        if not needed.exists():
            sys.exit(f"{needed} is not there: LULL_BUILD_DIR must name a folder in which lull is built")
    if not modules_of(folder):
        sys.exit(f"{folder}/python has no module for this Python ({TAG}): its headers or pybind11-dev were missing")
    return folder


def modules_of(folder: pathlib.Path) -> "list[pathlib.Path]":
    return list((folder / "python/lull").glob(f"*.{TAG}.so"))


def run(*command: object) -> None:
    try:
        subprocess.run([str(word) for word in command], check=True)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is needed to build lull, and is not installed")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{command[0]} failed with status {error.returncode}")


def stripped(source: pathlib.Path, target: pathlib.Path) -> None:
    """A copy without what only a debugger reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    if shutil.which("strip"):
        run("strip", "--strip-unneeded", target)


class Build(build_py):
    """Python files as ever, and beside them what CMake made."""

    def run(self) -> None:
        if getattr(self, "editable_mode", False):
            sys.exit("lull has no editable install: put build/release/python on PYTHONPATH instead")
        folder = built()
        super().run()
        for module in modules_of(folder):
            stripped(module, pathlib.Path(self.build_lib) / "lull" / module.name)
        self.distribution.data_files = data_files(folder)


def data_files(folder: pathlib.Path) -> "list[tuple[str, list[str]]]":
    """The program, its library and the files that become it, each where an installed lull has them."""
    program, library = pathlib.Path(SCRATCH) / "bin/lull", pathlib.Path(SCRATCH) / "sim/libnvidia-ml.so.1"
    stripped(folder / "lull", program)
    stripped(folder / "sim/libnvidia-ml.so.1", library)
    # A file gpu_sentinel.py beside the script gpu_sentinel would be what that script imports instead of the package.
    packages = set(find_packages("python"))
    scripts = [str(file) for file in folder.glob("gpu_*.py") if file.stem not in packages]
    return [("bin", [str(program), *scripts]), ("lib/lull/sim", [str(library)])]


class Platform(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    distclass=Platform,
    cmdclass={"build_py": Build},
    package_dir={"": "python"},
    packages=find_packages("python"),
    package_data={"": ["py.typed", "*.pyi"]},
    options={"build": {"build_base": SCRATCH}, "egg_info": {"egg_base": SCRATCH}},
    zip_safe=False,
)
