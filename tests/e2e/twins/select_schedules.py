"""Random schedules for gpuselect: a machine with processes and faults, and command lines one after the other.

Memory in use that no process explains is left out: it counts for lull and did not for the original (docs/drop-ins.md).
"""
import dataclasses
import json
import random

from twins.idle_schedules import spelled
from twins.side_by_side import HERE, PYTHON

LINES = 5


@dataclasses.dataclass
class Line:
    words: list
    wanted: int = 1  # GPUs
    job: dict | None = None
    env: dict = dataclasses.field(default_factory=dict)
    closed: tuple = ()
    told: str = ""
    debug: bool = False

    @property
    def command(self):
        return [*self.words, *([PYTHON, "-S", HERE / "job.py", json.dumps(self.job)] if self.job else [])]


@dataclasses.dataclass
class Schedule:
    scenario: str
    lines: list


def random_machine(rng):
    text = ""
    count = rng.randint(1, 4)
    for index in range(count):
        text += f'[[gpu]]\nmodel = "{rng.choice(["T4", "A100", "3090"])}"\n'
        kind = rng.random()
        if kind < 0.3:
            text += f"util = {rng.choice([0, 5, 50])}\nmem_util = {rng.choice([0, 10])}\n"
        elif kind < 0.6:
            for _ in range(rng.choice([1, 1, 2])):
                text += f'[[process]]\ngpu = {index}\nutil = {rng.choice([0, 5])}\nmem = "100MiB"\n'
    if rng.random() < 0.3:
        kind = rng.choice(["lost", "unknown", "no-permission", "no-driver", "reset"])
        text += f'[[fault]]\ngpu = {chr(34) + "all" + chr(34) if kind == "no-driver" else rng.randrange(count)}\nkind = "{kind}"\n'
    return in_order(text)


def in_order(text):
    """TOML wants the GPUs first."""
    parts = ["[[" + part for part in text.split("[[") if part]
    return "".join(sorted(parts, key=lambda part: not part.startswith("[[gpu]]")))


def wrong_words(rng):
    return rng.choice([["-c", "+1"], ["-u", "1_0"], ["-c", "1_"], ["-d", "+0"], ["-d", "0,"],
                       ["-c", "many"], ["-c", "0"], ["-u", "-1"], ["--bogus"], ["-d", "x"], ["-d", "0,9"], ["-d", "-1"],
                       ["-d", "0", "-n", "T4"], ["--m"], ["-c"], ["--quiet=1"], ["-h"], ["-p", "-2"], ["--d", "0"], ["-m", "x"]])


def random_line(rng):
    options = [(["-c", "--count", "--cou"], ["1", "1", "2", "3"]), (["-u", "--util"], ["0", "5", "50", "100"]),
               (["-m", "--mem_util", "--mem"], ["0", "10", "100"]), (["-p", "--processes"], ["0", "1", "2"])]
    pairs = [(names, rng.choice(values)) for names, values in options if rng.random() < 0.35]
    which = rng.random()
    if which < 0.25:
        pairs.append((["-n", "--name"], rng.choice(["T4", "A100", "rtx", "RTX", "NVIDIA"])))
    elif which < 0.5:
        pairs.append((["-d", "--devices"], rng.choice(["0", "1", "0,1", "1,0", "0,0", "0,9", "3"])))
    values = {names[0]: value for names, value in pairs}
    line = Line([], wanted=max(int(values.get("-c", 1)), len(set(values.get("-d", "0").split(",")))))
    for names in (["-q", "--quiet"], ["-D", "--debug"]):
        if rng.random() < 0.15:
            pairs.append((names, None))
            line.debug = line.debug or "-D" in names
    line.words = spelled(rng, *pairs)
    if rng.random() < 0.12:
        more = wrong_words(rng)
        line.words += more
        values |= {more[0]: more[1][1:]} if more[1:] in (["+1"], ["+0"]) else {}
        line.wanted = max(int(values.get("-c", 1)), len(set(values.get("-d", "0").split(","))))
    if rng.random() < 0.5:
        line.job = {"on": rng.choice([{}, {"TERM": 5}]),
                    "ends": rng.choice([["exit", 0], ["exit", 42], ["kill", 15], ["kill", 9]]), "after": 0}
        if rng.random() < 0.3:
            line.job["after"], line.told = 3, "TERM"
        if rng.random() < 0.5:
            line.words.append("--")
    if rng.random() < 0.2:
        line.env["CUDA_VISIBLE_DEVICES"] = rng.choice(["", "0", "1", "7"])
    if rng.random() < 0.1:
        line.closed = ("err",)
    return line


def random_schedule(seed):
    rng = random.Random(f"gpuselect {seed}")
    return Schedule(random_machine(rng), [random_line(rng) for _ in range(LINES)])
