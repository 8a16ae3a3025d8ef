"""Whole trees: nobody of a job is left behind, nobody is said to be gone without proof, and a job has its grace.

The tests are named after the faults that they were written for.
"""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import pytest
from conftest import LIMIT, alive, lines_in, read_until, wait_until

QUICK = ["--gpus", "all", "--delay", "0", "--every", "50ms", "--idle", "util < 1 for 1s"]
WATCH = ["--every", "50ms", "--idle", "util < 1 for 300ms"]
NEVER = ["--delay", "0", "--every", "50ms", "--idle", "util < 1 for 1h"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def pids(tmp_path):
    """The file into which the processes of a test write their pids; whoever is left at the end is ended."""

    class Pids:
        file = tmp_path / "pids"

        def wait(self, count):
            def read():
                words = self.file.read_text().split() if self.file.exists() else []
                return [int(word) for word in words] if len(words) >= count else None
            return wait_until(read, what=f"{count} pids")

        def left(self):
            return [pid for pid in map(int, self.file.read_text().split()) if alive(pid)]

    one = Pids()
    yield one
    for pid in one.left() if one.file.exists() else []:
        os.kill(pid, signal.SIGKILL)


def cgroup_mount():
    for line in open("/proc/self/mountinfo"):
        if " - cgroup2 " in line:
            return pathlib.Path(line.split()[4])
    return None


@pytest.fixture
def cgroup():
    """A cgroup beside the job's."""
    mount = cgroup_mount()
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("no cgroup of our own here")
    folder = mount / f"test-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    (folder / "cgroup.freeze").write_text("0")
    (folder / "cgroup.kill").write_text("1")
    wait_until(lambda: "populated 0" in (folder / "cgroup.events").read_text())
    folder.rmdir()


def python(text, *arguments):
    return [sys.executable, "-c", "import os, signal, sys, time\n"
            "def here():\n"
            "    with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()}\\n')\n"
            "def stay():\n"
            "    here()\n"
            "    while True: time.sleep(1000)\n" + text, *map(str, arguments)]


# ---- kill= of watch -------------------------------------------------------------------------------

def test_child_that_ignores_term_goes_with_its_root(sim, pids):
    with sim(1) as gpus:
        root = gpus.start(*python("if os.fork() == 0:\n"
                                  "    signal.signal(15, signal.SIG_IGN); stay()\n"
                                  "stay()\n", pids.file))
        pids.wait(2)
        done = gpus.lull("watch", *WATCH, "--grace", "300ms", "--do", f"kill={root.pid}")
        assert pids.left() == []
        assert done.returncode == 0


def test_those_born_while_the_root_dies_go_too(sim, pids):
    # A handler of TERM that leaves an orphan, in a session of its own or not, and ends.
    with sim(1) as gpus:
        root = gpus.start(*python("def leave(*_):\n"
                                  "    signal.signal(15, signal.SIG_IGN)\n"  # also of those who are born now
                                  "    for own in (False, True):\n"
                                  "        if os.fork() == 0:\n"
                                  "            if own: os.setsid()\n"
                                  "            stay()\n"
                                  "    time.sleep(0.3)\n"
                                  "    os._exit(0)\n"
                                  "signal.signal(15, leave)\n"
                                  "stay()\n", pids.file))
        pids.wait(1)
        done = gpus.lull("watch", *WATCH, "--grace", "2s", "--do", f"kill={root.pid}")
        assert len(pids.wait(3)) == 3
        assert pids.left() == []
        assert done.returncode == 0


def test_orphan_that_was_seen_before_goes_too(sim, pids, tmp_path):
    # Its parent ended long before the rule fired, after lull had seen both.
    with sim(1) as gpus:
        gpus.set(0, util=90)
        go = tmp_path / "go"
        root = gpus.start(*python("if os.fork() == 0:\n"
                                  "    os.setsid()\n"
                                  "    if os.fork() == 0: stay()\n"
                                  "    while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
                                  "    os._exit(0)\n"
                                  "stay()\n", pids.file, go))
        orphan = next(pid for pid in pids.wait(2) if pid != root.pid)
        middle = parent_of(orphan)
        watch = gpus.start_lull("watch", *WATCH, "-v", "--grace", "300ms", "--do", f"kill={root.pid}")
        for _ in range(3):
            assert watch.stderr.readline()
        go.touch()
        wait_until(lambda: parent_of(orphan) != middle)
        gpus.set(0, util=0)
        assert watch.wait(timeout=LIMIT) == 0
        assert pids.left() == []


def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])


def test_member_of_a_group_born_later_goes_too(sim, pids):
    # The only process that was in the group at the beginning hands over to another when it gets the signal.
    with sim(1) as gpus:
        root = gpus.start(*python("def leave(*_):\n"
                                  "    if os.fork() == 0:\n"
                                  "        signal.signal(15, signal.SIG_IGN); stay()\n"
                                  "    os._exit(0)\n"
                                  "signal.signal(15, leave)\n"
                                  "stay()\n", pids.file), start_new_session=True)
        pids.wait(1)
        done = gpus.lull("watch", *WATCH, "--grace", "1s", "--do", f"kill=PGID:{root.pid}")
        pids.wait(2)
        assert pids.left() == []
        assert done.returncode == 0


def test_watch_in_the_session_that_it_ends_lives(sim, pids):
    # The session of the process is lull's own: it neither ends itself nor its sensor.
    with sim(1) as gpus:
        shell = gpus.start("bash", "-c", f'echo $$ >> {pids.file}; '
                           '"$0" watch --every 50ms --idle "util < 1 for 300ms" --grace 300ms --do kill=parent & '
                           "while :; do sleep 0.1; done", gpus.binary, start_new_session=True)
        assert shell.wait(timeout=LIMIT) == -signal.SIGTERM
        assert "now: kill=parent" in shell.stderr.read()
        assert pids.left() == []


# ---- out of the cgroup ------------------------------------------------------------------------------

@root_only
@pytest.mark.parametrize("orphan", [False, True], ids=["child", "orphan"])
def test_process_that_left_the_cgroup_is_ended(sim, pids, cgroup, orphan):
    with sim(1) as gpus:
        done = gpus.run_idle_once(lambda: len(lines_in(pids.file)) == 2, gpus.binary, "run", *QUICK, "--grace", "300ms", "--", *python(
            "def leave():\n"
            "    with open(sys.argv[2] + '/cgroup.procs', 'w') as file: file.write('0')\n"
            "    signal.signal(15, signal.SIG_IGN)\n"
            "    os.setsid(); stay()\n"
            "if os.fork() == 0:\n"
            f"    if {orphan} and os.fork() != 0: os._exit(0)\n"
            "    leave()\n"
            "stay()\n", pids.file, cgroup))
        pids.wait(2)
        assert pids.left() == []
        assert done.returncode == 124 and "all its processes are gone" in done.stderr


# ---- without /proc ----------------------------------------------------------------------------------

@root_only
def test_without_proc_the_job_is_ended_and_nothing_is_claimed(sim, pids):
    with sim(1) as gpus:
        if gpus.run("unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc").returncode != 0:
            pytest.skip("no mounts here")
        blind = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"', gpus.binary, "run", *QUICK)
        run = gpus.run_idle_once(pids.file.exists, *blind, "--grace", "300ms", "--", *python("stay()", pids.file))
        assert run.returncode == 124
        assert pids.left() == []
        # Whom nobody can name nobody can end. That is said. (It holds stderr open.)
        with open(pids.file.with_name("said"), "w+") as said:
            run = gpus.start(*blind, "--signal", "0", "--", *python("if os.fork() == 0: stay()\nstay()", pids.file),
                             stderr=said, stdout=said)
            assert run.wait(timeout=LIMIT) == 124
            said.seek(0)
            assert "all its processes are gone" not in (text := said.read()) and "lull cannot check all its processes" in text


@root_only
def test_watch_without_proc_does_not_say_done(sim, pids):
    with sim(1) as gpus:
        job = gpus.start(*python("signal.signal(15, signal.SIG_IGN); stay()", pids.file))
        pids.wait(1)
        done = gpus.run("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"', gpus.binary, "watch",
                        *WATCH, "--grace", "200ms", "--retry", "0", "--do", f"kill={job.pid}")
        assert job.wait(timeout=LIMIT) == -signal.SIGKILL
        assert done.returncode == 125 and "cannot be read" in done.stderr


# ---- the grace is time in which the job can run -------------------------------------------------------

CHECKPOINT = """
def save(*_):
    open(sys.argv[2] + '.begun', 'w').close()
    while not os.path.exists(sys.argv[2] + '.stopped'): time.sleep(0.01)
    for _ in range(40): time.sleep(0.05)
    with open(sys.argv[2], 'w') as file: file.write('saved')
    os._exit(0)
signal.signal(15, save)
stay()
"""


def stop(job):
    """Stops it until it stays stopped: lull sends SIGCONT right behind SIGTERM, which may come later than ours."""
    stopped_since = 0
    limit = time.monotonic() + LIMIT
    while not stopped_since or time.monotonic() < stopped_since + 1:
        assert time.monotonic() < limit, "it does not stay stopped"
        if pathlib.Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            os.kill(job, signal.SIGSTOP)
            stopped_since = time.monotonic()
        time.sleep(0.01)


@root_only
@pytest.mark.parametrize("way", ["own cgroup", "other cgroup", "stopped"])
def test_job_that_cannot_run_keeps_its_grace(sim, pids, cgroup, tmp_path, way):
    saved = tmp_path / "saved"
    with sim(1) as gpus:
        gpus.set(0, util=90)
        run = gpus.start_lull("run", *QUICK, "--grace", "6s", *(["--no-cgroup"] if way != "own cgroup" else []), "--",
                              *python(CHECKPOINT, pids.file, saved))
        job, = pids.wait(1)
        frozen = next(cgroup_mount().glob(f"lull-{run.pid}-*"), None) if way == "own cgroup" else cgroup
        if way == "other cgroup":
            (cgroup / "cgroup.procs").write_text(str(job))
        gpus.set(0, util=0)
        lines = ""
        while "now: SIGTERM" not in lines:
            lines += run.stderr.readline()
            assert run.poll() is None, lines
        wait_until(saved.with_name("saved.begun").exists)
        if way == "stopped":
            stop(job)
        else:
            (frozen / "cgroup.freeze").write_text("1")
            wait_until(lambda: "frozen 1" in (frozen / "cgroup.events").read_text())
        saved.with_name("saved.stopped").touch()
        began = time.monotonic()
        while time.monotonic() < began + 7.5:  # it must not happen in all this time
            assert alive(job), "ended while it could not run"
            time.sleep(0.05)
        if way == "stopped":
            os.kill(job, signal.SIGCONT)
        else:
            (frozen / "cgroup.freeze").write_text("0")
        assert run.wait(timeout=LIMIT) == 124
        assert saved.read_text() == "saved"


def test_lull_that_stood_still_gives_the_whole_grace(sim, pids, tmp_path):
    # As when the whole machine slept: both stop, and go on together.
    saved = tmp_path / "saved"
    with sim(1) as gpus:
        gpus.set(0, util=90)
        run = gpus.start_lull("run", *QUICK, "--grace", "6s", "--no-cgroup", "--",
                              *python(CHECKPOINT, pids.file, saved))
        job, = pids.wait(1)
        gpus.set(0, util=0)
        lines = ""
        while "now: SIGTERM" not in lines:
            lines += run.stderr.readline()
            assert run.poll() is None, lines
        wait_until(saved.with_name("saved.begun").exists)
        both = (run.pid, job)
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        saved.with_name("saved.stopped").touch()
        time.sleep(7)  # how long they are stopped, not how long somebody else takes
        for pid in both:
            os.kill(pid, signal.SIGCONT)
        assert run.wait(timeout=LIMIT) == 124
        assert saved.read_text() == "saved"


# ---- what somebody sends to lull, side by side with timeout(1) ----------------------------------------

WRAPPERS = ["lull", "timeout"]


def wrapped(gpus, wrapper):
    return [gpus.binary, "run", *NEVER, "--"] if wrapper == "lull" else ["timeout", "1000"]


def wait_settled(pid):
    """timeout(1) ends without a word to its child where a signal comes before it has its number: until it sleeps."""
    wait_until(lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S", what="it to sleep")


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT"])
def test_signal_reaches_what_the_command_waits_for(sim, pids, wrapper, name):
    with sim(1) as gpus:
        number = getattr(signal, f"SIG{name}")
        run = gpus.start(*wrapped(gpus, wrapper), "bash", "-c",
                         f"echo $$ >> {pids.file}; bash -c 'echo $$ >> {pids.file}; exec sleep 311'; echo")
        last = pids.wait(2)[-1]
        wait_until(lambda: pathlib.Path(f"/proc/{last}/comm").read_text() == "sleep\n")  # bash itself may lose an INT
        wait_settled(run.pid)
        run.send_signal(number)
        # bash goes on to its `echo` where the signal does not end it; what it waited for is gone in any case.
        run.wait(timeout=LIMIT)
        wait_until(lambda: not pids.left(), what="the end of those it has signalled")  # they are not waited for


def test_who_called_lull_is_not_of_its_job(sim, pids):
    # A script that starts lull is in the same process group: timeout(1) makes one of its own, we do not.
    with sim(1) as gpus:
        script = gpus.start("bash", "-c", f'"$@" & wait $!; echo status=$?; sleep 0.1; echo here', "bash",
                            gpus.binary, "run", *NEVER, "--", "bash", "-c",
                            f"echo $$ $PPID >> {pids.file}; sleep 311; echo")
        run = pids.wait(2)[1]
        os.kill(run, signal.SIGTERM)
        assert script.wait(timeout=LIMIT) == 0
        assert script.stdout.read() == "status=143\nhere\n"


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_terminal_of_the_session_leader_goes(sim, pids, wrapper):
    # A window of tmux, `ssh -t`: there is no shell between the terminal and lull.
    with sim(1) as gpus:
        command = [*wrapped(gpus, wrapper), "bash", "-c", f"echo $$ >> {pids.file}; sleep 311; echo"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe(command[0], command, gpus.env)
        try:
            pids.wait(1)
            wait_settled(pid)
            os.close(terminal)
            wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, what=f"the end of {wrapper}")
            pid = 0
            wait_until(lambda: pids.left() == [], what="the end of the job")
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


# ---- what was ignored stays ignored ---------------------------------------------------------------------

@pytest.mark.parametrize("command", ["run", "watch", "record", "status"])
@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT"])
def test_ignored_signals_stay_ignored(sim, tmp_path, command, name):
    number = getattr(signal, f"SIG{name}")
    # The job does not ignore it, so it would end if lull passed it on.
    job = python(f"signal.signal({int(number)}, lambda *_: sys.exit(9)); stay()", tmp_path / "pid")
    arguments = {"run": [*NEVER, "-v", "--", *job], "watch": [*NEVER[2:], "-v", "--do", "exit"],
                 "record": ["--every", "50ms"], "status": ["--watch=50ms", "--json"]}[command]
    with sim(1) as gpus:
        one = gpus.start_lull(command, *arguments, preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
                              stdin=subprocess.DEVNULL)
        says = one.stderr if command in ("run", "watch") else one.stdout
        assert says.readline()
        if command == "run":
            wait_until((tmp_path / "pid").exists)
        one.send_signal(number)
        for _ in range(20):
            assert says.readline(), "it ended"
        one.send_signal(signal.SIGTERM)
        assert one.wait(timeout=LIMIT) != -number


# ---- small ------------------------------------------------------------------------------------------------

def test_max_time_of_nothing_is_refused(run_lull):
    done = run_lull("run", "--max-time", "0", "--", "true")
    assert done.returncode == 2 and "--max-time" in done.stderr


def test_dry_run_says_would_of_max_time(sim):
    with sim(1) as gpus:
        job = gpus.start_lull("run", *NEVER, "--dry-run", "--max-time", "200ms", "--", "sleep", "1000")
        assert "dry run: would send SIGTERM" in read_until(job.stderr, "--max-time").splitlines()[-1]
        job.terminate()
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_facts_are_those_of_the_firing(sim, tmp_path):
    # A failed action is tried again: the GPU's readings, once it has changed but is idle still, are newer than the facts.
    with sim(1) as gpus:
        facts = tmp_path / "facts"
        watch = gpus.start_lull("watch", "--every", "50ms", "--idle", "util < 50 for 300ms", "--retry-after", "2s", "--do", f"exec=cat >> {facts}; test -e {tmp_path}/go")
        read_until(watch.stderr, "again in")
        gpus.set(0, util=33)
        (tmp_path / "go").touch()
        assert watch.wait(timeout=LIMIT) == 0
        first, second = map(json.loads, facts.read_text().splitlines())
        assert first == second and first["readings"]


# ---- cgroups ------------------------------------------------------------------------------------------------

def cgroups_left(pid):
    mount = cgroup_mount()
    return [str(folder) for folder in mount.rglob(f"lull-{pid}-*")] if mount else []


def test_nested_run_leaves_no_cgroup(sim, pids, cgroup):
    with sim(1) as gpus:
        gpus.set(0, util=90)
        outer = gpus.start_lull("run", *QUICK, "--signal", "0", "--", gpus.binary, "run", *NEVER, "--",
                                "sh", "-c", f"echo $$ $PPID >> {pids.file}; exec sleep 1000")
        inner = pids.wait(2)[1]
        assert cgroups_left(outer.pid) and cgroups_left(inner)
        gpus.set(0, util=0)
        assert outer.wait(timeout=LIMIT) == 124
        assert pids.left() == []
        assert cgroups_left(outer.pid) == [] and cgroups_left(inner) == []


def test_inner_run_that_outlives_the_outer_leaves_no_cgroup(sim, pids, tmp_path, cgroup):
    with sim(1) as gpus:
        go = tmp_path / "go"
        log = tmp_path / "log"  # the inner one would hold our pipes open
        outer = gpus.start_lull("run", *NEVER, "--", "sh", "-c",
                                '"$0" "$@" > ' + f'{log} 2>&1 & until [ -s {pids.file} ]; do sleep 0.01; done', gpus.binary,
                                "run", *NEVER, "--", "sh", "-c",
                                f"echo $$ $PPID >> {pids.file}; until [ -e {go} ]; do sleep 0.01; done")
        inner = pids.wait(2)[1]
        assert outer.wait(timeout=LIMIT) == 0
        assert alive(inner)
        go.touch()
        wait_until(lambda: not alive(inner))
        assert cgroups_left(inner) == [] and cgroups_left(outer.pid) == []


# ---- what a hook leaves behind ----------------------------------------------------------------------------------

DAEMONS = ("import os, sys, time\n"
           "for _ in range(2):\n"
           "    if os.fork() == 0:\n"
           "        os.setsid()\n"
           "        if os.fork() != 0: os._exit(0)\n"
           "        os.setsid()\n"
           "        open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
           "        time.sleep(1000)\n"
           "if sys.argv[2] == 'hang': time.sleep(1000)\n")


@pytest.mark.parametrize("how", ["cgroup", "no cgroup"])
@pytest.mark.parametrize("command", ["run", "watch"])
def test_daemons_of_a_hook_go_when_its_time_is_up(sim, pids, tmp_path, command, how):
    script = tmp_path / "hook.py"
    script.write_text(DAEMONS)
    hook = f"exec {sys.executable} {script} {pids.file} hang > /dev/null 2>&1"
    with sim(1) as gpus:
        arguments = {"run": [*QUICK, "--on-idle", hook, "--on-idle-limit", "2s", "--", "sleep", "1000"],
                     "watch": [*WATCH, "--retry", "0", "--limit", "2s", "--do", f"exec={hook}"]}[command]
        before = []
        if how == "no cgroup":
            if os.geteuid() != 0:
                pytest.skip("needs root")
            mount = cgroup_mount()
            before = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {mount} && exec "$0" "$@"'] if mount else []
        done = gpus.run(*before, gpus.binary, command, *arguments)
        assert done.returncode == (124 if command == "run" else 125), done.stderr
        pids.wait(2)
        wait_until(lambda: not pids.left(), what="the end of what was killed")


@pytest.mark.parametrize("command", ["run", "watch"])
def test_what_a_hook_leaves_behind_on_purpose_stays(sim, pids, tmp_path, command):
    script = tmp_path / "hook.py"
    script.write_text(DAEMONS)
    hook = f"{sys.executable} {script} {pids.file} end > /dev/null 2>&1; until [ $(wc -l < {pids.file}) = 2 ]; do sleep 0.01; done"
    with sim(1) as gpus:
        arguments = {"run": [*QUICK, "--on-idle", hook, "--", "sleep", "1000"],
                     "watch": [*WATCH, "--do", f"exec={hook}"]}[command]
        done = gpus.lull(command, *arguments)
        assert done.returncode == (124 if command == "run" else 0), done.stderr
        assert len(pids.left()) == 2


# ---- a hold that nobody was told of ---------------------------------------------------------------------------

def test_hold_that_could_not_be_said_is_given_back(sim, tmp_path):
    with sim(1) as gpus:
        with open("/dev/full", "w") as full:
            failed = gpus.lull("pick", "--hold", "100s", stdout=full, stderr=subprocess.PIPE, capture_output=False)
        assert failed.returncode == 125
        wait_until(lambda: gpus.lull("pick", "--hold", "100ms").returncode == 0, limit=10, what="the GPU to be free again")
