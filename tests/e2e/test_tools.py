"""What ./run, ./test and packaging/ share (tools/common.sh), with programs that only pretend to install."""
import shutil
import subprocess

import pytest

from conftest import LIMIT, ROOT, clean_environment


def test_another_apt_is_waited_for(tmp_path):
    """`packaging/deb` failed on a held lock; apt waits for one of its three locks only."""
    log = tmp_path / "calls"
    programs = {"dpkg-query": "exit 1", "id": "echo 0", "sleep": f"echo sleep $1 >> {log}",
                "apt-get": f'echo apt-get "$@" >> {log}; [ "$(grep -c ^apt-get {log})" -ge 3 ] && exit 0\n'
                           "echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)' >&2; exit 100"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["bash", "-c", f". {ROOT}/tools/common.sh; need some-package"], capture_output=True, text=True,
                          timeout=LIMIT, env={**clean_environment(), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["apt-get", "sleep", "apt-get", "sleep", "apt-get"]


def test_what_apt_cannot_install_is_said(tmp_path):
    for name, text in {"dpkg-query": "exit 1", "id": "echo 0", "apt-get": "echo 'E: Unable to locate package some-package' >&2; exit 100"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["bash", "-c", f". {ROOT}/tools/common.sh; need some-package"], capture_output=True, text=True,
                          timeout=LIMIT, env={**clean_environment(), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 125 and "Unable to locate" in done.stderr and "apt could not install: some-package" in done.stderr


@pytest.mark.parametrize("first, installs, builds", [("status", "", "lull nvidia-ml"), ("serve", "libmicrohttpd-dev", "lull nvidia-ml lull-serve")])
def test_run_installs_and_builds_what_the_command_needs(tmp_path, first, installs, builds):
    """In a tree that was built without libmicrohttpd."""
    tree, programs, log = tmp_path / "tree", tmp_path / "programs", tmp_path / "calls"
    for folder in (tree / "tools", tree / "build" / "release", programs):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "run", tree)
    shutil.copy(ROOT / "tools" / "common.sh", tree / "tools")
    ninja = tree / "build" / "release" / "build.ninja"
    ninja.write_text("build nvidia-ml: phony libnvidia-ml.so.1\nbuild lull-serve.1: a manual page\n")
    scripts = {programs / "dpkg-query": '[ "$3" = libmicrohttpd-dev ] || echo installed', programs / "id": "echo 0",
               programs / "apt-get": f'echo apt-get "$@" >> {log}',
               programs / "cmake": f'echo cmake "$@" >> {log}; case $1 in --preset) echo new > {ninja};; esac',
               tree / "build" / "release" / "lull": f'echo lull "$@" >> {log}'}
    for path, text in scripts.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    done = subprocess.run([tree / "run", first, "--json"], capture_output=True, text=True, timeout=LIMIT,
                          env={**clean_environment(), "PATH": f"{programs}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert [call for call in calls if call.startswith("apt-get")] == \
        ([f"apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends {installs}"] if installs else [])
    assert ("cmake --preset release" in calls) == bool(installs), "a build that does not know lull-serve is configured anew"
    assert calls[-2:] == [f"cmake --build --preset release --target {builds}", f"lull {first} --json"]
