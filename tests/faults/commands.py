"""The commands that are run under faults, and what each has to do all the same."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

from case import SLOWER

RULE = "util < 5 for 300ms"
QUICK = ["--idle", RULE, "--every", "50ms", "--grace", "300ms"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Command:
    gpus = 2
    scenario = ""  # of the simulation, in place of so many GPUs
    settle = 4
    lives_on = False  # what it runs is no filler: when lull is gone, it may still be there
    needs_root = False
    limits_memory = False  # of its processes; a sanitizer needs more
    marks = False  # it is a program that uses lull; see inject.cc
    program = "lull"  # whose calls fail

    def env(self, case):
        return {}

    def before(self, case):
        pass

    def during(self, case):
        pass

    def after(self, case):
        pass


class Status(Command):
    """Right, or it says of each value why it is unknown."""

    def before(self, case):
        case.start(*case.job(60, util=95))
        case.start(case.tools.lull, "pick", "--gpus", "1", "--", "sleep", "60")
        case.wait_until(lambda: case.holders() == 1 and case.leased() == 1)

    def words(self, case):
        return [case.tools.lull, "status", "--json"]

    def judge(self, case, normal):
        if case.status != 0 or case.reported(normal):
            if not case.err and not case.killed:
                case.complain(f"status {case.status} without a word")
            return
        try:
            told, usual = json.loads(case.out), json.loads(normal.out)
        except ValueError:
            return case.complain(f"no JSON, and status 0: {case.out[:200]!r}")
        if len(told["gpus"]) != len(usual["gpus"]):
            return case.complain("a GPU is missing")
        for gpu, before in zip(told["gpus"], usual["gpus"]):
            for key in gpu:
                if gpu[key] is None and before.get(key) is not None and not gpu["error"] and key not in gpu["unknown"]:
                    case.complain(f"{key} of GPU {before['index']} is missing without a reason")
            if gpu["util_percent"] is not None and gpu["util_percent"] != before["util_percent"]:
                case.complain(f"util {gpu['util_percent']} instead of {before['util_percent']}")


class Pick(Command):
    """Gives the free GPU to the job, not the other one; nobody else gets it meanwhile."""

    def before(self, case):
        case.lull("sim", "set", "1", "mem_used=32MiB")  # the other one would be the better choice
        case.start(case.tools.lull, "pick", "--gpus", "0", "--", "sleep", "60")
        case.wait_until(lambda: case.leased() == 1)

    def words(self, case):
        return [case.tools.lull, "pick", "--best", "memory", "--", *case.job(0.4)]

    def during(self, case):
        case.second = None
        if case.wait(lambda: case.noted()):
            second = case.lull("pick", "--no-lease", "--", "true")
            case.second = second.returncode if not any(note == "done" for note in case.noted()) else None

    def judge(self, case, normal):
        begun = [note.split()[2] for note in case.noted_lines("begin")]
        if begun and begun[0] != "1":
            case.complain(f"the job got GPU {begun[0]}, which somebody has")
        if case.second == 0 and "held" not in case.err and "lease" not in case.err:
            case.complain("the GPU was given to a second one")
        if case.noted_lines("signal"):
            case.complain(f"the job got a signal: {case.notes_text}")
        if begun and "done" not in case.notes_text:
            case.complain("the job did not finish")
        if not begun and not case.killed and (case.status == 0 or not case.err):
            case.complain(f"no job, status {case.status}, stderr {case.err!r}")


class PickBusy(Pick):
    """The same where the other GPU is used without a lease."""

    def before(self, case):
        case.start(*case.job(60, util=95, notes=case.folder / "other"))
        case.wait_until(lambda: case.holders() == 1)


class PickWait(Pick):
    """Waits in line for the only GPU, and gets it when who has it is gone, not before."""
    gpus = 1

    def before(self, case):
        case.holder = case.start(case.tools.lull, "pick", "--gpus", "0", "--", "sleep", "60")
        case.wait_until(lambda: case.leased() == 1)

    def words(self, case):
        return [case.tools.lull, "pick", "--wait=10s", "--", *case.job(0.4)]

    def during(self, case):
        case.second = None
        leases = pathlib.Path(case.env["LULL_LEASES"])
        case.wait(lambda: case.noted() or any(path.name.startswith("ticket.") for path in leases.iterdir()))
        case.early = bool(case.noted())
        case.holder.kill()
        case.holder.wait()

    def judge(self, case, normal):
        if case.early:
            case.complain("the GPU was given to a second one")
        begun = [note.split()[2] for note in case.noted_lines("begin")]
        if begun and begun[0] != "0":
            case.complain(f"the job got GPU {begun[0]}, which is not there")
        if case.noted_lines("signal"):
            case.complain(f"the job got a signal: {case.notes_text}")
        if begun and "done" not in case.notes_text:
            case.complain("the job did not finish")
        if not begun and not case.killed and (case.status == 0 or not case.err):
            case.complain(f"no job, status {case.status}, stderr {case.err!r}")


class RunWorking(Command):
    """The job gets no signal, whatever happens to lull."""
    lives_on = True
    no_cgroup = False

    def words(self, case):
        return [case.tools.lull, "run", *QUICK, "--delay", "0s", *(["--no-cgroup"] if self.no_cgroup else []), "--", *case.job(0.9, util=95)]

    def judge(self, case, normal):
        if case.noted_lines("signal") or case.noted_lines("load"):
            case.complain(f"the working job was disturbed: {case.notes_text}")
        if case.notes_text and "done" not in case.notes_text:
            case.complain("the job did not finish")
        if not case.notes_text and not case.killed and (case.status == 0 or not case.err):
            case.complain(f"no job, status {case.status}, stderr {case.err!r}")
        if case.notes_text and case.status != 0 and not case.killed and not case.reported(normal):
            case.complain(f"the job ended well, but the status is {case.status}")


class RunWorkingWithoutCgroup(RunWorking):
    no_cgroup = True


class RunHung(Command):
    """The job is ended, or lull says why not."""
    lives_on = True

    def env(self, case):
        return {"PATH": str(case.folder)}  # no debugger, which takes seconds to start

    def words(self, case):
        seconds = 2 if case.killed else 8 * SLOWER
        return [case.tools.lull, "run", *QUICK, "--delay", "0s", "--evidence", case.folder, "--", *case.job(seconds, util=0)]

    def judge(self, case, normal):
        if case.killed:
            if case.notes_text and not case.noted_lines("signal") and "done" not in case.notes_text:
                case.complain("the job is gone without a signal")
        elif case.status != 124 and not case.reported(normal):
            case.complain(f"not ended, status {case.status}: {case.err!r}")
        elif case.status == 124 and not case.noted_lines("signal"):
            case.complain(f"124, but the job got no signal: {case.notes_text}")


class RunHook(RunHung):
    """The same with a hook, which has run before the job is ended, or lull says that it has not."""

    def env(self, case):
        return {}

    def words(self, case):
        seconds = 2 if case.killed else 8 * SLOWER
        return [case.tools.lull, "run", *QUICK, "--delay", "0s", "--on-idle", f"echo $LULL_EVENT >{case.folder}/hook", "--", *case.job(seconds, util=0)]

    def after(self, case):
        case.hooked = (case.folder / "hook").exists()

    def judge(self, case, normal):
        super().judge(case, normal)
        if case.status == 124 and not case.hooked and not case.reported(normal):
            case.complain("ended, and the hook has not run")


class Signals:
    """Two signals of the user's own, by a file and by a command. `queue` is what both say."""
    queue = 0
    limits_memory = True
    rule = "util < 5 and queue < 1 and users < 1 for 300ms"

    def before(self, case):
        super().before(case)
        (case.folder / "queue").write_text(f"{self.queue}\n")

    def sources(self, case):
        return {"queue": f"file:{case.folder}/queue", "users": f"command:echo {self.queue}"}


class RunSignals(Signals, RunHung):
    """The job is ended when its signals say that nothing waits for it, or lull says why not."""

    def words(self, case):
        words = super().words(case)
        words[words.index(RULE)] = self.rule
        sources = [word for name, source in self.sources(case).items() for word in ("--signal-from", f"{name}={source}")]
        return [*words[:2], *sources, *words[2:]]


class RunSignalsWorking(RunSignals):
    """An idle job for which something waits gets no signal."""
    queue = 50

    def words(self, case):
        words = super().words(case)
        return [*words[:words.index("--") + 1], *case.job(1.5, util=0)]

    def judge(self, case, normal):
        RunWorking.judge(self, case, normal)


class Watch(Command):
    """The idle job is ended, or lull says why not; the working one gets no signal."""
    needs_root = True  # for jobs of another user

    def before(self, case):
        case.idle = case.folder / "idle"
        case.open_to_others()
        other = {"user": 12345, "group": 12345, "extra_groups": []}  # what root starts here is one job, that of our ancestor
        case.working = case.start(*case.job(60, util=95), **other)
        case.start(*case.job(60, util=0, gpu=1, notes=case.idle), **other)
        case.wait_until(lambda: case.holders() == 2)

    def words(self, case):
        return [case.tools.lull, "watch", "--per", "job", *QUICK, "--do", "end"]

    def during(self, case):
        case.wait(lambda: len(case.noted(case.idle)) > 1 and "done" in case.stderr())
        case.terminate()

    def after(self, case):
        case.ended_idle = len(case.noted(case.idle)) > 1
        case.works_on = case.working.poll() is None

    def judge(self, case, normal):
        if case.noted_lines("signal") or case.noted_lines("load"):
            case.complain(f"the working job was disturbed: {case.notes_text}")
        if not case.works_on:  # SIGKILL leaves no note
            case.complain("the working job is gone")
        if not case.ended_idle and " done\n" in case.err:
            case.complain(f"the job was said to have ended: {case.err!r}")
        elif not case.ended_idle and not case.killed and not case.reported(normal):
            case.complain(f"the idle job was not ended, status {case.status}: {case.err!r}")


class Park(Command):
    """Parks the whole job, or leaves it running. Whoever fails or is killed: nobody stays locked once lull is run again."""
    scenario = 'driver = "570.86.15"\n[[gpu]]\nmodel = "H100"\ncount = 2\n'
    settle = 20  # a guard that brings the job back
    lives_on = True
    back = False

    def before(self, case):
        case.state, case.parked = case.folder / "states", case.folder / "parked"
        case.state.mkdir()
        case.env |= {"STAND_IN_DIR": str(case.state), "LULL_PARK": str(case.parked), "PATH": f"{case.tools.private}:{case.env['PATH']}"}
        loads = " ".join(f"{case.tools.lull} sim load --gpu {gpu} --util 0 --mem 64MiB &" for gpu in range(self.gpus))
        case.parker = case.start("sh", "-c", f"{loads} wait")
        case.wait_until(lambda: case.holders() == self.gpus)
        if self.back:
            done = case.lull("park", case.parker.pid)
            if done.returncode != 0:
                raise RuntimeError(f"it cannot be parked: {done.stderr}")

    def words(self, case):
        return [case.tools.lull, "unpark" if self.back else "park", "--limit", "5s", *([] if self.back else ["--lock-limit", "5s"]), case.parker.pid]

    def states(self, case):
        children = pathlib.Path(f"/proc/{case.parker.pid}/task/{case.parker.pid}/children").read_text().split()
        files = [case.state / f"state.{pid}" for pid in children]
        return [file.read_text().strip() if file.exists() else "running" for file in files]

    def after(self, case):
        try:
            case.states = self.states(case)
            case.again = ""
            for _ in range(3):
                if self.states(case) == ["running"] * self.gpus:
                    break
                case.again += case.lull("unpark", "--wait", "5s").stderr
            case.in_the_end = self.states(case)
        finally:
            os.killpg(case.parker.pid, signal.SIGKILL)

    def judge(self, case, normal):
        if case.in_the_end != ["running"] * self.gpus:
            case.complain(f"the job is not back: {case.in_the_end}: {case.again!r}")
        if case.killed == "lull":
            return
        whole = case.states in (["running"] * self.gpus, ["checkpointed"] * self.gpus)
        if not whole and case.status != 125 and not case.killed:
            case.complain(f"half of the job is parked: {case.states}, status {case.status}")
        if case.status == 0 and case.states != normal.states:
            case.complain(f"{case.states}, and status 0")
        if case.status != 0 and not case.err and not case.killed:
            case.complain(f"status {case.status} without a word")


class Unpark(Park):
    back = True


SLURM_ROWS = {"22": 12345, "23": 12346}


class SlurmWatch(Command):
    """The idle Slurm job is requeued, or lull says why not; the one that works is left alone."""
    needs_root = True  # only root's allocation files count

    def env(self, case):
        return case.slurm

    def stand_in(self, case, name, script):
        path = case.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def before(self, case):
        case.bin, devices, case.calls = case.folder / "bin", case.folder / "nodes", case.folder / "calls"
        case.bin.mkdir()
        devices.mkdir()
        for number in range(self.gpus):
            os.mknod(devices / f"nvidia{number}", 0o020600, os.makedev(195, number))
        (devices / "gres.conf").write_text(f"Name=gpu File={devices}/nvidia[0-{self.gpus - 1}]\n")
        os.utime(devices / "gres.conf", (1, 1))
        self.stand_in(case, "slurmd", f"echo 'slurmd: Gres Name=gpu Type=(null) Count={self.gpus} Index=0 ID=7696487 "
                                      f"File={devices}/nvidia[0-{self.gpus - 1}] (null)' >&2")
        for job, user in SLURM_ROWS.items():
            (case.folder / f"row.{job}").write_text(squeue_row(job, user) + "\n")
        self.stand_in(case, "squeue", f"""case "$*" in *--jobs=23*) job=23;; *) job=22;; esac
case "$*" in *--format*) echo "$job (null)";; *) cat {case.folder}/row.$job;; esac""")
        for job, gpu in (("22", "1"), ("23", "0")):
            (case.folder / f"given.{job}").write_text(f"JobId={job} JobName=x\n   StartTime=1\n   SuspendTime=None\n     Nodes=gpu1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:{gpu})\n")
        self.stand_in(case, "scontrol", f"""for job in "$@"; do :; done
case "$1" in show) cat {case.folder}/given.$job;; *) echo "$*" >>{case.calls};; esac""")
        for name in ("scancel", "srun"):
            self.stand_in(case, name, f'echo "{name} $*" >>{case.calls}')
        case.slurm = {"LULL_SLURM_DIR": str(case.folder / "jobs"), "SLURMD_NODENAME": "gpu1", "SLURM_CONF": str(devices / "slurm.conf"),
                      "PATH": f"{case.bin}:{case.env['PATH']}"}
        case.working = case.start(*case.job(60, util=95))
        case.wait_until(lambda: case.holders() == 1)
        for job, gpu in (("22", "1"), ("23", "0")):
            prolog = {**case.env, **case.slurm, "SLURM_JOB_ID": job, "SLURM_JOB_UID": str(SLURM_ROWS[job]), "SLURM_JOB_USER": f"user{job}",
                      "SLURM_JOB_GPUS": gpu, "SLURM_NODELIST": "gpu1", "SLURM_JOB_RESTART_COUNT": "0"}
            subprocess.run([case.tools.lull, "slurm", "prolog"], env=prolog, check=True, stdin=subprocess.DEVNULL)

    def words(self, case):
        return [case.tools.lull, "watch", "--per", "job", "--slurm", "--every", "50ms", "--step", f"{RULE}: slurm=requeue"]

    def called(self, case):
        return case.calls.read_text().splitlines() if case.calls.exists() else []

    def during(self, case):
        case.wait(lambda: any("requeue" in call for call in self.called(case)))
        case.terminate()

    def after(self, case):
        case.verbs = [call for call in self.called(case) if "requeue" in call or "cancel" in call]
        case.works_on = case.working.poll() is None

    def judge(self, case, normal):
        if any(call.split()[-1] != "22" for call in case.verbs) or case.noted_lines("signal") or not case.works_on:
            case.complain(f"the working job was disturbed: {case.verbs} {case.notes_text}")
        if not case.verbs and not case.killed and not case.reported(normal):
            case.complain(f"the idle job was not requeued, status {case.status}: {case.err!r}")


def squeue_row(job, user):
    """A job as squeue 22.05 prints it."""
    return (f"{job:24}{'RUNNING':24}{0:<16}{1:<8}{1:<8}{job:24}{'N/A':64}{'N/A':24}{user:<16}{1:<12}{'main':64}{'(null)':64}{'(null)':64}"
            f"{'cpu=1,node=1,billing=1':256}{'gpu1':1024}")


class Fill(Command):
    """No filler outlives lull. It pauses for somebody who opens the GPU and goes on, or lull says why not."""
    options = ["--log", "log"]

    def words(self, case):
        return [case.tools.lull, "fill", "--gpus", "0", "--idle", "util < 5 for 200ms", "--every", "100ms", "--confirm", "300ms", "--grace", "300ms",
                "--user-idle", "0s", "--log-format", "json", *self.options, "--", *case.job(60)]

    def events(self, case):
        return re.findall(r'"event": ?"([a-z-]+)"', case.stderr())

    def during(self, case):
        case.wait(lambda: case.noted() and "started" in self.events(case))
        before = len(self.events(case))
        opener = case.start(sys.executable, "-S", "-c", "import sys, time; f = open(sys.argv[1]); time.sleep(60)", f"{case.env['LULL_DEV']}/nvidia0")
        case.wait(lambda: {"went-on", "ended"} & set(self.events(case)[before:]))
        case.after_opening = self.events(case)[before:]
        opener.kill()
        opener.wait()
        case.terminate()

    def judge(self, case, normal):
        if case.killed == "lull" or case.reported(normal):
            return
        if case.status != 143:
            case.complain(f"status {case.status}: {case.err!r}")
        if not case.notes_text:
            case.complain(f"no filler was started: {case.err!r}")
        elif "halted" not in case.after_opening:
            case.complain(f"it did not pause for who opened the GPU: {case.err!r}")
        elif not {"went-on", "ended"} & set(case.after_opening[case.after_opening.index("halted"):]):
            case.complain(f"it stayed paused: {case.err!r}")


class FillWithoutCgroup(Fill):
    options = ["--no-cgroup", "--detect", "inotify"]


class FillBusy(Fill):
    """No filler is started on a GPU that works."""
    options = []

    def before(self, case):
        case.start(*case.job(60, util=95, notes=case.folder / "other"))
        case.wait_until(lambda: case.holders() == 1)

    def during(self, case):
        case.wait(lambda: case.noted(), 1)
        case.terminate()

    def judge(self, case, normal):
        if case.notes_text:
            case.complain(f"a filler was started: {case.err!r}")
        if case.status != 143 and not case.killed and not case.reported(normal):
            case.complain(f"status {case.status}: {case.err!r}")


class FillLeased(FillBusy):
    """Nor on one that somebody has leased."""

    def before(self, case):
        case.start(case.tools.lull, "pick", "--gpus", "0", "--", "sleep", "60")
        case.wait_until(lambda: case.leased() == 1)


class Record(Command):
    """Whole rows for each sample, or it says what is missing."""

    def words(self, case):
        return [case.tools.lull, "record", "--every", "50ms", "--for", "300ms", "-o", case.folder / "trace.csv"]

    def before(self, case):
        case.start(*case.job(60, util=95))
        case.wait_until(lambda: case.holders() == 1)

    def after(self, case):
        path = case.folder / "trace.csv"
        case.trace = path.read_text() if path.exists() else ""

    def judge(self, case, normal):
        if case.status != 0:
            if not case.err and not case.killed:
                case.complain(f"status {case.status} without a word")
            return
        rows = list(csv.reader(io.StringIO(case.trace)))
        usual = list(csv.reader(io.StringIO(normal.trace)))
        if any(len(row) != len(usual[0]) for row in rows):
            case.complain(f"rows of different lengths: {case.trace[-300:]!r}")
        if (not rows or rows[0] != usual[0]) and not case.reported(normal):
            case.complain(f"no header: {case.trace[:200]!r}")
        if len(rows) < len(usual) * 0.6 and not case.reported(normal):
            case.complain(f"{len(rows)} rows instead of {len(usual)}, and not a word")


class Serve(Command):
    """Serves what is, or that it cannot tell; its socket goes with it."""
    program = "lull-serve"

    def before(self, case):
        case.start(*case.job(60, util=95))
        case.wait_until(lambda: case.holders() == 1)

    def words(self, case):
        return [case.tools.serve, "--listen", f"unix:{case.folder}/serve.sock", "--every", "100ms"]

    def scrape(self, case):
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(2)
                one.connect(str(case.folder / "serve.sock"))
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b""
                while more := one.recv(1 << 16):
                    answer += more
        except OSError:
            return ""
        head, _, body = answer.decode().partition("\r\n\r\n")
        return body if head.startswith("HTTP/1.1 200") else ""

    def during(self, case):
        case.scrapes = []
        case.wait(lambda: case.scrapes.append(self.scrape(case)) or sum("lull_up 1" in one for one in case.scrapes) >= 5)
        case.terminate()

    def after(self, case):
        case.socket_left = (case.folder / "serve.sock").exists()

    def judge(self, case, normal):
        for text in case.scrapes:
            busy = re.search(r'^lull_gpu_utilization_ratio{gpu="0".*} (.*)', text, re.M)
            if busy and float(busy[1]) < 0.5:
                case.complain(f"the GPU that works was served as idle: {busy[0]}")
            if "lull_up 0" in text and "lull_gpu" in text:
                case.complain("it is down, and serves values")
        if case.socket_left and not case.killed and not case.reported(normal) and not case.fault[0].split(" ")[1].startswith(("unlink", "newfstatat")):
            case.complain("its socket was left")
        if case.status != 0 and not case.err and not case.killed:
            case.complain(f"status {case.status} without a word")
        if not any("lull_up 1" in text for text in case.scrapes) and not case.killed and not case.reported(normal):
            case.complain(f"it served nothing, status {case.status}: {case.err!r}")


class Replay(Command):
    """The same answer, or an error."""
    gpus = 1
    trace = None

    def before(self, case):
        path = case.folder / "trace.csv"
        rows = ["time,gpu,util_percent,mem_used_bytes,power_watts"]
        for second in range(0, 40000, 10):
            idle = second // 5000 % 2
            rows.append(f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z,0,{0 if idle else 90},1000000000,{60 if idle else 300}")
        path.write_text("\n".join(rows) + "\n")
        subprocess.run(["zstd", "-q", path], check=True)

    def words(self, case):
        return [case.tools.lull, "replay", "--idle", "util < 5 for 10m", "--json", "--html", case.folder / "page.html", case.folder / "trace.csv",
                case.folder / "trace.csv.zst"]

    def after(self, case):
        path = case.folder / "page.html"
        case.page = path.read_text() if path.exists() else ""

    def judge(self, case, normal):
        if case.status != 0:
            if not case.err and not case.killed:
                case.complain(f"status {case.status} without a word")
            if case.killed == "" and case.page and len(case.page) < len(normal.page) * 0.9:
                case.complain("half a page was left")
        elif not case.reported(normal) and (case.out.replace(str(case.folder), "") != normal.out.replace(str(normal.folder), "")
                                            or abs(len(case.page) - len(normal.page)) > 100):
            case.complain(f"another answer and not a word: {case.out[:200]!r}, page of {len(case.page)} instead of {len(normal.page)}")


PROGRAM = """
import os, signal, sys, lull
os.access("/faults-on", 0)
seen = []
try:
    watch = lull.watch(idle="util < 5 for 300ms", every=0.05, do=seen.append)
    watch.wait(float(sys.argv[1]))
    watch.close()
finally:
    os.access("/faults-off", 0)
    if signal.pthread_sigmask(signal.SIG_BLOCK, []):
        print("deaf to signals")
print("fired" if seen else "quiet")
"""


class PythonWatch(Command):
    """Fires on an idle GPU, or says why not; the program goes on."""
    marks = True
    util, seconds = 0, 6

    def env(self, case):
        return {"CUDA_VISIBLE_DEVICES": "0"}

    def words(self, case):
        return ["/usr/bin/python3", "-S", "-c", PROGRAM, self.seconds]

    def before(self, case):
        case.lull("sim", "set", "0", f"util={self.util}")

    def judge(self, case, normal):
        if case.killed.startswith("python"):
            return
        if case.status != 0 and "lull" not in case.err:
            case.complain(f"the program ended with {case.status}: {case.err!r}")
        if case.status == 0 and case.out.strip() != normal.out.strip() and not case.reported(normal):
            case.complain(f"{case.out.strip()!r} instead of {normal.out.strip()!r}, and not a word")
        if "deaf" in case.out:
            case.complain("the program hears no signals any more")
        if self.util > 5 and "fired" in case.out:
            case.complain("it fired on a GPU that works")


class PythonWatchWorking(PythonWatch):
    util, seconds = 95, 0.6


class PythonSignals(Signals, PythonWatch):
    """The same with signals of the user's own, which programs of lull's read."""

    def words(self, case):
        program = PROGRAM.replace(f'idle="{RULE}"', f'idle="{self.rule}", signals={self.sources(case)!r}')
        return ["/usr/bin/python3", "-S", "-c", program, self.seconds]


class PythonSignalsWorking(PythonSignals):
    queue, seconds = 50, 1.5

    def judge(self, case, normal):
        super().judge(case, normal)
        if "fired" in case.out:
            case.complain("it fired while something waited")


KILL_PROGRAM = """
import os, sys, time, lull
os.access("/faults-on", 0)
try:
    watch = lull.watch(idle="util < 5 for 300ms", every=0.05, do="kill", grace="300ms")
    time.sleep(float(sys.argv[1]))
    watch.close()
finally:
    os.access("/faults-off", 0)
print("quiet")
"""


class PythonKill(PythonWatch):
    """A helper ends the program on an idle GPU, or it is said why not."""

    def words(self, case):
        return ["/usr/bin/python3", "-S", "-c", KILL_PROGRAM, self.seconds]

    def judge(self, case, normal):
        if case.killed.startswith("python"):
            return
        if case.status != normal.status and not case.err:
            case.complain(f"status {case.status} instead of {normal.status}, and not a word")
        if self.util > 5 and case.status in (137, 143):
            case.complain("the working job was ended")


class PythonKillWorking(PythonKill):
    util, seconds = 95, 0.6


COMMANDS = {
    "status": Status(), "pick": Pick(), "pick-busy": PickBusy(), "run-working": RunWorking(), "run-working-no-cgroup": RunWorkingWithoutCgroup(), "run-hung": RunHung(), "run-hook": RunHook(), "pick-wait": PickWait(),
    "watch": Watch(), "slurm-watch": SlurmWatch(), "park": Park(), "unpark": Unpark(), "fill": Fill(), "fill-no-cgroup": FillWithoutCgroup(), "fill-busy": FillBusy(),
    "fill-leased": FillLeased(), "record": Record(), "serve": Serve(), "replay": Replay(),
    "run-signals": RunSignals(), "run-signals-working": RunSignalsWorking(),
    "python-watch": PythonWatch(), "python-watch-working": PythonWatchWorking(),
    "python-signals": PythonSignals(), "python-signals-working": PythonSignalsWorking(),
    "python-kill": PythonKill(), "python-kill-working": PythonKillWorking(),
}
