"""Names that others choose: cgroups that look like somebody's container, subordinate uids, root of a user namespace,
shells behind su."""
import contextlib
import csv
import fcntl
import json
import os
import pathlib
import pty
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
import termios
import threading

import pytest
from conftest import LIMIT, ROOT, read_until, wait_until
from test_leases import Job, held, users  # noqa: F401 (a fixture)
from test_leases import shared as share_leases
from test_replay import totals
from test_watch_each import ADA, BOB, QUICK, ROOT_ONLY, load_as, shared, stop  # noqa: F401 (a fixture)

CONTAINER = "c0ffee" + os.urandom(29).hex()


def unified_hierarchy():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, kind = line.split(" - ")
        if kind.startswith("cgroup2 ") and fields.split()[3] == "/":
            return pathlib.Path(fields.split()[4])
    return None


@pytest.fixture
def cgroups():
    """Makes cgroups, each with its owner; removed at the end, when nobody is in them any more."""
    top, made = unified_hierarchy(), []

    def make(path, owner):
        folder = top
        for part in path.split("/"):
            folder = folder / part
            if not folder.exists():
                folder.mkdir()
                os.chown(folder, owner, owner)
                made.append(folder)
        return folder

    if top is None:
        pytest.skip("there is no unified hierarchy of cgroups here")
    try:
        make(f"lull-test-{os.getpid()}", 0)
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield make
    for folder in reversed(made):
        for pid in (folder / "cgroup.procs").read_text().split():
            (top / "cgroup.procs").write_text(pid)
        folder.rmdir()


@ROOT_ONLY
def test_a_copied_container_name_does_not_end_the_others_work(shared, cgroups):  # noqa: F811
    gpus = shared(2)
    top = f"lull-test-{os.getpid()}"
    container = cgroups(f"{top}/docker-{CONTAINER}.scope", 0)
    cgroups(f"{top}/theirs", ADA)
    copy = cgroups(f"{top}/theirs/docker-{CONTAINER}.scope", ADA)
    busy, idle = load_as(gpus, 0, 90, BOB), load_as(gpus, 1, 0, ADA)
    (container / "cgroup.procs").write_text(str(busy.pid))
    (copy / "cgroup.procs").write_text(str(idle.pid))
    watch = gpus.start_lull("watch", *QUICK, "--idle", "mean(util) < 60 for 700ms", "--per", "job", "--do", "end")
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert f"container {ADA}/{CONTAINER[:12]} of {ADA} on GPU 1" in said, said
    assert busy.poll() is None and f"SIGTERM to lull {busy.pid}" not in said


@ROOT_ONLY
def test_a_user_can_join_their_own_work_by_the_name_of_a_container(shared, cgroups):  # noqa: F811
    gpus = shared(3)
    top = f"lull-test-{os.getpid()}"
    cgroups(f"{top}/theirs", ADA)
    made_up = cgroups(f"{top}/theirs/docker-{CONTAINER}.scope", ADA)
    idle, busy, other = load_as(gpus, 0, 0, ADA), load_as(gpus, 1, 90, ADA), load_as(gpus, 2, 0, ADA)
    for one in (idle, busy):
        (made_up / "cgroup.procs").write_text(str(one.pid))
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 700ms", "--per", "job", "--do", "end")
    assert other.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert idle.poll() is None and busy.poll() is None and said.count("SIGTERM to") == 1, said


@ROOT_ONLY
def test_a_user_can_freeze_their_own_job(shared, cgroups):  # noqa: F811
    gpus = shared(2)
    top = f"lull-test-{os.getpid()}"
    cgroups(f"{top}/theirs", ADA)
    frozen = cgroups(f"{top}/theirs/frozen", ADA)
    idle, other = load_as(gpus, 0, 0, ADA), load_as(gpus, 1, 0, ADA)
    (frozen / "cgroup.procs").write_text(str(idle.pid))
    (frozen / "cgroup.freeze").write_text("1")
    wait_until(lambda: "frozen 1" in (frozen / "cgroup.events").read_text(), what="the freezer")
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 700ms", "--per", "job", "--do", "end")
    assert other.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    (frozen / "cgroup.freeze").write_text("0")
    assert idle.poll() is None and said.count("SIGTERM to") == 1, said


@ROOT_ONLY
def test_users_in_a_container_that_root_made_are_one_job(shared, cgroups):  # noqa: F811
    gpus = shared(3)
    container = cgroups(f"lull-test-{os.getpid()}/docker-{CONTAINER}.scope", 0)
    busy, idle, other = load_as(gpus, 0, 90, BOB), load_as(gpus, 1, 0, 0), load_as(gpus, 2, 0, ADA)
    for one in (busy, idle):
        (container / "cgroup.procs").write_text(str(one.pid))
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 700ms", "--per", "job", "--do", "end")
    assert other.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert busy.poll() is None and idle.poll() is None and said.count("SIGTERM to") == 1, said


SUBUID = pytest.mark.skipif(not pathlib.Path("/etc/subuid").exists() or not shutil.which("unshare"),
                            reason="needs /etc/subuid to cover, and unshare")


def with_subuid(folder):
    """Runs what follows where the uids from 100000 on are ADA's."""
    (folder / "subuid").write_text(f"{ADA}:100000:65536\n")
    return "unshare", "-m", "sh", "-c", f'mount --bind "{folder}/subuid" /etc/subuid && exec "$@"', "sh"


@ROOT_ONLY
@SUBUID
def test_except_user_spares_their_subordinate_uids(shared, tmp_path):  # noqa: F811
    gpus = shared(2)
    spared, ended = load_as(gpus, 0, 0, 100_999), load_as(gpus, 1, 0, BOB)
    watch = gpus.start(*with_subuid(tmp_path), gpus.binary, "watch", *QUICK, "--idle", "util < 1 for 700ms", "--per", "job",
                       "--do", "end", "--except-user", str(ADA))
    assert ended.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert spared.poll() is None and said.count("SIGTERM to") == 1, said


@ROOT_ONLY
@SUBUID
def test_a_trace_names_the_owner_of_a_subordinate_uid(shared, tmp_path):  # noqa: F811
    """As `lull watch` does: a replay of what was recorded spares the same jobs."""
    gpus = shared(2)
    load_as(gpus, 0, 0, 100_999), load_as(gpus, 1, 0, BOB)
    trace = tmp_path / "trace.csv"
    recorded = gpus.run(*with_subuid(tmp_path), gpus.binary, "record", "--every", "100ms", "--for", "2s", "-o", trace)
    assert recorded.returncode == 0, recorded.stderr
    with trace.open() as rows:
        assert {(row["gpu"], row["users"]) for row in csv.DictReader(rows)} == {("0", str(ADA)), ("1", str(BOB))}
    rule = ("--idle", "util < 1 for 700ms", "--per", "job")
    assert totals(trace, *rule)["totals"]["jobs"] == 2
    for spared, ended in ((ADA, BOB), (BOB, ADA)):
        got = totals(trace, *rule, "--except-user", spared)
        assert got["left_out"] == 1 and [end["user"] for end in got["ends"]] == [str(ended)], got


class SilentNameService:
    """Takes the questions that libc has for nscd, notes who asks, and never answers."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "socket"))
        self.socket.listen(16)
        self.clients, self.pids = [], []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.socket.accept()[0]
                self.clients.append(client)
                peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                self.pids.append(struct.unpack("3i", peer)[0])


@ROOT_ONLY
@pytest.mark.skipif(os.path.realpath("/var/run") != "/run" or not shutil.which("unshare"), reason="needs /run and unshare")
def test_a_watcher_does_not_ask_a_name_service_that_hangs_itself(shared, tmp_path):  # noqa: F811
    """A process of its own does, with a limit: samples and `lull keep` go on."""
    gpus = shared(1)
    service = SilentNameService(tmp_path)
    idle = load_as(gpus, 0, 0, BOB)
    silent = f'mount -t tmpfs tmpfs /run && mkdir /run/nscd && mount --bind "{tmp_path}" /run/nscd && exec "$@"'
    watch = gpus.start("unshare", "-m", "sh", "-c", silent, "sh", gpus.binary, "watch", *QUICK, "--idle", "util < 1 for 700ms",
                       "--per", "job", "--do", "end")
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert f"of {BOB}" in said and service.pids and watch.pid not in service.pids, (said, service.pids, watch.pid)
    service.socket.close()


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


# Everybody may make a user namespace and be uid 0 in it. With no map at all everybody is uid 65534 there, who asks too.
ROOT_IN_A_NAMESPACE, NOBODY_IN_A_NAMESPACE = ("unshare", "-U", "-r"), ("unshare", "-U")
NAMESPACES = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare")
    or subprocess.run([*ROOT_IN_A_NAMESPACE, "true"], capture_output=True, **as_user(ADA)).returncode != 0,
    reason="needs a second user who may make user namespaces")


@NAMESPACES
@pytest.mark.parametrize("enter", [ROOT_IN_A_NAMESPACE, NOBODY_IN_A_NAMESPACE])
def test_root_of_a_user_namespace_keeps_nothing_of_others(shared, enter):  # noqa: F811
    gpus = shared(2)
    load_as(gpus, 0, 0, ADA), load_as(gpus, 1, 0, BOB)
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 10m", "--per", "gpu", "--do", "end")
    read_until(watch.stderr, "watching each GPU")

    def keep(gpu):
        return gpus.run(*enter, gpus.binary, "keep", gpu, "4h", **as_user(ADA))

    wait_until(lambda: "nobody watches" not in keep("gpu1").stderr)
    refused = keep("gpu1")
    assert refused.returncode == 1 and "only its owner and root" in refused.stdout, refused
    assert "keeps GPU 1" not in stop(watch)


@NAMESPACES
@pytest.mark.parametrize("enter", [ROOT_IN_A_NAMESPACE, NOBODY_IN_A_NAMESPACE])
def test_root_of_a_user_namespace_releases_no_lease_of_others(users, enter):  # noqa: F811
    gpus, _ = users(1)
    theirs = Job(gpus, **as_user(BOB))
    assert theirs.gpu() == "0"
    for words in (("0",), ("--force", "0")):
        done = gpus.run(*enter, gpus.binary, "release", *words, **as_user(ADA))
        assert done.returncode == 125 and "released" not in done.stdout, done
    assert held(gpus) == ["0"] and theirs.process.poll() is None
    done = gpus.run(*enter, gpus.binary, "pick", "--", "true", **as_user(ADA))
    assert done.returncode == 125, "it is leased, whoever looks"


@NAMESPACES
@pytest.mark.parametrize("enter", [ROOT_IN_A_NAMESPACE, NOBODY_IN_A_NAMESPACE])
def test_a_user_namespace_shares_no_lease_of_others(users, enter):  # noqa: F811
    """Everybody can read the id of a lease."""
    gpus, _ = users(1)
    theirs = Job(gpus, **as_user(BOB))
    assert theirs.gpu() == "0"
    (lease,) = json.loads(gpus.lull("leases", "--json").stdout)["leases"]
    done = gpus.run(*enter, gpus.binary, "pick", "--gpus", "0", "--", "true", env={"LULL_LEASE": lease["lease"]}, **as_user(ADA))
    assert done.returncode == 125 and "leased" in done.stderr, done
    assert held(gpus) == ["0"] and theirs.process.poll() is None


@NAMESPACES
@pytest.mark.parametrize("enter", [(), NOBODY_IN_A_NAMESPACE])
def test_a_parked_job_does_not_come_back_by_a_lease_of_others(sim, tmp_path_factory, enter):
    """Whoever parks writes what is parked: also that another user's lease is the job's own."""
    gpus = sim(text='driver = "570.86.15"\n[[gpu]]\nmodel = "H100"\n')
    home = pathlib.Path(tempfile.mkdtemp())
    leases = share_leases(gpus, tmp_path_factory)
    try:
        (home / "state").mkdir()
        shutil.copy(ROOT / "tests/park/cuda-checkpoint", home)
        for one in (home, *home.iterdir()):
            os.chown(one, ADA, ADA)
        gpus.env |= {"STAND_IN_DIR": str(home / "state"), "LULL_PARK": str(home / "park"), "PATH": f"{home}:{gpus.env['PATH']}"}
        job = gpus.start(gpus.binary, "sim", "load", "--gpu", 0, "--util", 0, "--mem", "64MiB", **as_user(ADA))
        wait_until(lambda: gpus.holds(job.pid), what="the load")
        parked = gpus.lull("park", job.pid, **as_user(ADA))
        assert parked.returncode == 0, parked
        theirs = Job(gpus, "--procs", "any", "--mem-used", "any", **as_user(BOB))
        assert theirs.gpu() == "0"
        (lease,) = json.loads(gpus.lull("leases", "--json").stdout)["leases"]
        (entry,) = (one for one in (home / "park").glob("[!.]*") if one.suffix != ".lock")
        entry.write_text(entry.read_text().replace("\nsince: ", f"\nlease: {lease['lease']}\nsince: "))
        assert lease["lease"] in entry.read_text()
        done = gpus.run(*enter, gpus.binary, "unpark", **as_user(ADA))
        assert done.returncode == 75 and "GPU 0 is leased by" in done.stderr, done
        assert (home / "state" / f"state.{job.pid}").read_text() == "checkpointed\n"
        assert held(gpus) == ["0"] and theirs.process.poll() is None
    finally:
        gpus.close()
        shutil.rmtree(home)
        shutil.rmtree(leases)


@NAMESPACES
@pytest.mark.parametrize("enter", [ROOT_IN_A_NAMESPACE, NOBODY_IN_A_NAMESPACE])
def test_processes_of_users_without_a_number_here_are_not_mine(shared, enter):  # noqa: F811
    gpus = shared(1)
    load_as(gpus, 0, 90, BOB)
    done = gpus.run(*enter, gpus.binary, "pick", "--mine-ok", "--util", "any", "--mem-util", "any", "--mem-used", "any",
                    "--", "true", **as_user(ADA))
    assert done.returncode == 125 and "1 process; wanted 0 processes" in done.stderr, done


@ROOT_ONLY
@pytest.mark.skipif(not shutil.which("su") or not shutil.which("bash"), reason="needs su and bash")
def test_jobs_behind_su_in_one_shell_are_judged_by_themselves(shared):  # noqa: F811
    gpus = shared(2)
    user = pwd.getpwuid(65534).pw_name
    ours, theirs = pty.openpty()
    shell = gpus.start("bash", "--norc", "-i", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                       preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(theirs)
    os.set_blocking(ours, False)

    def drain():
        try:
            return os.read(ours, 65536)
        except OSError:
            return b""

    def holders():
        drain()
        return [gpu["processes"] for gpu in gpus.show()["gpus"]]

    os.write(ours, f"su -s /bin/bash {user}\n".encode())
    for gpu, util in ((0, 0), (1, 90)):
        os.write(ours, f"{gpus.binary} sim load --gpu {gpu} --util {util} &\n".encode())
    wait_until(lambda: all(holders()), what="both jobs")
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 700ms", "--per", "job", "--do", "end")
    wait_until(lambda: not holders()[0], what="the idle job's end")
    said = stop(watch)
    assert holders()[1] and said.count("SIGTERM to") == 1, said
    os.close(ours)
    shell.wait(timeout=LIMIT)
