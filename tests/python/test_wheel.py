"""The wheel: built without network from the build that is tested, and installed where nothing else of lull is."""
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import BUILD, LIMIT, ROOT
from machine import machine  # noqa: F401

SANITIZED = re.search(r"^CMAKE_CXX_FLAGS:.*(-fsanitize|--coverage)", (BUILD / "CMakeCache.txt").read_text(), re.M)
pytestmark = pytest.mark.skipif(SANITIZED is not None, reason="nobody gets a wheel with a sanitizer or counters in it")


def call(*command, **options):
    """Its standard output. What it inherits says nothing of the build that is tested."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LULL_BUILD_DIR")}
    env.update(options.pop("env", {}))
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT * 5, env=env,
                          **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def pip(*words, python=sys.executable, **options):
    return call(python, "-m", "pip", "--disable-pip-version-check", *words, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    before = set(os.listdir(ROOT))
    pip("wheel", ROOT, "--no-build-isolation", "--no-index", "--no-deps", "-w", folder, env={"LULL_BUILD_DIR": str(BUILD)})
    assert set(os.listdir(ROOT)) <= before | {"build"}  # it leaves nothing in the source folder
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of an environment that has nothing but the wheel."""
    folder = tmp_path_factory.mktemp("venv")
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    pip("--python", folder / "bin/python", "install", "--no-index", "--no-deps", wheel)
    return folder / "bin"


@pytest.fixture
def on_gpus(machine):
    """Runs programs on simulated GPUs that know nothing of the source folder or of the tested build."""
    gpus = machine("2xT4")

    def run(*command, **more):
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LULL_BUILD_DIR")}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT, cwd="/",
                              env={**env, "PATH": "/usr/bin:/bin", **more})

    run.gpus = gpus
    return run


def test_what_is_in_it(wheel):
    tag = sysconfig.get_config_var("SOABI")
    assert wheel.name.endswith(f"-cp{sys.version_info[0]}{sys.version_info[1]}-cp{sys.version_info[0]}"
                               f"{sys.version_info[1]}-linux_{os.uname().machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {re.sub(r"^lull-[\d.]+\.", "", name): name for name in archive.namelist()}
        program = archive.getinfo(names["data/data/bin/lull"])
        metadata = archive.read(names["dist-info/METADATA"]).decode()
    sources = [path.relative_to(ROOT / "python") for folder in ("lull", "gpuselect", "gpu_sentinel")
               for path in (ROOT / "python" / folder).iterdir() if path.suffix in (".py", ".pyi", ".typed")]
    assert len(sources) > 15 and not [path for path in sources if str(path) not in names]
    assert {"lull/py.typed", "gpuselect/py.typed", "gpu_sentinel/py.typed", f"lull/_core.{tag}.so",
            "data/data/lib/lull/sim/libnvidia-ml.so.1", "data/data/bin/gpu_idle_timeout.py"} <= set(names)
    assert program.external_attr >> 16 & 0o111 == 0o111
    assert "data/data/bin/gpu_sentinel.py" not in names  # it would hide the package from the script beside it
    version = re.search(r"^project\(lull VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    assert f"\nVersion: {version}\n" in metadata and "\nRequires-Dist" not in re.sub(r".*extra ==.*", "", metadata)


def test_nothing_is_left_of_where_it_was_built(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), name


def test_imports_and_reads_gpus_by_its_own_program(installed, on_gpus):
    code = ("import gpu_sentinel, gpuselect, json, lull\n"
            "print(json.dumps([lull.__file__, gpuselect.__file__, gpu_sentinel.__file__,\n"
            "    [gpu.name for gpu in lull.status()], gpu_sentinel.get_gpu_usage(None), len(gpuselect.gpustatus())]))")
    done = on_gpus(installed / "python", "-c", code)
    assert done.returncode == 0, done.stderr
    *files, names, usage, count = json.loads(done.stdout)
    assert all(file.startswith(str(installed.parent)) for file in files)
    assert (names, usage, count) == (["Tesla T4"] * 2, 0, 2)


def test_holds_gpus(installed, on_gpus):
    """The second is inside the first: what this process holds it may have."""
    code = "import gpuselect, lull\nprint(lull.pick().indices == [int(gpuselect.gpuselect())])"
    done = on_gpus(installed / "python", "-c", code)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_simulates_gpus(installed):
    """With its own driver library."""
    code = "import lull\nwith lull.simulate('3xA100'): print(len(lull.status()))"
    assert call(installed / "python", "-c", code, cwd="/") == "3\n"
    assert call(installed / "lull", "sim", "--gpus", "2", "--", installed / "lull", "status", "--csv", cwd="/").count("\n") == 3


def test_the_commands_of_the_wheel_run(installed, on_gpus):
    assert on_gpus(installed / "lull", "--version").stdout.startswith("lull ")
    assert on_gpus(installed / "gpuselect", "-d", "1").stdout == "1\n"
    done = on_gpus(installed / "gpuselect", "-d", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "1")
    assert on_gpus(installed / "gpu_sentinel", "--help").stdout.startswith("usage: gpu_sentinel")
    for words in ([installed / "gpu_idle_timeout.py"], [installed / "python", installed / "gpu_idle_timeout.py"]):
        assert on_gpus(*words, "sh", "-c", "exit 5", PATH=f"{installed}:/usr/bin:/bin").returncode == 5


def test_finds_its_own_program_wherever_pip_puts_it(wheel, tmp_path):
    """Not one that happens to be on PATH: that may be of another version."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/lull").symlink_to("/bin/false")
    pip("install", "--no-index", "--no-deps", "--target", tmp_path / "target", wheel)
    code = "import lull, lull._program; print(lull._program.find())"
    found = call(sys.executable, "-c", code, cwd="/",
                 env={"PYTHONPATH": str(tmp_path / "target"), "PATH": f"{tmp_path}/other:/usr/bin:/bin"})
    assert found == f"{tmp_path}/target/bin/lull\n"


def test_comes_with_its_pytest_fixture(installed, tmp_path):
    """pytest finds it by the entry point; its own packages are those of the system."""
    (tmp_path / "test_mine.py").write_text("import lull\n\ndef test_mine(lull_gpus):\n    assert len(lull.status()) == 2\n")
    site = next((installed.parent / "lib").glob("python*/site-packages"))
    out = call(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, env={"PYTHONPATH": str(site)},
               cwd=tmp_path)
    assert "1 passed" in out


def test_pip_install_of_the_source_folder_and_uninstall(tmp_path):
    """The line of the documents, in an environment that sees Debian's packages."""
    call(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path)
    before = set(tmp_path.rglob("*"))
    python = tmp_path / "bin/python"
    pip("install", ROOT, "--no-build-isolation", "--no-index", python=python, env={"LULL_BUILD_DIR": str(BUILD)})
    found = call(python, "-c", "import gpu_sentinel, gpuselect, lull; print(lull.__file__)", cwd="/",
                 env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert found.startswith(str(tmp_path))
    pip("uninstall", "-y", "lull", python=python)
    assert [path for path in tmp_path.rglob("*") if path not in before and path.is_file()] == []


def test_requirements_txt(tmp_path, on_gpus):
    """gpuselect's document: clone the repo, and run this in a virtualenv. It installs a module and a command."""
    call(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path)
    pip("install", "-r", "requirements.txt", "--no-build-isolation", "--no-index", python=tmp_path / "bin/python", cwd=ROOT,
        env={"LULL_BUILD_DIR": str(BUILD)})
    assert on_gpus(tmp_path / "bin/gpuselect", "-d", "1").stdout == "1\n"
    done = on_gpus(tmp_path / "bin/python", "-c", "import gpuselect; print(gpuselect.__file__, gpuselect.gpuselect())")
    assert done.returncode == 0 and done.stdout.startswith(str(tmp_path)), done.stderr


def test_a_build_that_is_not_there(tmp_path):
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", ROOT, "--no-build-isolation", "--no-index", "--no-deps", "-w",
                           tmp_path], capture_output=True, text=True, timeout=LIMIT, env={**os.environ, "LULL_BUILD_DIR": "/nonexistent"})
    assert done.returncode != 0 and "LULL_BUILD_DIR must name a folder in which lull is built" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
