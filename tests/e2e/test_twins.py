"""The drop-ins and twins of their originals, side by side on the same random schedules: what can be seen must be the same.

The twins (twins/) are our own, written by the documents and by the lines that the originals log. They have the faults of
the originals, except those named here. A handful of schedules in every run; LULL_TWINS=300 for many, LULL_TWINS_SEED=17
for one of them, LULL_TWINS_AT_ONCE=4 on a busy machine.
"""
import collections
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time

import pytest
from conftest import LIMIT, Sim, build_dir, clean_environment, wait_until
from twins import idle_schedules, mon_schedules, select_schedules, sentinel_schedules
from twins.side_by_side import HERE, PYTHON, Pair, Side, differences, faults_met, many

SCHEDULES = int(os.environ.get("LULL_TWINS", "6"))
BATCH = 40  # of schedules in one test
SEEDS = [int(seed) for seed in os.environ.get("LULL_TWINS_SEED", "").split(",") if seed] or range(SCHEDULES)
BATCHES = [list(SEEDS)[at:at + BATCH] for at in range(0, len(SEEDS), BATCH)]

# What is different on purpose, all of it. A twin that is told the name does as lull does.
MENDED = {
    "gpu_idle_timeout": {
        "failed reading": "a reading that fails killed the healthy job: unknown is not idle, said, watched on",
        "no GPU at the start": "the job was started and killed at the first sample: refused instead, before it starts",
        "own GPUs": "a neighbour's GPU kept an idle job alive: only those of CUDA_VISIBLE_DEVICES count",
        "whole tree": "an idle kill left the children of the job: nothing of the tree is left",
        "orphan": "SIGTERM and Ctrl-C left the job without its wrapper: passed on, and its end waited for",
        "status of a signal": "a job that died of SIGTERM gave 241: 143, as a shell has it",
        "ends at once": "the end of the job was seen at the next sample: at once",
        "failed kill": "beside a task it stopped watching after a failure: tries again",
        "no det": "found out at the kill: refused at the start",
        "fractions": "only whole numbers were taken: -s 0.5 works too",
        "unread output": "status 120 where nobody reads what it complains of: as if somebody did",
    },
    "gpu_sentinel": {
        "rounded mean": "10 % and 70 % were less than 40 %, by the rounding of 0.1 + 0.7: equal",
        "dies with the driver": "armed or not, it ended when the driver went: keeps its state, says so",
        "silent about what it cannot read": "never armed, without a word: said",
        "absent device": "none of the devices named is there: crashed at the first tick; an error at the start",
        "again and again": "the power command was run again every second though it worked: once",
        "failure unsaid": "one that fails was tried every second without a word: every 10 seconds, said now and then",
        "may not": "found out when it was too late: refused at the start where sudo wants a password",
        "no kill duration": "a duration of 0 acted whatever the GPUs did: at the first sample below the threshold",
        "late lines": "its lines came out when it ended, if at all: at once",
        "unread output": "status 120 where nobody reads its lines any more: as if somebody did",
        "traceback": "Ctrl-C gave a page of Python: nothing; the status is the same",
    },
    "gpu_mon": {
        "prefixes of names": "ignore_programs=nvidia-smi ignored a program called nvidia, too: whole names",
        "programs of other GPUs": "a program that holds another GPU as well was neither ours nor anybody: ours",
        "children": "a child of a program that opens the GPU was somebody else: the whole tree is ours",
        "children left behind": "a program was ended without its children: all its processes",
        "fails for ever": "a program that fails was started again every second: backs off, said",
        "SIGKILL only": "programs were killed at once: SIGTERM first",
        "no environment": "a program on some GPUs had no PATH and no HOME: the environment, and CUDA_VISIBLE_DEVICES",
        "quotes": "cmd was split at blanks: as a shell does it",
        "log stays empty": "log was opened for reading: appended to",
        "missing program": "the daemon died of it: said, and the others go on",
        "started again before it opens its GPU": "one that is slow to open its GPU was started a second time: once",
        "programs go on": "Ctrl-C and SIGTERM left the programs: they end",
        "named once more": "a program that was just stopped was listed as one to ignore, if its name was: not",
    },
    "gpuselect": {
        "a lost GPU": "one GPU that cannot be read crashed it: that one is not chosen, the others serve",
        "one of the devices named": "-d 0,1 gave one GPU: both",
        "a device below zero": "told only once the driver had answered: at once, whether there is one or not",
        "lost status": "the command's status was always 0: passed on",
        "orphan": "SIGTERM left the job without its wrapper: reaches the job",
        "eaten options": "options of the job were read as its own: they end at the command",
        "traceback": "a refusal was a page of Python: one line under its own name, and then why",
        "unread refusal": "Python goes on where nobody reads: ends by SIGPIPE, as other programs do",
    },
}
# Lines of ours that the originals do not have, and what the twins say in their place ("": nothing).
OURS = {
    "gpu_idle_timeout": [
        (r"WARNING: gpu_idle_timeout: .*no GPU can be read.*", "WARNING: gpu_idle_timeout: no GPU can be read"),
        (r"ERROR: gpu_idle_timeout: no GPU can be read.*", "ERROR: gpu_idle_timeout: no GPU can be read"),
        # The first sample after the driver came back.
        (r"WARNING: gpu_idle_timeout: .*cannot be judged while .* was measured for only .*", ""),
        (r"WARNING: gpu_idle_timeout: .*cannot be judged.*", "WARNING: gpu_idle_timeout: cannot be judged"),
        (r"WARNING: gpu_idle_timeout: .*CUDA_VISIBLE_DEVICES (hides every|names no) GPU.*",
         "WARNING: gpu_idle_timeout: CUDA_VISIBLE_DEVICES hides every GPU"),
        (r"WARNING: gpu_idle_timeout: CUDA_VISIBLE_DEVICES: '1' is not a device of this machine.*", ""),
        (r"WARNING: gpu_idle_timeout: det .*; again in .*", "WARNING: gpu_idle_timeout: det: again"),
        (r"INFO: gpu_idle_timeout: (GPUs can be read now|the rule can be judged again|now watching GPU).*", ""),
        (r".*no sample for .*", ""),  # this machine is slow today
        (r"gpu_idle_timeout: .* cannot be killed", "gpu_idle_timeout: cannot be killed"),
        (r"gpu_idle_timeout: `det` is not in PATH.*", "gpu_idle_timeout: no det"),
        (r"(ERROR: You must append the program and arguments you would like to execute).*", r"\1"),
    ],
    "gpu_sentinel": [
        (r"gpu_sentinel: average GPU usage was below .*", ""),
        (r"gpu_sentinel: GPU .* is not on this system: judging on .*", ""),
        (r"gpu_sentinel: .*cannot be judged while .* was measured for only .*", ""),  # the driver came back
        (r"gpu_sentinel: .*(GPUs can be read now|can be judged again|no sample for|called off).*", ""),
        (r"gpu_sentinel: .*no GPU can be read.*", "gpu_sentinel: no GPU can be read"),
        (r"gpu_sentinel: .*cannot be judged.*", "gpu_sentinel: cannot be judged"),
        (r"gpu_sentinel: (there is none|--gpu_devices: no GPU).*", "gpu_sentinel: there is none"),
        (r"gpu_sentinel: no permission.*", "gpu_sentinel: no permission"),
        (r"gpu_sentinel: (shutdown|reboot): .*; again in 10s", "gpu_sentinel: again"),
    ],
    "gpu_mon": [
        (r".* process-\w+ on GPUs? [\d, ]+: could not be started: .*", "WARNING ProcessTracker (could not be started)"),
        (r".* process-\w+ on GPUs? [\d, ]+: backing off .*", "WARNING ProcessTracker (backing off)"),
        (r".* process-\w+ on GPUs? [\d, ]+: (paused|resumed).*", ""),
        (r".* there is no such user; who types under that name counts", ""),
    ],
    "gpuselect": [
        (r"(gpuselect: Invalid device ID -?\d+) \(.*", r"\1"),
        (r"(gpuselect: (ambiguous option: --\w+|argument \S+ ignored explicit argument)).*", r"\1"),
        (r"gpuselect: (.*libnvidia-ml.*|.*driver is not loaded.*|nvmlInit: 9)", "gpuselect: no driver"),
    ],
}


# What a job has in its environment from us: which lease it holds.
OWN_VARIABLES = ("LULL_LEASE=",)


def in_place(name, line):
    for pattern, other in OURS[name]:
        if re.fullmatch(pattern, line):
            return re.sub(pattern, other, line)
    return line


def check(results, name):
    """Tells all that went wrong; and how many schedules came by which fault of the original."""
    met = collections.Counter(fault for found in results.alike.values() for fault in found)
    print(f"\n{name}: {len(results.alike)} schedules alike; {len(results.again)} tries repeated: {results.again}; met {dict(met.most_common())}")
    assert not results.wrong, f"{len(results.wrong)} of {len(results.alike) + len(results.wrong)}:\n" + "\n".join(results.wrong)
    assert set(met) <= set(MENDED[name]), "a fault of the original that is not listed"


@pytest.mark.parametrize("name", sorted(MENDED))
def test_what_is_listed_as_different_is_in_the_twin(name):
    text = (HERE / f"{name}.py").read_text()
    assert [fault for fault in MENDED[name] if f'mended("{fault}")' not in text] == []


# ---- gpu_idle_timeout ----------------------------------------------------------------------------

def said(name, effects, schedule):
    """The lines of stderr without times, numbers of processes, and how often the same was said."""
    lines, warnings, usage, reading = [], set(), collections.Counter(), False
    for line in effects.err:
        line = re.sub(r"^[\d-]+ [\d:,]+: ", "", line)
        line = in_place(name, re.sub(r"(process|pid) \d+", r"\1 _", line))
        reading = line.startswith("usage:") or reading and line.startswith(" ")
        if found := re.fullmatch(r"DEBUG: gpu_idle_timeout: (\S+) usage (\d+%|\[N/A\])", line):
            usage[found[1]] += 1
        elif line.startswith("WARNING: "):
            warnings.add(line)
        elif line and not reading and not (schedule.cut and "waiting for delay samples" in line):
            lines.append(line)
    if schedule.closed:
        return []
    if not schedule.steady:
        usage = set(usage) if schedule.fires else set()
    return [lines, set() if schedule.cut else warnings, usage]


def run_idle_timeout(folder, seed):
    schedule = idle_schedules.random_schedule(seed)
    env = dict(schedule.env)
    if schedule.det:
        (folder / f"bin{seed}").mkdir()
        det = folder / f"bin{seed}" / "det"
        det.write_text(f'#!/bin/sh\necho "$*" >> calls\n{schedule.det}\n')
        det.chmod(0o755)
        env["PATH"] = f"{det.parent}:{os.environ['PATH']}"
    name = "gpu_idle_timeout"
    with Pair(folder / str(seed), name, schedule.scenario, schedule.command, env, MENDED[name], schedule.own_words,
              terminal=schedule.told == "Ctrl-C", closed=schedule.closed) as pair:
        if schedule.told:
            for side in (pair.twin, pair.ours):
                begun = "err" in schedule.closed
                wait_until(lambda: side.process.poll() is not None or ((schedule.job is None or side.is_up()) and
                           (begun or "Starting GPU" in side.texts["err"].read_text())), what="its start")
            if schedule.job is None:  # long enough for what must not happen
                time.sleep(idle_schedules.LIFE)
            for side in (pair.twin, pair.ours):
                side.send(schedule.told)
        effects = {}
        for which, side in (("twin", pair.twin), ("ours", pair.ours)):
            effects[which] = side.effects()
            effects[which].err = said(name, effects[which], schedule)
            if effects[which].out and effects[which].out[0].startswith("usage: gpu_idle_timeout"):
                effects[which].out = ["(help)"]
        if found := differences(effects["ours"], effects["twin"]):
            raise AssertionError(f"{schedule}\n" + "\n".join(found))
        return faults_met(pair.notes)


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_gpu_idle_timeout_does_as_its_twin(tmp_path, lull, seeds):
    check(many(run_idle_timeout, tmp_path, seeds), "gpu_idle_timeout")


# ---- gpu_sentinel --------------------------------------------------------------------------------

POWER = {
    "busctl": "exit 1",
    "sudo": '[ "$1" = -n ] && shift\n{sudo} || exit 1\n[ "$1" = -l ] && exit 0\nexec "$@"',
    "shutdown": 'echo "shutdown $*" >> calls\n{power}',
    "reboot": 'echo "reboot $*" >> calls\n{power}',
}


def is_root(schedule):
    return os.geteuid() == 0 and not schedule.nobody


def power_programs(folder, schedule):
    folder.mkdir()
    for name, script in POWER.items():
        text = script.format(sudo="true" if schedule.sudo or is_root(schedule) else "false", power=schedule.power)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def seen_of_sentinel(name, effects, schedule):
    """How often it was tried does not count, nor in which words it warns of sudo."""
    if "calls" in effects.files:
        calls = {line.strip() for line in effects.files["calls"]}
        if is_root(schedule):  # root needs no sudo, and no other command than for the other action
            calls = {"reboot" if call == "shutdown -r now" else call for call in calls}
        effects.files["calls"] = sorted(calls)
    at = next((at for at, line in enumerate(effects.out) if line.startswith("Starting")), 0)
    effects.out[:at] = ["(a warning)"] * (at > 0)
    if effects.out and effects.out[0].startswith("usage: gpu_sentinel"):
        effects.out = ["(help)"]
    lines = [in_place(name, line) for line in effects.err if not line.startswith(("usage:", " "))]
    effects.err = [] if schedule.closed else sorted({line for line in lines if line})
    return effects


def run_sentinel(folder, seed):
    schedule = sentinel_schedules.random_schedule(seed)
    name = "gpu_sentinel"
    env = schedule.env | {"PATH": power_programs(folder / f"bin{seed}", schedule)}
    with Pair(folder / str(seed), name, schedule.scenario, schedule.words, env, MENDED[name],
              terminal=schedule.told == "Ctrl-C", closed=schedule.closed, nobody=schedule.nobody) as pair:
        sides = (pair.twin, pair.ours)
        limit = time.monotonic() + schedule.lasts + 1
        while time.monotonic() < limit and any(side.process.poll() is None for side in sides):
            time.sleep(0.05)
        if not all(side.process.poll() is None for side in sides):  # one has ended: the other will
            limit = time.monotonic() + LIMIT
            while time.monotonic() < limit and any(side.process.poll() is None for side in sides):
                time.sleep(0.05)
        for side in sides:
            if side.process.poll() is None:
                side.send(schedule.told)
        twin, ours = (seen_of_sentinel(name, side.effects(), schedule) for side in sides)
        if found := differences(ours, twin):
            raise AssertionError(f"{schedule}\n" + "\n".join(found))
        return faults_met(pair.notes)


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_gpu_sentinel_does_as_its_twin(lull, seeds):
    with tempfile.TemporaryDirectory() as folder:  # into pytest's own nobody else may go
        os.chmod(folder, 0o755)
        check(many(run_sentinel, pathlib.Path(folder), seeds), "gpu_sentinel")


# ---- gpu_mon -------------------------------------------------------------------------------------

VISITOR = """#!/usr/bin/python3 -S
import sys, time
held = open(sys.argv[1])
print("there", flush=True)
time.sleep(1000)
"""


class MonSide:
    """One of the two, on a simulation of its own: they would end each other's programs."""

    def __init__(self, folder, schedule, which):
        self.stack = contextlib.ExitStack()
        self.folder, self.visitors = folder / which, []
        folder.mkdir(exist_ok=True)
        self.gpus = self.stack.enter_context(Sim(str(build_dir() / "lull"), gpus=schedule.gpus, env=clean_environment()))
        self.terminals = self.gpus.folder / "dev/pts"
        self.terminals.mkdir()
        (self.terminals / "0").touch()
        os.utime(self.terminals / "0", (1, 1))  # whose user went long ago
        config = folder / f"{which}.conf"
        config.write_text(schedule.config.replace("FOLDER", str(self.folder)))
        tool = [build_dir() / "gpu_mon"] if which == "ours" else [PYTHON, "-S", HERE / "gpu_mon.py"]
        self.notes = folder / "notes"
        self.notes.touch()
        (folder / f"{which}.run").mkdir()
        env = self.gpus.env | {"TWIN_MENDED": ",".join(MENDED["gpu_mon"]), "TWIN_NOTES": str(self.notes),
                               "LULL_CONTROL": str(folder / f"{which}.run")}
        self.side = Side(self.folder, [*tool, "-c", config], env)
        self.stack.callback(self.side.close)

    def type(self, now):
        """At another terminal, which is closed afterwards."""
        if now:
            (self.terminals / "1").touch()
        else:
            (self.terminals / "1").unlink(missing_ok=True)

    def started(self):
        """How many programs have been started so far."""
        file = self.folder / "started"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def saw_an_end(self):
        return " is terminated" in self.side.texts["err"].read_text()

    def visit(self, number, name):
        script = self.folder.parent / f"{self.folder.name}.visitors" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(VISITOR)
        script.chmod(0o755)
        command = [PYTHON, "-S", script] if name == "python3" else [script]
        visitor = subprocess.Popen([*command, self.gpus.folder / f"dev/nvidia{number}"], stdout=subprocess.PIPE)
        self.stack.callback(self.leave, visitor)
        self.visitors.append(visitor)
        assert visitor.stdout.readline() == b"there\n"

    @staticmethod
    def leave(visitor):
        visitor.kill()
        visitor.wait()
        visitor.stdout.close()

    def seen(self, schedule):
        effects = self.side.effects()
        lines = []
        for line in effects.err:
            line = re.sub(r"^[\d-]+ [\d:,]+ ", "", re.sub(r"pid=\d+", "pid=_", line)).replace(str(self.folder), "FOLDER")
            if len(schedule.visitors) > 1:  # the first to come is named by us, of two in one look the first in its list by the twin
                line = re.sub(r"(preempted by proc) ProcInfo.*", r"\1 …", line)
            if line := in_place("gpu_mon", re.sub(r" {2,}", " ", line)):
                lines.append(line)
        # What is told at every interval is told, however often; so is a program that ends again and again.
        often = re.compile(r"INFO gpu_mon |.*(gpus are idle|pid in proc|Whitelisted proc|no process config)")
        counted = collections.Counter(line for line in lines if not often.match(line))
        # One that cannot be started is tried again by and by; two visitors do not come at the same moment.
        again = [line for line in counted if "/nonexistent/" in line or line.endswith(("(could not be started)", "(backing off)"))]
        counted = {**counted, **dict.fromkeys(again, 1)}
        unsure = ("gpus are idle", "no process config") if len(schedule.visitors) > 1 else ("gpus are idle",)
        if schedule.ends:  # and whether it ran when somebody came
            counted = {line: 1 for line in counted if "Stop" not in line and "Users" not in line}
            effects.files = {name: set(text) for name, text in effects.files.items() if name != "ended"}
            effects.out = sorted(set(effects.out))
        effects.err = [sorted(counted.items()), sorted({line for line in lines if often.match(line) and not any(one in line for one in unsure)})]
        effects.files = {name: sorted(text) for name, text in effects.files.items()}
        return effects


def run_mon(folder, seed):
    schedule = mon_schedules.random_schedule(seed)
    folder = folder / str(seed)
    with contextlib.ExitStack() as stack:
        sides = []
        for which in ("twin", "ours"):
            sides.append(MonSide(folder, schedule, which))
            stack.enter_context(sides[-1].stack)

        def settle():
            """On a loaded machine either may be late: until both have started as often as the other, for a while."""
            limit = time.monotonic() + 15
            while time.monotonic() < limit and len({side.started() for side in sides}) > 1 and not schedule.ends:
                time.sleep(0.1)

        def see_ends():
            """Where programs end by themselves: until both sides have seen that, for a while."""
            limit = time.monotonic() + 15
            while time.monotonic() < limit and len({side.saw_an_end() for side in sides}) > 1 and schedule.ends:
                time.sleep(0.1)

        time.sleep(mon_schedules.COME)
        settle()
        for side in sides:
            for visitor in schedule.visitors:
                side.visit(*visitor)
            side.type(schedule.typed)
        time.sleep(mon_schedules.GO - mon_schedules.COME)
        for side in sides:
            for visitor in side.visitors:
                visitor.kill()
            side.type(False)
        time.sleep(mon_schedules.END - mon_schedules.GO)
        settle()
        see_ends()
        for side in sides:
            side.side.send(schedule.told)
        twin, ours = (side.seen(schedule) for side in sides)
        if found := differences(ours, twin):
            raise AssertionError(f"{schedule}\n" + "\n".join(found))
        return faults_met(sides[0].notes)


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_gpu_mon_does_as_its_twin(tmp_path, lull, seeds):
    check(many(run_mon, tmp_path, seeds), "gpu_mon")


# ---- gpuselect -----------------------------------------------------------------------------------

INFO = re.compile(r"GpuInfo\(device=(\d+), name='([^']*)', util=(\w+), mem_util=(\w+),.* processes=(\w+),.*\)")


def told_by_debug(line):
    """What -D tells, of a GPU what the twin reads of it; nothing of one that is lost. What we have against it is ours."""
    if not line or line.startswith(("usage:", " ", "gpuselect: ")) or re.match(r"GPU \d+: |Device \d+: (?!GpuInfo)", line):
        return ""
    line = re.sub(r"(CUDA_VISIBLE_DEVICES=).*", r"\1…", line)  # at random
    line = INFO.sub(r"GpuInfo(\1, \2, \3, \4, \5)", line)
    return re.sub(r"GpuInfo\((\d+), .*None.*\)", r"GpuInfo(\1)", line)


def seen_of_select(effects, line):
    """Why a GPU was not chosen is ours to word."""
    if "facts" in effects.files:
        effects.files["facts"] = [one for one in effects.files["facts"] if not one.startswith(OWN_VARIABLES)]
    told = [in_place("gpuselect", one.replace("gpuselect: error: ", "gpuselect: ")) for one in effects.err
            if one.startswith("gpuselect: ")]
    usage = any(one.startswith("usage: gpuselect [-h] [-d DEVICES]") for one in effects.err)
    debugged = [one for one in map(told_by_debug, effects.err) if one]
    effects.err = [] if line.closed else [usage, told[:1], debugged]
    if effects.out and effects.out[0].startswith("usage: gpuselect"):
        effects.out = ["(help)"]
    return effects


def run_select_line(gpus, folder, line, mended):
    """Ours first: what it chose at random the twin is told, and whether it might."""
    def run(which, command, env):
        side = Side(folder / which, command, gpus.env | line.env | env, closed=line.closed)
        try:
            if line.told:
                wait_until(side.is_up, what="the job")
                side.send(line.told)
            return seen_of_select(side.effects(), line)
        finally:
            side.close()

    folder.mkdir()
    ours = run("ours", [build_dir() / "gpuselect", *line.command], {})
    values = [one.partition("=")[2] for one in ours.files.get("facts", []) if one.startswith("CUDA_VISIBLE_DEVICES=")]
    chosen = values[0] if values else ours.out[0] if ours.status == 0 and ours.out else ""
    twin = run("twin", [PYTHON, "-S", HERE / "gpuselect.py", *line.command],
               {"TWIN_CHOSEN": chosen if line.job else "", "TWIN_MENDED": ",".join(mended),
                "TWIN_NOTES": str(folder.parent / "notes")})
    if twin.status == 0 and twin.out and not line.job and twin.out != ["(help)"]:
        picked = chosen.split(",")
        assert set(picked) <= set(twin.out[0].split(",")), f"{line}: {picked} of {twin.out}"
        assert len(picked) == len(set(picked)) == line.wanted, f"{line}: {picked}"
        twin.out = ours.out[:1]
    if found := differences(ours, twin):
        raise AssertionError(f"{line}\n" + "\n".join(found))


def run_select(folder, seed):
    schedule = select_schedules.random_schedule(seed)
    folder = folder / str(seed)
    folder.mkdir()
    (folder / "scenario.toml").write_text(schedule.scenario)
    (folder / "notes").touch()
    with Sim(str(build_dir() / "lull"), scenario=folder / "scenario.toml", env=clean_environment(LC_ALL="C.UTF-8")) as gpus:
        for number, line in enumerate(schedule.lines):
            run_select_line(gpus, folder / str(number), line, MENDED["gpuselect"])
    return faults_met(folder / "notes")


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_gpuselect_does_as_its_twin(tmp_path, lull, seeds):
    check(many(run_select, tmp_path, seeds), "gpuselect")
