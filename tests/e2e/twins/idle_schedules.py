"""Random schedules for gpu_idle_timeout: a machine, options, a job and what happens to them.

A schedule leaves no doubt about what comes of it: GPUs change well before or well after a window ends, so a machine that
is slow now and then does not change the outcome.
"""
import dataclasses
import json
import random

from twins.side_by_side import HERE, PYTHON

EVERY = 0.3
LIFE = 4.0  # of a job that is not ended, in seconds


@dataclasses.dataclass
class Schedule:
    scenario: str = ""
    words: list = dataclasses.field(default_factory=list)
    own_words: list = dataclasses.field(default_factory=list)
    env: dict = dataclasses.field(default_factory=dict)
    job: dict | None = None  # None: beside a task
    fires: bool = False
    steady: bool = False  # nothing changes, so every line is where it is to be
    cut: bool = False     # the job ends, or is told to, at no moment in particular: how many lines came before is chance
    told: str = ""        # by a person: Ctrl-C, TERM
    closed: tuple = ()
    det: str = ""         # the program of that name; empty: there is none

    @property
    def command(self):
        return [*self.words, *([PYTHON, "-S", HERE / "job.py", json.dumps(self.job)] if self.job is not None else [])]


def signals_of(rng):
    """What a job does when it is told to end."""
    return rng.choice([{}, {"QUIT": 0}, {"QUIT": 4, "TERM": 5}, {"QUIT": None, "TERM": None}, {"TERM": 0}, {"INT": 7},
                       {"USR1": 3, "QUIT": None}])


def random_job(rng):
    job = {"on": signals_of(rng)}
    if rng.random() < 0.4:
        job["children"] = [{"on": signals_of(rng)} for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            job["children"][0]["children"] = [{"on": signals_of(rng)}]
    return job


def gpu(first, *later, repeat=0.0):
    again = f'repeat = "{repeat:.2f}s"\n' if repeat else ""
    steps = "".join(f'[[gpu.timeline]]\nat = "{at:.2f}s"\nutil = {util}\n' for at, util in later)
    return f'[[gpu]]\nmodel = "T4"\nutil = {first}\n{again}{steps}'


def random_gpu(rng, kind, threshold, window, faulty):
    low = rng.choice([0, threshold // 2, threshold - 1])
    high = rng.choice([threshold, min(100, threshold + 40), 100])  # the threshold itself is not below it
    if kind == "idle":
        return gpu(low)
    if kind == "busy":
        return gpu(high)
    if kind == "falls":
        return gpu(high, (rng.uniform(2.6, 3.0) if faulty else rng.uniform(0.5, 2.0), low))
    first, then = rng.sample([low, 100], 2)
    return gpu(first, (window / 2, then), repeat=window)


def random_fault(rng, count):
    """Its text, and whose readings never come back."""
    kind = rng.choice(["lost", "unknown", "no-permission", "no-util", "no-driver", "from the start"])
    if kind == "from the start":
        return '[[fault]]\nkind = "no-driver"\n', set(range(count))
    who = rng.randrange(count)
    name = '"all"' if kind == "no-driver" else who
    text = f'[[fault]]\ngpu = {name}\nkind = "{kind}"\nat = "{rng.uniform(1.0, 1.5):.2f}s"\n'
    if rng.random() < 0.5:
        return text + 'for = "2s"\n', set()
    return text, set(range(count)) if kind == "no-driver" else {who}


def wrong_words(rng):
    return rng.choice([["-n", "+1_0"], ["-d", " 3"], ["-s", "-inf"], ["--signal-name", "SIGCLD"], ["-t", "1_"],
                       ["-n", "0"], ["-t", "-3"], ["-s", "0"], ["-n", "x"], ["-t", ""], ["-d"], ["--signal-name", "SIGNOPE"],
                       ["-a", "most"], ["--bogus"], ["-n", "2.5"], ["--signal-name"], ["-xq"], ["--num-samples=y"],
                       ["--s", "5"], ["--debug=yes"], ["-h"], ["--help"]])


def spelled(rng, *pairs):
    """Options in any order and in any of the ways that argparse takes."""
    words = []
    for names, value in rng.sample(pairs, len(pairs)):
        name = rng.choice(names)
        if value is None:
            words.append(name)
        elif name.startswith("--"):
            words += rng.choice([[name, value], [f"{name}={value}"]])
        else:
            words += rng.choice([[name, value], [f"{name}{value}"]])
    return [str(word) for word in words]


def task_environment(rng):
    kind = rng.choice(["SHELL", "NOTEBOOK", "COMMAND", "TENSORBOARD", "TRIAL", "TRIAL", "CHECKPOINT_GC"])
    env = {"DET_TASK_TYPE": kind, "DET_TASK_ID": "17-uuid"}
    return env | ({"DET_TRIAL_ID": "42"} if kind == "TRIAL" else {})


def random_schedule(seed):
    rng = random.Random(f"gpu_idle_timeout {seed}")
    schedule = Schedule()
    samples, delay = rng.randint(2, 6), rng.choice([-1, 0, 1, 2, 3, 4])
    threshold, which = rng.choice([1, 10, 50]), rng.choice(["all", "any"])
    kinds = [rng.choice(["idle", "idle", "idle", "busy", "falls", "turns"]) for _ in range(rng.randint(1, 3))]
    faulty = rng.random() < 0.3
    samples = max(samples, 7 - max(delay, 1))  # a job has the time to start
    if "turns" in kinds:
        samples = max(samples, 5)
    if faulty:  # nothing is over before it begins
        samples = max(samples, 10 - max(delay, 1))
    first = (max(delay, 1) + samples - 1) * EVERY  # at which it may fire
    schedule.scenario = "".join(random_gpu(rng, kind, threshold, samples * EVERY, faulty) for kind in kinds)
    gone = set()
    if faulty:
        text, gone = random_fault(rng, len(kinds))
        schedule.scenario += text
    counted = set(range(len(kinds)))
    visible = rng.choice([None] * 6 + ["0", "0,1", "", "-1", "7"])
    if visible is not None:
        schedule.env["CUDA_VISIBLE_DEVICES"] = visible
        counted &= {int(part) for part in visible.split(",") if part.isdigit()}
    idle = [one not in gone and kinds[one] in ("idle", "falls") for one in counted]
    schedule.fires = bool(idle) and (all(idle) if which == "all" else any(idle))
    schedule.steady = schedule.fires and not faulty and set(kinds) == {"idle"}
    pairs = [(["-t", "--threshhold-percentage"], threshold), (["-s", "--sample-freq", "--sam"], EVERY),
             (["-n", "--num-samples"], samples), (["-d", "--delay-samples"], delay)]
    if which == "any" or rng.random() < 0.5:
        pairs.append((["-a", "--all-or-any", "--all_or_any"], which))
    if rng.random() < 0.5:
        pairs.append((["-x", "--debug"], None))
    if rng.random() < 0.4:
        pairs.append((["--signal-name"], rng.choice(["SIGTERM", "SIGUSR1", "SIGINT", "SIGQUIT", "SIGKILL"])))
    if rng.random() < 0.3:
        pairs.append((["--signal-children"], None))
    if visible is None and which == "any" and faulty:  # lull does not guess which GPU is the job's
        schedule.own_words = ["--gpus", "all"]
    if rng.random() < 0.15:
        beside_a_task(rng, schedule)
    else:
        with_a_job(rng, schedule, first)
    schedule.words = spelled(rng, *pairs)
    if rng.random() < 0.1:
        schedule.words[:0] = wrong_words(rng)  # what follows may make it right
    if rng.random() < 0.1:
        schedule.closed = ("err",)
    return schedule


def beside_a_task(rng, schedule):
    schedule.env |= task_environment(rng)
    schedule.det = rng.choice(["", "exit 0", "exit 0", "exit 0", '[ "$(wc -l < calls)" -gt 1 ]'])
    schedule.steady = False
    if not schedule.fires:
        schedule.told, schedule.cut = "TERM", True


def with_a_job(rng, schedule, first):
    schedule.job = random_job(rng)
    ends = rng.choice([["exit", 0], ["exit", 9], ["kill", 15], ["kill", 9]])
    if schedule.fires and first > 2.0 and rng.random() < 0.25:  # it ends long before anything else could happen
        schedule.job |= {"after": 0.3, "ends": ends}
        schedule.fires, schedule.steady, schedule.cut = False, False, True
    elif not schedule.fires:
        schedule.job |= {"after": LIFE, "ends": ends}
        if rng.random() < 0.4:
            schedule.told, schedule.cut = rng.choice(["Ctrl-C", "TERM"]), True
