"""`lull fill` with real processes on simulated GPUs."""
import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from conftest import LIMIT, alive, descriptors, end, let_others_in, lines_in, wait_until
from test_trees import cgroup  # noqa: F401

# A filler that leaves a line with a growing number in its file for as long as it runs, with a child of its own session, a daemon
# and one that ignores TERM; each leaves its pid.
FILLER = r"""
import os, signal, sys, time
folder, kind = sys.argv[1], sys.argv[2]
name = os.path.join(folder, os.environ["LULL_GPUS"].replace(",", "+"))
def note(): open(os.path.join(folder, "pids"), "a").write(f"{os.getpid()}\n")
note()
if kind == "family":
    if os.fork() == 0:
        os.setsid(); note(); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: time.sleep(1)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note()
            while True: time.sleep(1)
        os._exit(0)
def save(*_):
    open(name + ".saved", "a").write("saved\n"); os._exit(0)
if kind != "stubborn": signal.signal(signal.SIGTERM, save)
else: signal.signal(signal.SIGTERM, signal.SIG_IGN)
n = 0
last = time.monotonic()
while True:
    n += 1
    open(name, "w").write(str(n)); time.sleep(0.002)
    now = time.monotonic()
    if now - last > 1: open(name + ".stood", "a").write(f"{now - last}\n")
    last = now
"""


class Fill:
    """A running `lull fill` and what its fillers leave behind in a folder."""

    def __init__(self, gpus, folder, *options, kind="plain", command=None, file=None):
        self.gpus, self.folder = gpus, folder
        self.log = folder / "fill.log"
        script = folder / "filler.py"
        script.write_text(FILLER)
        tail = [file] if file else ["--", *(command or [sys.executable, "-S", script, folder, kind])]
        self.process = gpus.start_lull("fill", *(["--every", "100ms", "--idle", "util < 5 for 500ms"] if not file else []),
                                       "--log-format", "json", *options, *tail, stderr=self.log.open("ab"),
                                       env={"LULL_CONTROL": str(folder)})

    def events(self, kind=None):
        lines = [json.loads(line) for line in lines_in(self.log) if line.startswith("{")]
        return [line for line in lines if kind is None or line["event"] == kind]

    def wait_for(self, kind, count=1):
        self.wait(lambda: len(self.events(kind)) >= count, f"{count} × {kind}")
        return self.events(kind)[count - 1]

    def wait(self, condition, what):
        try:
            return wait_until(condition, what=what)
        except AssertionError as late:
            raise AssertionError(f"{late}; it said:\n{self.log.read_text()}") from None

    def count(self, name="0"):
        try:
            return int((self.folder / name).read_text() or 0)
        except FileNotFoundError:
            return 0

    def wait_running(self, name="0"):
        before = self.count(name)
        self.wait(lambda: self.count(name) not in (0, before), f"a filler on {name}")  # a new one counts anew

    def stood(self, name="0"):
        """For how long it did nothing at all, as it found out itself when it went on: longer than a second each."""
        return [float(line) for line in lines_in(self.folder / f"{name}.stood")]

    def still(self, name="0"):
        before = self.count(name)
        time.sleep(0.1)  # it writes every 2 ms
        return self.count(name) == before

    def pids(self):
        try:
            return [int(line) for line in (self.folder / "pids").read_text().split()]
        except FileNotFoundError:
            return []

    def status(self):
        done = self.gpus.lull("fill", "--status", "--json", env={"LULL_CONTROL": str(self.folder)})
        assert done.returncode == 0, done.stderr
        return {gpu["gpu"]: gpu for gpu in json.loads(done.stdout)[0]["gpus"]}

    def wait_status(self, gpu, reason):
        """It may not answer yet."""
        def found():
            done = self.gpus.lull("fill", "--status", "--json", env={"LULL_CONTROL": str(self.folder)})
            gpus = {one["gpu"]: one for fill in json.loads(done.stdout) for one in fill["gpus"]}
            return gpu in gpus and gpus[gpu]["reason"] == reason and gpus[gpu]
        return self.wait(found, f"{reason} of GPU {gpu}")


# Devices that opening does nothing to and that hardly anybody opens: kmsg, autofs, btrfs-control, loop-control, tun. An
# open is heard by its number, on the whole machine: /dev/full, say, is opened by tests that run beside these.
RARE = [(1, 11), (10, 235), (10, 234), (10, 237), (10, 200)]


def make_rare_node(path):
    """A node at the path, its number, and a lock: as long as that is kept no other test on this machine has the number."""
    path.unlink(missing_ok=True)
    for number in RARE:
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind("\0lull-test-device-%d-%d" % number)
            os.mknod(path, 0o600 | 0o020000, os.makedev(*number))
            os.close(os.open(path, os.O_RDONLY | os.O_NOCTTY))
            return number, lock
        except OSError:
            lock.close()
            path.unlink(missing_ok=True)
    raise OSError("no device to be had that nobody opens")


def gone(pids):
    return not any(alive(pid) for pid in pids)


@contextlib.contextmanager
def holding(path, program=sys.executable):
    """A process that has this file open."""
    process = subprocess.Popen([program, "-S", "-c", "import sys; f = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()", path],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"1\n"
    try:
        yield process
    finally:
        end(process)


def test_mistakes_are_said_in_one_line(sim, tmp_path):
    rows = [([], "no command: use lull fill"),
            (["--idle", "utl < 5", "--", "true"], "did you mean 'util'"),
            (["--yield", "maybe", "--", "true"], "confirm, stop, pause or park"),
            (["--signal", "NIX", "--", "true"], "--signal"),
            (["--every", "1ms", "--", "true"], "at least 100ms"),
            (["--detect", "magic", "--", "true"], "bpf, fanotify, inotify or scan"),
            (["--gpus", "7", "--", "true"], "7"),
            (["--nice", "99", "--", "true"], "-20 to 19"),
            (["--hours", "22", "--", "true"], "--hours: '22' is not a span of hours"),
            (["--log-format", "xml", "--", "true"], "text or json would be right"),
            (["/nonexistent/fill.toml"], "No such file"),
            (["a.toml", "--", "true"], "not both"),
            (["--idle", "util < 5 for 1s", "a.toml"], "FILE has all settings of its fillers"),
            (["--check", "--grace", "1s", "a.toml"], "FILE has all settings of its fillers"),
            (["--check"], "no command: use lull fill"),
            (["--check", "--grace", "5", "--", "true"], "needs a unit")]
    with sim(1) as gpus:
        for options, text in rows:
            done = gpus.lull("fill", *options, env={"LULL_CONTROL": str(tmp_path)})
            assert done.returncode == 2 and text in done.stderr and done.stderr.count("\n") <= 4, (options, done.stderr)
        refused = gpus.lull("fill", "--", "true", env={"SLURM_JOB_ID": "1"})
        assert refused.returncode == 125 and "preemptable partition" in refused.stderr
        nobody = gpus.lull("fill", "--status", env={"LULL_CONTROL": str(tmp_path)})
        assert nobody.returncode == 1


def test_fills_pauses_resumes_yields_and_comes_back(sim, tmp_path):
    with sim(2) as gpus:
        fill = Fill(gpus, tmp_path, "--per-gpu", "--confirm", "2s")
        fill.wait_running("0")
        fill.wait_running("1")
        # Somebody opens it and does nothing: it is paused, and goes on with its work.
        with holding(gpus.folder / "dev/nvidia0"):
            fill.wait_for("went-on")
            fill.wait(lambda: fill.stood("0") and max(fill.stood("0")) > 1.5, "it to have been paused")
            fill.wait_running("0")
            fill.wait_running("1")
            assert fill.status()["0"]["reason"] == "nothing-came"
        # Somebody computes: it saves its work and is gone; the other one goes on.
        job = gpus.load(0, util=80)
        ended = fill.wait_for("ended")
        assert ended["details"]["gpus"] == ["0"] and (tmp_path / "0.saved").exists()
        fill.wait_running("1")
        assert fill.wait_status("0", "used")["state"] == "waiting"
        end(job)
        fill.wait_for("started", 3)
        fill.wait_running("0")
        fill.process.send_signal(signal.SIGTERM)
        assert fill.process.wait(timeout=LIMIT) == -signal.SIGTERM
        assert gone(fill.pids()) and (tmp_path / "1.saved").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_filler_in_another_cgroup_is_paused_as_well(sim, tmp_path, cgroup):
    """As systemd-run --scope and cgexec do: the freezer of the filler's cgroup does not reach it."""
    with sim(1) as gpus:
        move = f"sh -c 'echo $$ > {cgroup}/cgroup.procs; exec \"$@\"' x \"$@\" & wait"
        fill = Fill(gpus, tmp_path, "--confirm", "2s",
                    command=["sh", "-c", move, "x", sys.executable, "-S", tmp_path / "filler.py", tmp_path, "plain"])
        fill.wait_running()
        assert cgroup.joinpath("cgroup.procs").read_text().split() == [str(pid) for pid in fill.pids()]
        with holding(gpus.folder / "dev/nvidia0"):
            fill.wait_for("went-on")
            fill.wait(lambda: fill.stood() and max(fill.stood()) > 1.5, "it to have been paused")
            fill.wait_running()
        fill.process.send_signal(signal.SIGTERM)
        assert fill.process.wait(timeout=LIMIT) == -signal.SIGTERM
        assert gone(fill.pids())


@pytest.mark.parametrize("how", ["killed", "killed-while-still", "interrupted", "guard-killed"])
@pytest.mark.parametrize("cgroup", [True, False], ids=["cgroup", "no-cgroup"])
def test_no_filler_outlives_lull(sim, tmp_path, how, cgroup):
    with sim(1) as gpus:
        fill = Fill(gpus, tmp_path, "--confirm", "50s", "--grace", "200ms", *([] if cgroup else ["--no-cgroup"]), kind="family")
        fill.wait_running()
        wait_until(lambda: len(fill.pids()) == 3, what="its family")
        with contextlib.ExitStack() as stack:
            if how == "killed-while-still":
                stack.enter_context(holding(gpus.folder / "dev/nvidia0"))
                fill.wait_for("halted")
                wait_until(fill.still)
            if how == "guard-killed":
                parent = int(pathlib.Path(f"/proc/{fill.pids()[0]}/stat").read_text().rpartition(")")[2].split()[1])
                os.kill(parent, signal.SIGKILL)
                fill.wait_for("backing-off")
                assert gone(fill.pids())
                return
            fill.process.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
            fill.process.wait(timeout=LIMIT)
            wait_until(lambda: gone(fill.pids()), what=f"the end of {fill.pids()}")


def test_fills_only_in_the_given_hours(sim, tmp_path):
    hour = time.localtime().tm_hour
    with sim(1) as gpus:
        fill = Fill(gpus, tmp_path, "--hours", f"{(hour + 2) % 24:02}-{(hour + 3) % 24:02}")
        fill.wait_for("start")
        assert fill.wait_status("0", "out-of-hours")["state"] == "waiting"
        assert not fill.events("started")


# Processes with very many files, which never sleep for long: to look at them all takes a while, each time anew.
HOARD = r"""
import os, resource, time
most = min(15_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (most + 50,) * 2)
for _ in range(most): os.dup(0)
parent = os.getpid()
children = [pid for pid in (os.fork() if os.getpid() == parent else 0 for _ in range(60_000 // most)) if pid]
if os.getpid() == parent: print("ready", flush=True)
while os.getpid() == parent or os.getppid() == parent: time.sleep(0.02)
"""


def test_starts_and_goes_on_however_long_a_look_at_everybodys_files_takes(sim, tmp_path):
    """As where there are thousands of processes."""
    hoard = subprocess.Popen([sys.executable, "-S", "-c", HOARD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert hoard.stdout.readline() == b"ready\n"
        with sim(1) as gpus:
            fill = Fill(gpus, tmp_path, "--confirm", "1s")
            fill.wait_running()
            # What is suspected is not paused for ever, either.
            with holding(gpus.folder / "dev/nvidia0"):
                fill.wait_for("halted")
                fill.wait_for("went-on")
                fill.wait_running()
    finally:
        end(hoard)


def has_open(pid, path):
    return str(path) in descriptors(pid).values()


def test_programs_that_only_look_do_not_count_and_pretenders_do(sim, tmp_path):
    looker = tmp_path / "nvidia-smi"
    shutil.copy("/usr/bin/tail", looker)
    with sim(1) as gpus:
        device = gpus.folder / "dev/nvidia0"
        fill = Fill(gpus, tmp_path, "--confirm", "1s", "--ignore", "my-monitor")
        fill.wait_running()
        for name in ("nvidia-smi", "my-monitor"):
            if name != "nvidia-smi":
                shutil.copy(looker, tmp_path / name)
            monitor = gpus.start(tmp_path / name, "-f", device)
            wait_until(lambda: has_open(monitor.pid, device))
            fill.wait_running()
        assert not fill.events("halted")
        # What a process calls itself does not matter.
        pretender = gpus.start(sys.executable, "-S", "-c",
                               "import time,sys; open('/proc/self/comm','w').write('nvidia-smi'); f = open(sys.argv[1]); time.sleep(60)", device)
        assert str(pretender.pid) in fill.wait_for("halted")["details"]["who"]
        fill.wait_for("went-on")
        assert not fill.events("ended")


def test_leases_and_waiters_have_the_gpu(sim, tmp_path):
    with sim(2) as gpus:
        fill = Fill(gpus, tmp_path, "--per-gpu")
        fill.wait_running("0")
        fill.wait_running("1")
        # Both GPUs are busy with fillers: who waits for one gets it, and the other one goes on.
        gpus.set("all", util=90)
        waiter = gpus.start_lull("pick", "--wait=60s", "--hold", "60s")
        fill.wait_for("yielding")
        gpu = fill.events("yielding")[0]["details"]["gpus"][0]
        assert fill.events("yielding")[0]["details"]["reason"] == "waited-for"
        fill.wait_for("ended")
        gpus.set(gpu, util=0)
        assert waiter.wait(timeout=LIMIT) == 0
        assert fill.wait_status(gpu, "leased")["text"].endswith(f"leased by {pwd.getpwuid(os.getuid()).pw_name}")
        other = "1" if gpu == "0" else "0"
        fill.wait_running(other)
        gpus.set("all", util=0)
        assert gpus.lull("release", gpu).returncode == 0
        fill.wait_for("started", 3)


def write_plan(folder, *fillers, head=""):
    """A TOML file with the filler of these tests, and the given lines in each [[filler]]."""
    text = 'every = "100ms"\nidle = "util < 5 for 500ms"\nconfirm = "1s"\n' + head
    for lines in fillers:
        text += f'[[filler]]\ncommand = ["{sys.executable}", "-S", "{folder}/filler.py", "{folder}", "plain"]\n{lines}\n'
    file = folder / "fill.toml"
    draft = folder / "draft"
    draft.write_text(text)
    draft.rename(file)
    return file


def test_a_changed_file_changes_what_changed_and_a_bad_one_nothing(sim, tmp_path):
    with sim(2) as gpus:
        one, two = 'name = "one"\ngpus = 0\n', 'name = "two"\ngpus = 1\n'
        fill = Fill(gpus, tmp_path, file=write_plan(tmp_path, one, two))
        fill.wait_running("0")
        fill.wait_running("1")
        first, second = fill.status()["0"]["pid"], fill.status()["1"]["pid"]
        write_plan(tmp_path, one, two + "nice = 200\n")
        said = fill.wait_for("not-reloaded")["message"]
        assert "fill.toml:13:8: nice is 200: -20 to 19 would be right" in said
        write_plan(tmp_path, one, two + "nice = 5\n")
        fill.wait_for("reloaded")
        fill.wait_for("started", 3)
        wait_until(lambda: fill.status()["1"]["pid"] not in (None, second))
        assert fill.status()["0"]["pid"] == first and os.getpriority(os.PRIO_PROCESS, fill.status()["1"]["pid"]) == 5
        assert not alive(second)
        fill.process.send_signal(signal.SIGHUP)
        fill.wait_for("reloaded", 2)
        assert fill.status()["0"]["pid"] == first


def test_check_says_what_is_wrong_with_a_file_and_what_is_doubtful(sim, tmp_path):
    with sim(1) as gpus:
        good = gpus.lull("fill", "--check", write_plan(tmp_path, 'name = "one"'))
        assert good.returncode == 0 and "1 filler" in good.stdout and good.stderr == ""
        doubtful = gpus.lull("fill", "--check", write_plan(tmp_path, 'user = "nobody-here"\ndirectory = "/nowhere"'))
        assert doubtful.returncode == 2 and "no user nobody-here" in doubtful.stderr
        bad = gpus.lull("fill", "--check", write_plan(tmp_path, 'comand = "x"'))
        assert bad.returncode == 2 and "did you mean 'command'" in bad.stderr and bad.stderr.count("\n") == 1


def test_check_of_a_command_starts_nothing(sim, tmp_path):
    ran = tmp_path / "ran"
    with sim(1) as gpus:
        good = gpus.lull("fill", "--check", "--per-gpu", "--idle", "10s", "--", "touch", ran)
        assert (good.returncode, good.stderr) == (0, "") and "free means util < 5 for 10s\ntouch" in good.stdout
        for options, why in ((["--", "/nowhere/train"], "/nowhere/train: No such file"),
                             (["--log", "/nowhere/log", "--", "touch", ran], "/nowhere/log: No such file")):
            bad = gpus.lull("fill", "--check", *options)
            assert bad.returncode == 2 and why in bad.stderr and bad.stderr.count("\n") == 1, bad.stderr
    assert not ran.exists()


def test_check_tries_program_and_log_as_the_filler_s_user(sim, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can run as another user")
    let_others_in(tmp_path)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "train").write_text("#!/bin/sh\n")
    (private / "train").chmod(0o755)
    log = tmp_path / "fill.log"
    log.write_text("")
    log.chmod(0o644)
    with sim(1) as gpus:
        plan = write_plan(tmp_path, f'user = "nobody"\nlog = "{log}"')
        checked = gpus.lull("fill", "--check", plan)
        assert checked.returncode == 2 and f"its log {log}: Permission denied" in checked.stderr, checked.stderr
        plan = tmp_path / "fill.toml"
        plan.write_text(f'[[filler]]\ncommand = "{private}/train"\nuser = "nobody"\n')
        checked = gpus.lull("fill", "--check", plan)
        assert checked.returncode == 2 and f"{private}/train: Permission denied" in checked.stderr, checked.stderr
        log.chmod(0o666)
        plan.write_text(f'[[filler]]\ncommand = "true"\nuser = "nobody"\nlog = "{log}"\nhours = "20-08,12:30-13:30"\n')
        checked = gpus.lull("fill", "--check", plan)
        assert checked.returncode == 0 and checked.stderr == "", checked.stderr


def test_status_gives_the_reason_of_a_failure_with_its_path(sim, tmp_path):
    with sim(1) as gpus:
        plan = tmp_path / "fill.toml"
        plan.write_text('idle = "util < 5 for 100ms"\nevery = "100ms"\n[people]\ncount = false\n'
                        f'[[filler]]\nname = "one"\ncommand = "{tmp_path}/missing"\n')
        fill = gpus.start_lull("fill", plan)
        try:
            wait_until(lambda: f"{tmp_path}/missing: No such file or directory" in gpus.lull("fill", "--status").stdout,
                       what="the reason")
        finally:
            end(fill)


def test_status_and_pick_know_fillers(sim, tmp_path):
    """They looked like strangers, and `pick` said "no GPU fits" though a filler yields in a second."""
    with sim(1) as gpus:
        fill = Fill(gpus, tmp_path, "--user-idle", "0", command=[gpus.binary, "sim", "load", "--gpu", "0", "--util", "90", "--mem", "2GiB"])
        wait_until(lambda: gpus.show()["gpus"][0]["util_percent"] > 50, what="a filler that works")
        shown = gpus.lull("status")
        assert "'s filler" in shown.stdout, shown.stdout
        process, = json.loads(gpus.lull("status", "--json").stdout)["gpus"][0]["processes"]
        assert process["filler"] is True
        printed = gpus.lull("pick")
        assert printed.returncode == 125 and "filler of " in printed.stderr and "--wait" in printed.stderr, printed.stderr
        picked = gpus.lull("pick", "--", "sh", "-c", "echo got $CUDA_VISIBLE_DEVICES")
        assert (picked.returncode, picked.stdout) == (0, "got 0\n"), picked.stderr
        end(fill.process)


def test_who_types_has_the_machine(sim, tmp_path):
    with sim(1) as gpus:
        fill = Fill(gpus, tmp_path, "--user-idle", "20s", "--except-user", "games")
        fill.wait_running()
        pts = gpus.folder / "dev/pts"
        pts.mkdir()
        for name, user in (("0", "games"), ("1", "nobody")):
            (pts / name).write_text("")
            if os.geteuid() != 0:
                pytest.skip("only root can give a file to others")
            shutil.chown(pts / name, user)
            if user == "games":
                os.utime(pts / name)
                fill.wait_running()
        assert fill.wait_for("yielding")["details"]["reason"] == "user"
        fill.wait_for("ended")
        assert fill.wait_status("0", "user")["who"] == "nobody"
        os.utime(pts / "1", (time.time() - 60, time.time() - 60))
        fill.wait_for("started", 2)


def test_a_filler_that_fails_is_backed_off_and_the_others_go_on(sim, tmp_path):
    with sim(2) as gpus:
        plan = write_plan(tmp_path, 'name = "works"\ngpus = 1')
        plan.write_text(plan.read_text() + '[[filler]]\nname = "fails"\ngpus = 0\ncommand = "false"\n'
                                           '[[filler]]\nname = "missing"\ngpus = 0\npriority = 1\ncommand = "/no/such/program"\n')
        fill = Fill(gpus, tmp_path, file=plan)
        said = fill.wait_for("not-started")
        assert "No such file" in said["message"]
        fill.wait_for("backing-off", 2)
        assert {e["details"]["filler"] for e in fill.events("backing-off")} == {"fails", "missing"}
        assert fill.wait_status("0", "backing-off")["failures"] == 1
        fill.wait_running("1")


def test_parks_and_resumes_and_pauses(sim, tmp_path):
    with sim(2) as gpus:
        park = f'yield_command = "test $LULL_FILLER_PID -gt 1 && echo park >> {tmp_path}/parked"\nresume_command = "echo resume >> {tmp_path}/parked"'
        fill = Fill(gpus, tmp_path, file=write_plan(tmp_path, f'name = "parks"\ngpus = 0\n{park}', 'name = "pauses"\ngpus = 1\nyield = "pause"'))
        fill.wait_running("0")
        fill.wait_running("1")
        job = gpus.load("0,1", util=80)
        fill.wait_for("parked")
        wait_until(lambda: all(fill.status()[gpu]["state"] in ("parked", "paused") for gpu in "01"))
        wait_until(lambda: fill.still("0") and fill.still("1"))
        end(job)
        fill.wait_running("0")
        fill.wait_running("1")
        wait_until(lambda: (tmp_path / "parked").read_text() == "park\nresume\n")
        assert not fill.events("ended")


def test_runs_as_another_user_with_its_log(sim, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with sim(1) as gpus:
        log = tmp_path / "log"
        log.mkdir(mode=0o777)
        log.chmod(0o777)
        for one in (tmp_path, *tmp_path.parents):
            if "pytest" in str(one):
                one.chmod(one.stat().st_mode | 0o055)
        plan = write_plan(tmp_path)
        plan.write_text(plan.read_text() + f'[[filler]]\nuser = "nobody"\nlog = "{log}/out"\nlog_size = "1000B"\nlog_keep = 1\ndirectory = "/"\n'
                        'command = ["sh", "-c", "id -un; echo $HOME; pwd; for i in $(seq 100); do echo a line of it; done; exec sleep 1000"]\n')
        fill = Fill(gpus, tmp_path, file=plan)
        fill.wait_for("started")
        wait_until(lambda: (log / "out.1").exists() and (log / "out").exists())
        assert (log / "out").stat().st_size <= 1000 and pwd.getpwuid((log / "out").stat().st_uid).pw_name == "nobody"


def test_an_open_in_another_mount_namespace_by_a_node_of_its_own_is_heard(sim, tmp_path):
    with sim(1) as gpus:
        device = gpus.folder / "dev/nvidia0"
        try:
            (major, minor), lock = make_rare_node(device)
        except OSError:
            pytest.skip("no device nodes can be made here")
        fill = Fill(gpus, tmp_path, "--confirm", "2s")
        fill.wait_running()
        if "BPF" not in fill.events("start")[0]["message"]:
            pytest.skip("no BPF here")
        stranger = gpus.start("unshare", "-m", "sh", "-c", f"mount -t tmpfs none /mnt && mknod /mnt/gpu c {major} {minor} && exec 3</mnt/gpu && exec sleep 100")
        fill.wait(lambda: any(str(stranger.pid) in (event["details"]["who"] or "") for event in fill.events("halted")), "its open to be heard")
        fill.wait_for("went-on")
        fill.wait_running()
        end(stranger)  # the next one who has this number must not meet it
        lock.close()


@pytest.mark.parametrize("way", ["fanotify", "inotify", "scan"])
def test_every_way_to_detect_an_open_pauses_and_resumes_the_filler(sim, tmp_path, way):
    with sim(2) as gpus:
        fill = Fill(gpus, tmp_path, "--per-gpu", "--confirm", "1s", "--detect", way)
        said = fill.wait_for("start")["message"]
        if way == "fanotify" and way not in said:
            pytest.skip("no fanotify here")
        assert said.endswith("scanning" if way == "scan" else way), said
        fill.wait_running("0")
        fill.wait_running("1")
        with holding(gpus.folder / "dev/nvidia1") as holder:
            halted = fill.wait_for("halted")["details"]
            assert halted["gpus"] == ["1"] and ("an unknown process" if way == "inotify" else str(holder.pid)) in halted["who"]
            fill.wait_for("went-on")
            fill.wait_running("1")
        assert not fill.events("yielding") and all(e["details"]["gpus"] == ["1"] for e in fill.events("halted"))
        job = gpus.load(0, util=80)
        assert fill.wait_for("ended")["details"]["gpus"] == ["0"]
        end(job)


def test_goes_on_when_two_device_nodes_vanish_and_come_back(sim, tmp_path):
    with sim(2) as gpus:
        fill = Fill(gpus, tmp_path, "--per-gpu", "--confirm", "1s", "--detect", "inotify", "--ignore-hidden")
        fill.wait_running("0")
        fill.wait_running("1")
        nodes = [gpus.folder / f"dev/nvidia{gpu}" for gpu in range(2)]
        aside = [node.with_name(node.name + ".aside") for node in nodes]
        for node, other in zip(nodes, aside):
            shutil.copy(node, other)
            node.unlink()
            time.sleep(0.1)  # one after the other: within a sample
        fill.wait(lambda: all(fill.still(gpu) for gpu in "01"), "both to be paused")
        for node, other in zip(nodes, aside):
            other.rename(node)
        fill.wait_running("0")
        fill.wait_running("1")
        halted = len(fill.events("halted"))
        with holding(nodes[1]):
            fill.wait_for("halted", halted + 1)
        fill.wait_running("1")
        assert fill.process.poll() is None


@pytest.mark.parametrize("how", ["kill", "term"])
def test_a_log_that_cannot_be_rotated_keeps_no_filler(sim, tmp_path, how):
    with sim(1) as gpus:
        log = tmp_path / "log"
        log.mkdir()
        (log / "out.1").mkdir()
        plan = write_plan(tmp_path)
        plan.write_text(plan.read_text() + f'[[filler]]\nlog = "{log}/out"\nlog_size = "1000B"\nlog_keep = 1\n'
                        f'command = ["sh", "-c", "echo $$ > {tmp_path}/pids; while :; do echo 0123456789; sleep 0.001; done"]\n')
        fill = Fill(gpus, tmp_path, file=plan)
        fill.wait_for("started")
        said = fill.wait_for("log")["message"]
        assert said.endswith(f"its log {log}/out cannot be rotated: File exists; it grows"), said
        fill.wait(lambda: (log / "out").stat().st_size > 3000, "the log to grow")
        fill.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        wait_until(lambda: gone(fill.pids()))
        if how == "term":
            assert fill.process.wait(LIMIT) in (143, -signal.SIGTERM)
        assert len(fill.events("log")) == 1


def test_memory_that_nobody_owns_up_to_is_said_and_not_filled(sim, tmp_path):
    with sim(1) as gpus:
        gpus.set(0, mem_used="2GiB")
        fill = Fill(gpus, tmp_path)
        assert "2.0 GiB" in fill.wait_for("waiting")["message"]
        gpus.set(0, mem_used="auto")
        fill.wait_running()
