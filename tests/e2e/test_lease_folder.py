"""Which folder the leases are in, for one user and in containers."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import LIMIT, clean_environment

CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
NEEDS_CONTAINER = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0,
    reason="needs namespaces of its own")
NOBODY = 200000 + os.getpid()  # and nobody else's, in a test that runs beside this one
OWN = "this container leases GPUs in a folder of its own (/run/lull)"


def in_container(script, *arguments, **extra):
    """A folder /run of its own, and then the script; there is no driver, which is found out after the leases."""
    env = clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1", **extra)
    return subprocess.run([*CONTAINER, "sh", "-ec", f"mount -t tmpfs -o mode=755 tmpfs /run; {script}", "sh", *arguments],
                          env=env, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)


@NEEDS_CONTAINER
@pytest.mark.parametrize("options", [["--", "true"], ["--wait=1s", "--", "true"], ["--hold", "1s"]])
def test_a_container_without_the_hosts_folder_is_told_once(lull, options):
    done = in_container('exec "$@"', lull, "pick", *options)
    assert done.stderr.count(OWN) == 1 and "docker run -v /run/lull:/run/lull" in done.stderr, done.stderr


POD = '''set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount -t tmpfs tmpfs "$1/root/run"
rm -rf "$1/root/.dockerenv" "$1/root/.singularity.d"  # this machine may be a container itself
mkdir -p "$1/root$2"
root=$1/root
shift 2
exec chroot "$root" "$@"'''
HOST_PIDS = 0xEFFFFFFC


@pytest.mark.skipif(os.geteuid() != 0 or os.stat("/proc/self/ns/pid").st_ino != HOST_PIDS, reason="needs the host's pid namespace")
@pytest.mark.parametrize("made, extra", [("/run", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}), ("/run/secrets/kubernetes.io", {})])
def test_a_pod_that_shares_the_pid_namespace_of_its_node_is_a_container(lull, tmp_path, made, extra):
    if os.path.realpath("/var/run") != "/run":
        pytest.skip("/var/run is a folder of its own")
    env = clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1", **extra)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", POD, "sh", tmp_path, made, lull, "pick", "--", "true"], env=env,
                          capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    if "mount" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert "libnvidia-ml" in done.stderr and OWN in done.stderr, done.stderr


@NEEDS_CONTAINER
def test_a_container_that_shares_the_folder_is_told_nothing(lull, tmp_path):
    shared = tmp_path / "lull"
    shared.mkdir()
    shared.chmod(0o1777)
    done = in_container('mkdir /run/lull; mount --bind "$1" /run/lull; shift; exec "$@"', shared, lull, "pick", "--", "true")
    assert "container" not in done.stderr and "libnvidia-ml" in done.stderr, done.stderr


@NEEDS_CONTAINER
def test_a_folder_that_is_named_is_a_choice(lull, tmp_path):
    done = in_container('exec "$@"', lull, "pick", "--", "true", LULL_LEASES=tmp_path / "leases")
    assert "container" not in done.stderr, done.stderr


@NEEDS_CONTAINER
def test_who_asks_for_silence_has_it(lull):
    assert "container" not in in_container('exec "$@"', lull, "pick", "-q", "--", "true").stderr


@NEEDS_CONTAINER
def test_the_same_user_has_the_same_folder_with_and_without_a_session(lull):
    """As from a login, from cron and after su."""
    runtime = pathlib.Path(f"/run/user/{NOBODY}")
    script = (f"mkdir -p {runtime}; chown {NOBODY} {runtime}; chmod 700 {runtime}; "
              f"mkdir -p /run/bin; cp \"$1\" /run/bin/lull; mount -t tmpfs -o mode=1777 tmpfs /tmp; shift; "
              f"for dir in {runtime} ''; do XDG_RUNTIME_DIR=$dir setpriv --reuid {NOBODY} --clear-groups "
              f"/run/bin/lull leases --json; done")
    done = in_container(script, lull)
    folders = [line.split('"')[3] for line in done.stdout.splitlines() if '"folder"' in line]
    assert folders == [f"/tmp/lull-{NOBODY}"] * 2, (done.stdout, done.stderr)
