"""What ./run, ./test and packaging/ share (tools/common.sh), with programs that only pretend to install."""
import subprocess

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
