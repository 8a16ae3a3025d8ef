"""`lull slurm`: what Slurm's Prolog and Epilog run, and what acts on one job, with stand-ins for Slurm's commands.

A real Slurm is in tests/slurm.
"""
import calendar
import contextlib
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import time

import pytest

from conftest import LIMIT, clean_environment, let_others_in, read_until, slurm_gpus
from conftest import squeue_row as row
from test_jobs import LIAR

JOB = {"SLURM_JOB_ID": "22", "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "ada", "SLURM_JOB_GPUS": "2,3",
       "SLURM_NODELIST": "gpu[1-2]", "SLURM_JOB_RESTART_COUNT": "1", "SLURM_JOB_PARTITION": "main",
       "SLURM_JOB_COMMENT": 'lull=2h "x"\n', "SLURMD_NODENAME": "gpu1"}


# -- Prolog and Epilog ------------------------------------------------------------------------------
def test_prolog_writes_what_slurmd_says_and_epilog_removes_it(run_lull, tmp_path):
    folder = tmp_path / "run" / "gpu1"
    env = clean_environment(**JOB, LULL_SLURM_DIR=tmp_path / "run" / "%n")
    done = run_lull("slurm", "prolog", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (file,) = folder.iterdir()
    assert file.name == "22" and file.stat().st_mode & 0o7777 == 0o644
    text = file.read_text()
    for line in ("job = 22", 'node = "gpu1"', "uid = 1000", 'user = "ada"', "gpus = [2, 3]", 'nodes = "gpu[1-2]"', "restarts = 1",
                 'partition = "main"'):
        assert line in text.splitlines()
    done = run_lull("slurm", "epilog", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not list(folder.iterdir())


def small(mount):
    """A file system that is full."""
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", mount]).returncode != 0:
        pytest.skip("only root can mount")
    (mount / "all").write_bytes(b"x" * 4096)
    return mount


def test_prolog_exits_with_0_within_a_second_whatever_happens(run_lull, tmp_path, programs):
    blocked = tmp_path / "file"
    blocked.write_text("")
    (tmp_path / "closed").mkdir(mode=0o500)
    took = []
    for name in ("scontrol", "squeue"):
        programs.add(name, "sleep 1000")
    for name, env in {
        "nothing is set": {},
        "no number": {"SLURM_JOB_ID": "x"},
        "no uid": {"SLURM_JOB_ID": "22"},
        "no GPU numbers": {**JOB, "SLURM_JOB_GPUS": "all"},
        "no folder": {**JOB, "LULL_SLURM_DIR": blocked / "x"},
        "no path": {**JOB, "LULL_SLURM_DIR": "/proc/nonexistent/x"},
        "hanging commands": {**JOB, "LULL_SLURM_DIR": tmp_path / "run", "PATH": programs.path},
    }.items():
        for command in ("prolog", "epilog"):
            before = time.monotonic()
            done = run_lull("slurm", command, env=clean_environment(**env))
            assert done.returncode == 0 and done.stdout == "", name
            took.append(time.monotonic() - before)
            assert done.stderr.count("\n") <= 1 and done.stderr.startswith(("lull: slurm", "")), name
    assert statistics.median(took) < 1, took  # a busy machine is late sometimes
    assert run_lull("slurm", "prolog", "--nonsense").returncode == 0
    assert programs.calls() == []


def test_prolog_on_a_full_disk_says_so_and_leaves_nothing(run_lull, tmp_path):
    full = small(tmp_path / "full")
    try:
        done = run_lull("slurm", "prolog", env=clean_environment(**JOB, LULL_SLURM_DIR=full / "slurm"))
        assert done.returncode == 0 and "No space left" in done.stderr and done.stderr.count("\n") == 1
        assert not (full / "slurm").exists() or not list((full / "slurm").iterdir())
    finally:
        subprocess.run(["umount", full], check=True)


def servers_of(mark):
    """The processes that serve the files of simulations that were started with this variable."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "comm").read_text() == "lull-sim-files\n":
                if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
    return found


def test_prolog_does_not_wait_for_a_folder_that_hangs(sim, lull, tmp_path):
    """As on a network file system whose server is gone: no call about it comes back."""
    gpus = sim("1xMI210", env=clean_environment(LULL_TEST_HANGS=tmp_path))
    hanging = gpus.folder / "sys/devices"
    servers = servers_of(f"LULL_TEST_HANGS={tmp_path}")
    if not os.path.ismount(hanging) or not servers:
        pytest.skip("no file system can be made to hang here: no FUSE")
    took = []
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        for turn in range(5):
            for command in ("prolog", "epilog"):
                before = time.monotonic()
                # Nothing else is needed of the process that hangs: slurmd reads until the end of what its Prolog says.
                done = subprocess.run([lull, "slurm", command], env=clean_environment(**JOB, LULL_SLURM_DIR=hanging / f"run{turn}"),
                                      timeout=LIMIT, capture_output=True, text=True)
                took.append(time.monotonic() - before)
                assert done.returncode == 0 and done.stderr == f"lull: slurm {command}: not done within 800ms\n", done.stderr
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    assert min(took) > 0.7 and statistics.median(took) < 1, took  # a busy machine may be late sometimes


def test_prolog_without_descriptors_or_output_exits_with_0(lull, tmp_path):
    env = clean_environment(**JOB, LULL_SLURM_DIR=tmp_path / "run")
    done = subprocess.run([lull, "slurm", "prolog"], env=env, timeout=LIMIT, capture_output=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
    assert done.returncode == 0
    done = subprocess.run(["sh", "-c", f"{lull} slurm prolog >&- 2>&- <&-"], env=env, timeout=LIMIT)
    assert done.returncode == 0


def test_prolog_does_not_wait_for_a_full_pipe(lull):
    """slurmd may not read what its Prolog says."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    done = subprocess.run([lull, "slurm", "prolog"], env=clean_environment(), stderr=write, timeout=LIMIT)
    assert done.returncode == 0
    os.close(read)
    os.close(write)


# -- act ----------------------------------------------------------------------------------------------
@pytest.fixture
def act(run_lull, programs):
    """lull slurm act, with a squeue that prints these lines."""

    def run(*args, squeue=row(), status=0, scontrol="true", scancel="true"):
        programs.add("squeue", f"cat <<'END'\n{squeue}\nEND\nexit {status}")
        programs.add("scontrol", scontrol)
        programs.add("scancel", scancel)
        return run_lull("slurm", "act", *args, env=clean_environment(PATH=programs.path))

    return run


def test_act_requeues_a_job_and_says_why(act, programs):
    done = act("22", "requeue", "--restarts", "0", "--reason", "idle for 2h", "--no-wait")
    assert (done.returncode, done.stdout, done.stderr) == (0, "job 22 requeued\n", "")
    assert programs.calls()[1:] == ["scontrol update jobid=22 AdminComment=idle for 2h", "scontrol requeue 22"]


def test_act_on_what_is_no_longer_so_does_nothing(act, programs):
    for args in ({"squeue": ""}, {"squeue": row("COMPLETING")}, {"squeue": row(restarts=1)},
                 {"squeue": "slurm_load_jobs error: Invalid job id specified", "status": 1}):
        done = act("22", "cancel", "--restarts", "0", **args)
        assert done.returncode == 1 and done.stderr.startswith("lull: slurm act: ") and done.stderr.count("\n") == 1
    assert not [call for call in programs.calls() if not call.startswith("squeue")]


def test_act_says_not_now_where_the_controller_is_silent(act, programs):
    done = act("22", "cancel", "--restarts", "0", status=1,
               squeue="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert done.returncode == 75 and "does not answer: slurm_load_jobs error: Unable to contact" in done.stderr
    done = act("22", "cancel", "--restarts", "0", scancel="echo 'scancel: error: Socket timed out' >&2; exit 1")
    assert done.returncode == 75


def test_act_waits_for_a_command_that_hangs_5_seconds_at_most(act, programs):
    programs.add("squeue", "sleep 1000")
    before = time.monotonic()
    done = act("22", "cancel", "--restarts", "0", scancel="sleep 1000")
    assert done.returncode == 75 and 4 < time.monotonic() - before < 30


def test_act_refuses_to_requeue_an_interactive_job(act, programs):
    done = act("22", "requeue", "--restarts", "0", squeue=row(batch=0))
    assert done.returncode == 125 and "can be cancelled" in done.stderr
    assert act("22", "cancel", "--restarts", "0", squeue=row(batch=0)).returncode == 0
    assert programs.calls()[-1] == "scancel 22"


def test_act_on_arrays_het_jobs_and_restarts(act, programs):
    array = row(task="2") + "\n" + row(job="24", task="1")
    for args, expected in (
        (("22", "cancel", "--restarts", "0", {"squeue": array}), ["scancel 22_2"]),
        (("24", "cancel", "--restarts", "0", {"squeue": array}), ["scancel 22_1"]),
        (("slurm:22", "requeuehold", "--restarts", "0", {"squeue": row(het="21")}), ["scontrol requeuehold 21"]),
        (("22", "requeue", "--restarts", "3", {"squeue": row(restarts=3)}), ["scontrol requeuehold 22"]),
        (("22", "signal:TERM", "--restarts", "0", {}), ["scancel --full --signal=TERM 22"]),
        (("22", "requeue", "--restarts", "0", "--no-wait", {"squeue": row(requeue=0)}),
         ["scontrol update jobid=22 Requeue=1", "scontrol requeue 22"]),
    ):
        before = len(programs.calls())
        done = act(*args[:-1], **args[-1])
        assert done.returncode == 0, done.stderr
        assert programs.calls()[before + 1:] == expected


# What other releases than Debian's print, as far as public threads and manuals show: nothing in a field is "N/A", "0" or
# blank, lines end with their last word or with blanks, warnings come first.
@pytest.mark.parametrize("squeue", [
    row(),
    row(het="0", task=""),
    row(het="", array="0", task=""),
    row(het="(null)", task="(null)"),
    row().rstrip(),
    row(array="", task="", het="").rstrip(),
    "squeue: warning: SLURM_TIME_FORMAT is set\n" + row(),
    row() + "\n\n",
])
def test_act_reads_what_other_releases_of_squeue_print(act, programs, squeue):
    done = act("22", "cancel", "--restarts", "0", squeue=squeue)
    assert done.returncode == 0, done.stderr
    assert programs.calls()[-1] == "scancel 22"


@pytest.mark.parametrize("text, status", [
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 75),
    ("squeue: error: slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 75),
    ("slurm_load_jobs error: Socket timed out on send/recv operation", 75),
    ("slurm_load_jobs error: Zero Bytes were transmitted or received", 75),
    ("slurm_load_jobs error: Slurm backup controller in standby mode", 75),
    ("slurm_load_jobs error: Invalid job id specified", 1),
    ("squeue: error: Invalid job format specification: RestartCnt", 125),
    ("squeue: error: If munged is up, restart with --num-threads=10", 125),
])
def test_act_knows_what_squeue_says_when_it_fails(act, programs, text, status):
    done = act("22", "cancel", "--restarts", "0", squeue=text, status=1)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == 1
    assert [call.split()[0] for call in programs.calls()] == ["squeue"]


def test_act_sends_no_verb_to_a_slow_controller(act, programs):
    """It might do it after the time of the command, when nothing is known of the job any more."""
    done = act("22", "cancel", "--restarts", "0", "--reason", "idle", scontrol="sleep 3")
    assert done.returncode == 75 and done.stderr == "lull: slurm act: Slurm's controller does not answer within 2s\n"
    assert [call.split()[0] for call in programs.calls()] == ["squeue", "scontrol"]
    done = act("22", "requeue", "--restarts", "0", squeue=row(requeue=0), scontrol='case "$*" in *Requeue=1) sleep 3;; esac')
    assert done.returncode == 75 and "scontrol requeue 22" not in programs.calls(), done.stderr


@pytest.mark.parametrize("scancel, said", [
    ("sleep 1000", "scancel 22 had no answer: Slurm may still do it"),
    ("kill -9 $$", "scancel 22 had no answer: Slurm may still do it"),
    ("echo 'scancel: error: Kill job error on job id 22: Socket timed out on send/recv operation' >&2; exit 1", "may still do it"),
    ("echo 'scancel: error: Unable to contact slurm controller (receive failure)' >&2; exit 1", "may still do it"),
    ("echo 'scancel: error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "does not answer: scancel: error"),
    ("echo 'scancel: error: Slurm backup controller in standby mode' >&2; exit 1", "does not answer: scancel: error"),
])
def test_act_says_whether_a_verb_that_failed_may_still_be_done(act, scancel, said):
    done = act("22", "cancel", "--restarts", "0", scancel=scancel)
    assert done.returncode == 75 and said in done.stderr and ("may still" in said or "may still" not in done.stderr), done.stderr


# A name, a comment or a reason can hold anything; a field that is too long moves all that follows it.
@pytest.mark.parametrize("squeue", [
    row(job="220"), row(state="RUNNING" + "x" * 30), row(restarts="x"), "RUNNING 0 1 1", row()[:30], row() + "\n" + row(),
    "JobId=22 JobState=RUNNING Restarts=0 BatchFlag=1", '{"jobs": [{"job_id": 22, "job_state": ["RUNNING"]}]}',
])
def test_act_does_nothing_by_what_it_does_not_understand(act, programs, squeue):
    done = act("22", "cancel", "--restarts", "0", squeue=squeue)
    assert done.returncode in (1, 125) and done.stderr.count("\n") == 1, done.stderr
    assert [call.split()[0] for call in programs.calls()] == ["squeue"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are believed")
def test_act_goes_by_the_file_of_that_run_of_the_job_where_there_is_one(run_lull, act, tmp_path):
    assert run_lull("slurm", "prolog", "--dir", tmp_path / "run", env=clean_environment(**JOB)).stderr == ""
    same = {"uid": 1000, "nodes": "gpu[1-2]", "count": 2}
    for row_, status in (({"restarts": 1, **same}, 0), ({"restarts": 1, **same, "uid": 1001}, 1),
                         ({"restarts": 1, **same, "nodes": "gpu[1,3]"}, 1), ({"restarts": 0, **same, "uid": 1001}, 0)):
        done = act("22", "cancel", "--restarts", str(row_["restarts"]), "--dir", tmp_path / "run", squeue=row(**row_))
        assert done.returncode == status, (row_, done.stderr)


def test_act_holds_a_job_that_was_restarted_as_often_as_the_settings_say(act, programs, monkeypatch):
    for at_most, args, verb in (("5", [], "requeue"), ("4", [], "requeuehold"), ("4", ["--restarts-at-most", "9"], "requeue")):
        monkeypatch.setenv("LULL_SLURM_RESTARTS_AT_MOST", at_most)
        assert act("22", "requeue", "--restarts", "4", "--no-wait", *args, squeue=row(restarts=4)).returncode == 0
        assert programs.calls()[-1] == f"scontrol {verb} 22"


def test_act_in_a_dry_run_only_looks(act, programs):
    done = act("22", "cancel", "--restarts", "0", "--reason", "x", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "would run: scancel 22\n") and len(programs.calls()) == 1


@pytest.mark.parametrize("args", [
    ["act"], ["act", "22"], ["act", "x", "cancel", "--restarts", "0"], ["act", "0", "cancel", "--restarts", "0"],
    ["act", "22", "kill", "--restarts", "0"], ["act", "22", "cancel"], ["act", "22", "cancel", "--restarts", "-1"],
    ["act", "22", "comment", "--restarts", "0"], ["act", "22", "cancel", "now", "--restarts", "0"],
    ["ask"], ["ask", "x"], ["ask", "22", "23"], [], ["prolgo"], ["requeue", "22"]])
def test_what_is_wrong_is_refused_in_one_line(run_lull, args):
    done = run_lull("slurm", *args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr


# -- ask ----------------------------------------------------------------------------------------------
def test_ask_where_nobody_watches(run_lull, tmp_path):
    env = clean_environment(LULL_CONTROL=tmp_path, SLURMD_NODENAME="gpu1")
    done = run_lull("slurm", "ask", "22", env=env)
    assert done.returncode == 3 and done.stdout == "gpu1: nobody: nobody watches it here, and it has no file in /run/lull/slurm\n"
    done = run_lull("slurm", "ask", "22", "--json", env=env)
    assert done.returncode == 3 and json.loads(done.stdout)["says"] == "nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are believed")
def test_ask_says_whether_the_watcher_or_the_prolog_is_missing(run_lull, tmp_path):
    env = clean_environment(**JOB, LULL_CONTROL=tmp_path)
    folder = tmp_path / "run/gpu1"
    for command, said in (("epilog", "and it has no file in"), ("prolog", "its file is in")):
        assert run_lull("slurm", command, "--dir", tmp_path / "run/%n", env=env).stderr == ""
        done = run_lull("slurm", "ask", "22", "--dir", tmp_path / "run/%n", env=env)
        assert done.returncode == 3 and done.stdout.endswith(f"{said} {folder}\n"), done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_node_hears_root_s_watcher_alone(run_lull, tmp_path_factory):
    """The watcher of the job's user answers yes while root's is down. It is that user who runs the question of root."""
    control = tmp_path_factory.mktemp("control")
    let_others_in(control)
    control.chmod(0o1777)
    ada = {"user": 1000, "group": 1000, "extra_groups": []}
    yes = "lull-answer job=22 node=gpu1 says=yes restarts=0 gpus=1 numbers=0 age=0.1 every=5 held=9 why="
    watcher = subprocess.Popen(["/usr/bin/python3", "-c", LIAR, f"{control}/lull-keep-1000", yes], stdout=subprocess.PIPE, text=True, **ada)
    try:
        assert watcher.stdout.readline() == "listens\n"
        env = clean_environment(LULL_CONTROL=control, SLURMD_NODENAME="gpu1")
        done = run_lull("slurm", "ask", "22", env=env, **ada)
        assert done.returncode == 0 and done.stdout == "gpu1: yes\n", done.stdout + done.stderr
        done = run_lull("slurm", "ask", "22", "--plain", env=env, **ada)
        assert done.returncode == 3 and "says=nobody" in done.stdout and "a watcher of its user" in done.stdout, done.stdout
    finally:
        watcher.kill()
        watcher.communicate(timeout=LIMIT)


# -- settings -----------------------------------------------------------------------------------------
def watch_with(run_lull, tmp_path, settings, *args):
    file = tmp_path / "lull.toml"
    file.write_text(settings)
    return run_lull("watch", "--per", "job", f"--slurm={tmp_path}", *args, env=clean_environment(LULL_CONFIG=file))


@pytest.mark.parametrize("settings, args, said", [
    ("", [], "steps in [slurm] of lull.toml, or --step, say what to do"),
    ("[slurm]\nsteps = []\n", [], "steps in [slurm] of lull.toml, or --step, say what to do"),
    ("[slurm]\nsteps = ['util < 1 for 1s: slurm=kill']\n", [], "lull.toml:2:9: slurm.steps"),
    ("[slurm]\nsteps = ['util < 1 for 1s: end']\n", [], "slurm.steps: end would leave"),
    ("[slurm]\nsteps = ['util < 1 for 1s: shutdown']\n", [], "slurm.steps: shutdown is not about one GPU or job"),
    ("[slurm]\nsteps = ['util < 1 for 1s']\n", [], "a rule and what to do would be right"),
    ("[slurm]\nsteps = ['util < 1 for 1s: slurm=cancel']\n", ["--idle", "2h"], "--do says what to do"),
    ("[slurm]\ndelay = 'soon'\n", [], "slurm.delay: 'soon' is not a duration"),
])
def test_wrong_settings_are_refused_in_one_line(run_lull, tmp_path, settings, args, said):
    done = watch_with(run_lull, tmp_path, settings, *args)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_the_steps_of_the_settings_are_used_where_the_command_line_has_none(sim, tmp_path):
    file = tmp_path / "lull.toml"
    file.write_text("[slurm]\ndelay = '10m'\nsteps = ['1h: slurm=comment', 'util < 1 for 2h: slurm=requeue']\n")
    gpus = sim(1)
    for args, line in (([], "util < 1 for 1h; dry run, would then comment; util < 1 for 2h; dry run, would then requeue"),
                       (["--step", "util < 2 for 3h: slurm=cancel"], "util < 2 for 3h; dry run, would then cancel")):
        watcher = gpus.start_lull("watch", "--per", "job", f"--slurm={tmp_path}", "--dry-run", *args, env={"LULL_CONFIG": file})
        said = read_until(watcher.stderr, "watching each job")
        assert line in said and "none before it has run for 10m" in said
        watcher.terminate()
        watcher.wait(timeout=LIMIT)


# -- check ----------------------------------------------------------------------------------------------
CHECKS = ["settings", "watcher", "prolog", "epilog", "prolog-flags", "clock", "folder", "stale", "gpus", "gpu-order", "users", "srun"]
MISSING = {"settings", "watcher", "prolog", "epilog", "prolog-flags", "folder", "stale", "gpus", "users", "srun"}


@pytest.fixture
def node(sim, programs, tmp_path):
    """A node that lacks nothing: stand-ins for Slurm's commands, and a watcher."""
    if os.geteuid() != 0:
        pytest.skip("only root's files are believed")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for word in ("prolog", "epilog"):
        (scripts / word).write_text(f"#!/bin/sh\nlull slurm {word}\n")
        (scripts / word).chmod(0o755)
    programs.add("scontrol", f"""date '+Configuration data as of %Y-%m-%dT%H:%M:%S'
echo 'Epilog                  = {scripts}/epilog'
echo 'Prolog                  = {scripts}/prolog'
echo 'PrologFlags             = Alloc'""")
    programs.add("runuser")
    programs.add("squeue", "echo '22 RUNNING'")
    programs.add("getent", "echo ada:x:1000:1000::/:/bin/sh")
    settings = tmp_path / "lull.toml"
    settings.write_text("[slurm]\nsteps = ['util < 1 for 2h: slurm=requeue']\n")
    gpus = sim(4)

    class Node:
        folder = tmp_path / "run"
        conf = settings
        env = {**gpus.env, **JOB, **slurm_gpus(programs, tmp_path / "slurm", 4), "LULL_CONTROL": str(tmp_path), "LULL_CONFIG": str(settings),
               "LULL_SLURM_DIR": str(tmp_path / "run")}

        @staticmethod
        def watch():
            watcher = gpus.start_lull("watch", "--per", "job", "--slurm", "--dry-run", env=Node.env)
            read_until(watcher.stderr, "watching each job")

        @staticmethod
        def check(*args, **kwargs):
            return gpus.lull("slurm", "check", *args, env=Node.env, **kwargs)

    assert gpus.lull("slurm", "prolog", env=Node.env).stderr == ""
    return Node


def states(done):
    found = {item["name"]: item for item in json.loads(done.stdout)["checks"]}
    assert list(found) == CHECKS
    assert all(item["fix"] for item in found.values() if item["state"] == "missing")
    return {name: item["state"] for name, item in found.items()}


def test_check_of_a_node_that_lacks_nothing(node, programs):
    node.watch()
    done = node.check("--json")
    assert (done.returncode, done.stderr) == (0, "") and set(states(done).values()) == {"ok"}, done.stdout
    done = node.check()
    assert done.returncode == 0 and [line.split()[1] for line in done.stdout.splitlines()] == CHECKS
    assert any("srun --jobid=22" in call and "--nodes=2" in call and call.endswith(" true") for call in programs.calls())


def test_check_says_each_thing_that_is_missing_and_how_to_fix_it(node, programs):
    """Here everything is missing at once; src/slurm/check_test.cc has each alone."""
    node.conf.write_text("[slurm]\nsteps = ['never']\n")
    node.folder.chmod(0o755)
    (node.folder / "7").write_text("nonsense")
    programs.add("scontrol", "date '+Configuration data as of %Y-%m-%dT%H:%M:%S'; echo 'PrologFlags = NoHold'")
    programs.add("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    programs.add("slurmd", "echo 'slurmd: Gres Name=gpu Type=(null) Count=4 Index=0 ID=7696487 File=(null) (null)' >&2")
    programs.add("runuser", "echo 'srun: error: Unable to create step' >&2; exit 1")
    programs.add("getent", "exit 2")
    done = node.check("--json")
    assert done.returncode == 1
    assert {name for name, state in states(done).items() if state == "missing"} == MISSING, done.stdout
    lines = node.check().stdout.splitlines()
    assert len(lines) == len(CHECKS) + len(MISSING)


def test_check_cannot_tell_where_the_controller_is_silent(node, programs):
    node.watch()
    programs.add("scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    done = node.check("--json")
    assert done.returncode == 125 and states(done)["prolog"] == "unknown"


def test_check_waits_for_commands_that_hang_5_seconds_at_most(node, programs):
    node.watch()
    for name in ("scontrol", "getent", "runuser"):
        programs.add(name, "sleep 1000")
    before = time.monotonic()
    done = node.check("--json")
    assert done.returncode != 0 and 4 < time.monotonic() - before < 30
    assert {states(done)[name] for name in ("prolog", "users")} == {"unknown"}


def test_check_without_slurm(run_lull, tmp_path, programs):
    done = run_lull("slurm", "check", "--json", "--dir", tmp_path,
                    env=clean_environment(LULL_CONTROL=tmp_path, LULL_CONFIG="", PATH=programs.alone))
    assert done.returncode == 1 and states(done)["watcher"] == "missing" and states(done)["prolog"] == "unknown"
    assert states(done)["srun"] == "untried"


def test_check_refuses_what_it_does_not_know(run_lull):
    done = run_lull("slurm", "check", "--jsn")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


# -- keep from a login node ---------------------------------------------------------------------------
@pytest.fixture
def keep(run_lull, programs, tmp_path):
    """lull keep where nobody watches, with a Slurm in which job 22 has this Comment."""
    control = tmp_path / "control"
    control.mkdir()
    comment = tmp_path / "comment"

    def run(*args, before="", state=row(), squeue="", scontrol="true"):
        comment.write_text(before)
        programs.add("squeue", squeue or f'case "$*" in *--format*) echo "22 $(cat {comment})";; *) cat <<\'END\'\n{state}\nEND\n;; esac')
        programs.add("scontrol", f'{scontrol} && printf %s "${{3#Comment=}}" > {comment}')
        return run_lull("keep", *args, env=clean_environment(PATH=programs.path, LULL_CONTROL=control))

    run.comment = comment
    return run


def test_keep_by_comment_leaves_the_rest_and_never_shortens(keep, programs):
    done = keep("slurm:22", "4h", before="my run;  x=1 lull=2h")
    assert done.returncode == 0 and done.stdout.startswith("Slurm: kept: job 22 until ") and done.stderr == "", done.stderr
    rest, word = keep.comment.read_text().rsplit(" ", 1)
    assert rest == "my run;  x=1 lull=2h" and word.startswith("lull-keep=")
    until = time.strptime(word, "lull-keep=%Y-%m-%dT%H:%M:%SZ")
    assert abs(calendar.timegm(until) - time.time() - 4 * 3600) < 120
    for before in (keep.comment.read_text(), f"{word} {rest}"):
        assert keep("slurm:22", "1h", before=before).returncode == 0
        assert keep.comment.read_text() == f"{rest} {word}"
    assert keep("slurm:22", "1h", before="(null)").returncode == 0 and keep.comment.read_text().startswith("lull-keep=")


def test_keep_by_comment_names_one_task_of_an_array(keep, programs):
    assert keep("slurm:22", "4h", state=row(task="2")).returncode == 0
    assert programs.calls()[-1].startswith("scontrol update jobid=22_2 Comment=lull-keep=")


def test_keep_by_comment_that_fails_says_why_in_one_line(keep, programs):
    for args, said in (
        ({"scontrol": "echo 'slurm_update error: Access/permission denied' >&2; false"}, "permission denied"),
        ({"squeue": "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"}, "does not answer"),
        ({"squeue": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"}, "no job 22"),
        ({"state": ""}, "no job 22"),
        ({"before": "two\nlines"}, "not a job id with its comment"),
    ):
        done = keep("slurm:22", "4h", **{"before": "mine", **args})
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and said in done.stderr, done.stderr
        assert keep.comment.read_text() == args.get("before", "mine")


def test_keep_by_comment_waits_5_seconds_at_most_for_a_command(keep):
    before = time.monotonic()
    done = keep("slurm:22", "4h", squeue="sleep 1000")
    assert done.returncode == 1 and "does not answer" in done.stderr and 4 < time.monotonic() - before < 30


def test_keep_asks_slurm_for_slurm_jobs_alone(keep, programs):
    for target in ("slurm:x", "slurm:0", "gpu3", "4711", "slurm:99999999999"):
        done = keep(target, "4h")
        assert done.returncode == 1 and done.stderr == "lull: keep: nobody watches with `lull watch --per` here\n"
    assert programs.calls() == []


def test_keep_without_slurm_s_commands_says_so(run_lull, programs, tmp_path):
    done = run_lull("keep", "slurm:22", "4h", env=clean_environment(PATH=programs.alone, LULL_CONTROL=tmp_path))
    assert done.returncode == 1 and "scontrol" in done.stderr and done.stderr.count("\n") == 1
