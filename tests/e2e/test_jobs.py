"""`lull jobs`: every job that has GPUs on this machine, with what a watcher knows of it."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import LIMIT, read_until, slurm_gpus, wait_until
from terminals import on_terminal, read_all
from terminals import read_until as read_screen

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of two users, or files of root's")
ADA, BOB = 12345, 12346
LONG = "util < 1 for 1h"


@pytest.fixture
def machine(sim, tmp_path_factory, programs, tmp_path):
    """GPUs that other users get to as well, with folders of their own for allocation files and sockets."""
    def start(count):
        gpus = sim(count)
        for folder in (gpus.folder, *gpus.folder.rglob("*")):
            folder.chmod(folder.stat().st_mode | (0o1077 if folder.is_dir() else 0o066))
        control = tmp_path_factory.mktemp("control")
        for one in (control, *control.parents):
            if "pytest" in str(one):
                one.chmod(0o755)
        control.chmod(0o1777)
        gpus.slurm = control.parent / f"slurm-{control.name}"
        gpus.env.update(LULL_CONTROL=str(control), LULL_SLURM_DIR=str(gpus.slurm), SLURMD_NODENAME="gpu1", COLUMNS="80")
        if os.geteuid() == 0:  # a watcher has found out which GPUs Slurm means
            gpus.env.update(slurm_gpus(programs, tmp_path / "slurm", count))
            gpus.slurm.mkdir(mode=0o755)
            (gpus.slurm / "gpus").write_text('since = "1970-01-01T00:00:01Z"\nslurmd = "none"\ngpus = [%s]\n'
                                             % ", ".join(f'"nvidia {number}"' for number in range(count)))
        return gpus
    return start


def load(gpus, gpu, util, uid=None, binary=None):
    """A process that holds a GPU. Those of one user are one job: all come from this test."""
    who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = gpus.start(binary or gpus.binary, "sim", "load", "--gpu", gpu, "--util", util, start_new_session=True, **who)
    count = len(str(gpu).split(","))
    wait_until(lambda: process.poll() is not None or gpus.holds(process.pid) == count, what="the load")
    assert process.poll() is None, process.stderr.read()
    return process


def allocate(gpus, job, numbers, uid=ADA, user="ada", nodes="gpu1", **more):
    """What Slurm's Prolog writes."""
    done = gpus.lull("slurm", "prolog", env={
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(uid), "SLURM_JOB_USER": user, "SLURM_JOB_GPUS": numbers,
        "SLURM_NODELIST": nodes, "SLURM_JOB_RESTART_COUNT": "0", **more})
    assert (done.returncode, done.stderr) == (0, "")


def only(gpus, **kwargs):
    (row,) = jobs(gpus, **kwargs).values()
    return row


def jobs(gpus, **kwargs):
    done = gpus.lull("jobs", "--json", **kwargs)
    assert done.returncode == 0, done.stderr
    return {row["job"]: row for row in json.loads(done.stdout)["jobs"]}


def watch(gpus, *args):
    watching = gpus.start_lull("watch", "--every", "50ms", "--per", "job", *args)
    read_until(watching.stderr, "watching each job")
    return watching


@ROOT_ONLY
def test_idle_and_busy_jobs_without_a_watcher(machine):
    gpus = machine(4)
    idle, busy = load(gpus, "0,1", 0, ADA), load(gpus, 2, 80, BOB)
    found = jobs(gpus)
    assert sorted(found) == sorted([f"tree:{idle.pid}", f"tree:{busy.pid}"])
    first, second = found[f"tree:{idle.pid}"], found[f"tree:{busy.pid}"]
    assert [gpu["gpu"] for gpu in first["gpus"]] == ["0", "1"] and first["util_percent"] == 0
    assert [gpu["util_percent"] for gpu in second["gpus"]] == [80] and second["util_percent"] == 80
    for row in (first, second):
        assert row["processes"] == 1 and row["command"] == "lull" and row["nodes"] == "gpu1" and row["watched"] is False
        # Nobody watches: unknown is not 0.
        assert [row[name] for name in ("idle_seconds", "next_action", "next_in_seconds", "dry_run", "kept_until")] == [None] * 5
    lines = gpus.lull("jobs").stdout.splitlines()
    assert lines[0].split("  ")[0] == "JOB" and "IDLE FOR" in lines[0] and all(len(line) <= 80 for line in lines)
    assert f"tree:{idle.pid}" in lines[1] and "0 %" in lines[1] and " 0s" not in lines[1] and " - " in lines[1]


def test_no_job_has_a_gpu(machine):
    gpus = machine(1)
    done = gpus.lull("jobs")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no job has a GPU\n")
    assert jobs(gpus) == {}


@ROOT_ONLY
def test_jobs_of_two_users_also_for_one_who_is_not_root(machine):
    gpus = machine(2)
    first, second = load(gpus, 0, 0, ADA), load(gpus, 1, 90, BOB)
    for who in ({}, {"user": BOB, "group": BOB, "extra_groups": []}):
        found = jobs(gpus, **who)
        assert found[f"tree:{first.pid}"]["users"] == [str(ADA)] and found[f"tree:{second.pid}"]["users"] == [str(BOB)]
        assert found[f"tree:{first.pid}"]["util_percent"] == 0 and found[f"tree:{second.pid}"]["util_percent"] == 90


@ROOT_ONLY
def test_a_job_that_has_just_begun_to_be_idle_is_not_called_busy(machine):
    gpus = machine(1)
    load(gpus, 0, 0, ADA)
    gpus.start_lull("watch", "--every", "1h", "--per", "job", "--idle", "2h", "--do", "end")
    row = wait_until(lambda: (one := only(gpus)) and one["next_action"] and one, what="the first sample")
    assert row["idle_seconds"] == 0
    table = gpus.lull("jobs").stdout
    assert "end in 2h" in table and "busy" not in table, table


@ROOT_ONLY
def test_the_watcher_says_how_long_and_what_is_next(machine):
    gpus = machine(2)
    idle, busy = load(gpus, 0, 0, ADA), load(gpus, 1, 90, BOB)
    watching = watch(gpus, "--step", f"{LONG}: exec=echo secret", "--step", "util < 1 for 2h: end")
    row = wait_until(lambda: (one := jobs(gpus)[f"tree:{idle.pid}"]) and (one["idle_seconds"] or 0) > 0.2 and one, what="an idle job")
    assert row["watched"] is True and row["next_action"] == "exec" and 3500 < row["next_in_seconds"] < 3600 and row["dry_run"] is False
    other = jobs(gpus)[f"tree:{busy.pid}"]
    assert other["watched"] is True and other["idle_seconds"] == 0 and other["next_action"] is None and other["next_in_seconds"] is None
    table = gpus.lull("jobs").stdout
    assert "exec in 60m" in table.replace("1h", "60m") and "busy" in table and "secret" not in table
    assert max(map(len, table.splitlines())) <= 80
    # Kept until: by the watcher's own clock, and the next step is not before.
    done = gpus.lull("keep", idle.pid, "4h")
    assert done.returncode == 0, done.stdout
    row = jobs(gpus)[f"tree:{idle.pid}"]
    assert row["kept_until"] is not None and row["next_in_seconds"] > 14000
    assert jobs(gpus)[f"tree:{busy.pid}"]["kept_until"] is None
    # A watcher that is stopped does not answer: nothing is known, and it is not waited for without end.
    watching.send_signal(19)
    row = jobs(gpus)[f"tree:{idle.pid}"]
    assert row["watched"] is False and row["idle_seconds"] is None and row["kept_until"] is None
    watching.send_signal(18)


def test_a_dry_run_and_a_gpu_that_cannot_be_read(machine):
    gpus = machine(2)
    load(gpus, "0,1", 0)
    watch(gpus, "--step", f"{LONG}: end", "--dry-run")
    wait_until(lambda: only(gpus)["idle_seconds"], what="an idle job")
    row = only(gpus)
    assert row["dry_run"] is True and row["next_action"] == "end" and "would end" in gpus.lull("jobs").stdout
    gpus.fault(1, "unknown", function="nvmlDeviceGetUtilizationRates")
    gpus.fault(1, "unknown", function="nvmlDeviceGetSamples")
    row = wait_until(lambda: (one := only(gpus))["idle_seconds"] is None and one, what="the watcher to see it")
    assert row["util_percent"] is None and row["next_in_seconds"] is None
    assert [gpu["util_percent"] for gpu in row["gpus"]] == [0, None]


def test_where_gpus_are_judged_all_of_a_job_count(machine):
    gpus = machine(2)
    load(gpus, "0,1", 0)
    watching = gpus.start_lull("watch", "--every", "50ms", "--per", "gpu", "--step", f"{LONG}: end")
    read_until(watching.stderr, "watching each GPU")
    row = wait_until(lambda: (one := only(gpus))["idle_seconds"] and one, what="idle GPUs")
    assert row["next_action"] == "end"
    gpus.set(1, util=90)
    wait_until(lambda: only(gpus)["idle_seconds"] == 0, what="a busy GPU")


@ROOT_ONLY
def test_slurm_jobs_have_what_slurm_gave_them_with_processes_or_without(machine):
    gpus = machine(4)
    gpus.set(2, util=40)
    allocate(gpus, 22, "0,1", nodes="gpu[1-2]")
    allocate(gpus, 23, "2", uid=BOB, user="bob")
    other = load(gpus, 3, 10, BOB)
    found = jobs(gpus)
    assert list(found) == ["slurm:22", "slurm:23", f"tree:{other.pid}"]
    row = found["slurm:22"]
    assert row["users"] == ["ada"] and row["nodes"] == "gpu[1-2]" and [gpu["gpu"] for gpu in row["gpus"]] == ["0", "1"]
    assert row["processes"] == 0 and row["command"] is None and row["util_percent"] == 0 and row["idle_seconds"] is None
    assert found["slurm:23"]["util_percent"] == 40
    watching = gpus.start_lull("watch", "--every", "50ms", "--per", "job", "--slurm", "--dry-run", "--step", f"{LONG}: slurm=requeue")
    read_until(watching.stderr, "watching each job")
    row = wait_until(lambda: (one := jobs(gpus)["slurm:22"])["idle_seconds"] and one, what="an idle allocation")
    assert row["next_action"] == "slurm=requeue" and 3500 < row["next_in_seconds"] < 3600
    wait_until(lambda: jobs(gpus)["slurm:23"]["idle_seconds"] == 0, what="a busy one")
    assert jobs(gpus)[f"tree:{other.pid}"]["watched"] is False
    assert all(len(line) <= 80 for line in gpus.lull("jobs").stdout.splitlines())
    gpus.lull("slurm", "epilog", env={"SLURM_JOB_ID": "22"})
    assert "slurm:22" not in jobs(gpus)


@ROOT_ONLY
def test_without_a_driver_allocations_are_shown_and_nothing_is_made_up(machine):
    gpus = machine(2)
    gpus.fault("all", "no-driver")
    done = gpus.lull("jobs")
    assert done.returncode == 125 and done.stdout == "" and done.stderr.count("\n") == 1 and "driver is not loaded" in done.stderr
    allocate(gpus, 22, "0-1")
    done = gpus.lull("jobs", "--json")
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "driver is not loaded" in done.stderr
    (row,) = json.loads(done.stdout)["jobs"]
    assert row["job"] == "slurm:22" and row["util_percent"] is None and row["idle_seconds"] is None
    assert row["gpus"] == [{"gpu": "0", "uuid": None, "util_percent": None}, {"gpu": "1", "uuid": None, "util_percent": None}]


@ROOT_ONLY
def test_files_that_are_not_root_s_are_said_and_do_not_count(machine):
    gpus = machine(1)
    allocate(gpus, 22, "0")
    os.chown(gpus.slurm / "22", ADA, ADA)
    done = gpus.lull("jobs")
    assert done.returncode == 0 and "slurm:22" not in done.stdout and "22" in done.stderr.splitlines()[0]


def test_a_lease_without_a_process_on_its_gpu_is_a_job_too(machine):
    gpus = machine(2)
    job = gpus.start_lull("pick", "--gpus", "0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line", stdin=subprocess.PIPE)
    assert job.stdout.readline() == "0\n"
    (row,) = jobs(gpus).values()
    assert row["job"].startswith("lease:") and row["processes"] == 0 and [gpu["gpu"] for gpu in row["gpus"]] == ["0"]
    assert row["command"].startswith("sh -c")
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.wait(timeout=LIMIT) == 0
    wait_until(lambda: jobs(gpus) == {}, what="the lease to end")


def test_hostile_names_move_no_cursor(machine, tmp_path):
    gpus = machine(1)
    evil = tmp_path / "\x1b[2J\x1b]0;x\x07\n\u202eevil"
    shutil.copy2(gpus.binary, evil)
    load(gpus, 0, 0, binary=evil)
    shown = gpus.run(gpus.binary, "jobs", text=False, env={"COLUMNS": "200"}).stdout
    assert b"COMMAND" in shown
    for bad in (b"\x1b", b"\x07", "\u202e".encode()):
        assert bad not in shown
    assert shown.count(b"\n") == 2
    command = only(gpus)["command"]
    assert not any(bad in command for bad in ("\x1b", "\x07", "\n", "\u202e")), ascii(command)


LIAR = """
import os, socket, sys
folder, lines = sys.argv[1], sys.argv[2]
os.mkdir(folder, 0o755)
os.chmod(folder, 0o755)
listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listening.bind(f"{folder}/keep.{os.getpid()}.0")
listening.listen(16)
print("listens", flush=True)
while True:
    client = listening.accept()[0]
    client.recv(512)
    client.send(lines.encode())
    client.close()
"""


@ROOT_ONLY
def test_root_believes_another_s_watcher_about_their_own_jobs_only(machine):
    """A user's watcher that says of all jobs that they are idle, and never ends what it says."""
    gpus = machine(2)
    theirs, other = load(gpus, 0, 0, ADA), load(gpus, 1, 90, BOB)
    start = {one.pid: open(f"/proc/{one.pid}/stat").read().rpartition(")")[2].split()[19] for one in (theirs, other)}
    lines = "".join(f"lull-job 7200.000 1.000 - {pid} {ticks} acts end job:tree:{pid}@{ticks}\n" for pid, ticks in start.items())
    lines += "lull-job nonsense\n\x1b[2J\n" + "lull-job 1 1 1 1 1 acts " + "x" * 100000
    liar = gpus.start("/usr/bin/python3", "-c", LIAR, f"{gpus.env['LULL_CONTROL']}/lull-keep-{ADA}", lines,
                      user=ADA, group=ADA, extra_groups=[])
    assert liar.stdout.readline() == "listens\n"
    found = jobs(gpus)
    assert found[f"tree:{theirs.pid}"]["idle_seconds"] == 7200 and found[f"tree:{theirs.pid}"]["next_action"] == "end"
    assert found[f"tree:{other.pid}"]["watched"] is False and found[f"tree:{other.pid}"]["idle_seconds"] is None


def test_watch_is_a_screen_on_a_terminal_and_lines_in_a_pipe(machine):
    gpus = machine(1)
    process, leader = on_terminal(gpus, "jobs", "--watch", "50ms")
    read_screen(leader, b"", b"no job has a GPU")
    load(gpus, 0, 0)
    read_screen(leader, b"", b"tree:")
    os.write(leader, b"e")
    read_screen(leader, b"", b"that you can ask judges it")
    os.write(leader, b"q")
    assert read_all(leader).endswith(b"\x1b[?25h\x1b[?1049l")
    assert process.wait(timeout=LIMIT) == 0
    os.close(leader)
    lines = gpus.start_lull("jobs", "--watch", "50ms", "--json")
    for _ in range(2):
        (row,) = json.loads(lines.stdout.readline())["jobs"]
        assert row["job"].startswith("tree:")
    lines.stdout.close()  # the reader has seen enough
    assert lines.wait(timeout=LIMIT) == 0


@pytest.mark.parametrize("args", [["now"], ["--watch=soon"], ["--watch=1ms"], ["--jsn"]])
def test_wrong_command_line(run_lull, args):
    done = run_lull("jobs", *args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
