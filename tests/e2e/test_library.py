"""liblull as others get it: installed into a folder of its own, and used from there.

The example is built against the installed files alone; that it reads GPUs, judges and takes a lease is seen on
simulated GPUs.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import LIMIT, ROOT, clean_environment, end, read_until

BUILD_LIMIT = LIMIT * 4
# What a header of ours may include beside the C++ library: the system's own.
SYSTEM = re.compile(r"(sys/\w+|linux/\w+|dirent|fcntl|poll|sched|signal|termios|time|unistd)\.h")
THIRD_PARTY = re.compile(r"\b(fmt|nlohmann|CLI|toml|pybind11)::|\bnamespace (fmt|nlohmann|CLI|toml)\b|\bZSTD_\w+|\bz_stream\b")


def call(*command, **kwargs) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=BUILD_LIMIT,
                          env=clean_environment(), **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def built() -> pathlib.Path:
    """The build itself, not the copy of its programs that root's tests run."""
    return (ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev")).resolve()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if re.search(r"^CMAKE_CXX_FLAGS:.*(-fsanitize|--coverage)", (built() / "CMakeCache.txt").read_text(), re.M):
        pytest.skip("a library with a sanitizer or counters in it is not what others get")
    folder = tmp_path_factory.mktemp("lull-prefix")
    call("cmake", "--install", built(), "--prefix", folder)
    yield folder
    shutil.rmtree(folder)  # some tens of megabytes


@pytest.fixture(scope="module")
def headers(prefix):
    found = sorted((prefix / "include").rglob("*.h"))
    assert len(found) > 50
    return found


@pytest.fixture(scope="module")
def example(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    call("cmake", "-S", ROOT / "examples", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
         "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wshadow -Wconversion -Werror", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
    call("cmake", "--build", folder)
    assert str(prefix) in (folder / "CMakeCache.txt").read_text()
    return folder / "idle"


def library_of(prefix) -> pathlib.Path:
    (library,) = prefix.rglob("liblull.a")
    return library


# ---- what is installed

def test_install_is_complete(prefix):
    for name in ("lull", "gpu_idle_timeout", "gpu_sentinel", "gpu_mon", "gpuselect", "gpu_idle_timeout.py", "gpu_sentinel.py"):
        assert (prefix / "bin" / name).exists(), name
    assert list(prefix.rglob("libnvidia-ml.so.1"))
    if shutil.which("scdoc"):
        pages = {page.name for page in prefix.glob("share/man/man*/*")}
        assert pages == {source.stem for source in (ROOT / "man").glob("*.scd")}
        assert {"lull.1", "lull.toml.5", "gpu_mon.1"} <= pages


def test_installed_program_runs_on_its_own_simulator(prefix):
    lull = prefix / "bin/lull"
    assert call(lull, "sim", "--gpus", "2", "--", lull, "status", "--csv").count("\n") == 3


def test_headers_of_tests_and_of_the_driver_stay_at_home(prefix, headers):
    inside = [str(h.relative_to(prefix / "include/lull")) for h in headers]
    assert not [h for h in inside if "test" in h or "nvml" in h or h == "base/try.h"]
    assert not [h for h in inside if h.startswith(("session/", "cli/", "compat/", "sim/"))]


def test_headers_hold_no_macro(headers):
    for header in headers:
        assert not re.search(r"^\s*#\s*define|\bTRY\(", header.read_text(), re.M), header


def test_headers_hold_nothing_of_a_third_party(headers):
    for header in headers:
        text = header.read_text()
        assert not THIRD_PARTY.search(text), header
        for name in re.findall(r"#include <([^>]+)>", text):
            assert re.fullmatch(r"[a-z_]+", name) or SYSTEM.fullmatch(name), f"{header} includes <{name}>"


def test_headers_include_only_what_is_installed(prefix, headers):
    for header in headers:
        for name in re.findall(r'#include "([^"]+)"', header.read_text()):
            assert (prefix / "include" / name).is_file(), f"{header} includes {name}"


def test_all_headers_compile_together(prefix, headers, tmp_path):
    """In standard C++, with the installed folder alone: TRY, and what else only the house has, is not there."""
    names = [header.relative_to(prefix / "include") for header in headers]
    source = tmp_path / "all.cc"
    source.write_text("".join(f"#include <{name}>\n" for name in names) +
                      "#ifdef TRY\n#error TRY\n#endif\n")
    call("g++", "-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{prefix}/include", source)


def test_a_missing_header_is_noticed(prefix, tmp_path):
    shutil.copytree(prefix / "include", tmp_path / "include")
    (tmp_path / "include/lull/gpu/metric.h").unlink()  # the example gets it by way of others
    done = subprocess.run(["g++", "-std=c++23", "-fsyntax-only", f"-I{tmp_path}/include", ROOT / "examples/idle.cc"],
                          capture_output=True, text=True, timeout=BUILD_LIMIT)
    assert done.returncode != 0
    assert "lull/gpu/metric.h: No such file" in done.stderr


# ---- how it is found

def test_pkg_config_finds_it(prefix, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    folder = library_of(prefix).parent / "pkgconfig"
    flags = call("env", f"PKG_CONFIG_PATH={folder}", "pkg-config", "--cflags", "--libs", "lull").split()
    call("g++", ROOT / "examples/idle.cc", *flags, "-o", tmp_path / "idle")
    done = subprocess.run([tmp_path / "idle", "util <", "100"], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment(LULL_LEASES=tmp_path / "leases"))
    assert done.returncode == 1
    assert "expected" in done.stderr


def test_fits_into_a_shared_library(prefix, tmp_path):
    """As a module of Python is one: every object is position independent, and nothing of it is missing."""
    call("g++", "-shared", "-Wl,-z,defs", "-Wl,-z,text", "-o", tmp_path / "liball.so", "-Wl,--whole-archive",
         library_of(prefix), "-Wl,--no-whole-archive", "-lzstd", "-lz", "-llzma", "-lbz2")


# ---- what it does

def start(gpus, example, *arguments):
    return gpus.start(example, *arguments, stdin=subprocess.PIPE)


def test_example_holds_the_idle_gpu(sim, example):
    with sim(2) as gpus:
        gpus.set(0, util=90)
        holder = start(gpus, example, "util < 5 for 3 samples", "100")
        line = read_until(holder.stdout, "\n")
        assert line.startswith("holding GPU 1: ")
        assert "util < 5 for 3 samples" in line
        taken = gpus.lull("pick", "-n", "1", "--gpus", "1", "--", "true")
        assert taken.returncode == 125 and "idle" in taken.stderr, taken.stderr
        holder.stdin.close()
        assert holder.wait(timeout=LIMIT) == 0
        assert gpus.lull("pick", "-n", "1", "--gpus", "1", "--", "true").returncode == 0


def test_example_takes_no_gpu_that_it_cannot_see_or_that_is_held(sim, example):
    with sim(2) as gpus:
        gpus.fault(0, "lost")
        first = start(gpus, example, "util < 5 for 3 samples", "100")
        assert "holding GPU 1" in read_until(first.stdout, "\n")
        second = start(gpus, example, "util < 5 for 3 samples", "100", "2")
        assert second.wait(timeout=LIMIT) == 1
        assert second.stdout.read() == ""
        assert "no GPU to hold" in second.stderr.read()
        end(first)
