"""Random schedules for gpu_mon: a file, programs to start, and who comes to a GPU or to a terminal meanwhile.

Whoever comes stays for several intervals, so that an original that looks once a second notices them as lull does.
"""
import dataclasses
import json
import os
import pwd
import random

from twins.side_by_side import HERE, PYTHON

BEGIN, COME, GO, END = 0.0, 3.0, 6.5, 10.0  # seconds
NAMES = ["train", "nvidia-smi", "mygpustat", "nvidia", "a-very-long-monitor-of-gpus", "python3"]


@dataclasses.dataclass
class Schedule:
    gpus: int
    config: str = ""
    visitors: list = dataclasses.field(default_factory=list)  # (GPU, name of the program)
    typed: bool = False   # somebody types from COME to GO
    told: str = "INT"
    ends: bool = False    # a program ends by itself: how often it is started is chance


def random_program(rng, folder_word):
    plan = {"opens": True}
    kind = rng.random()
    if kind < 0.15:
        plan |= {"after": rng.choice([1.5, 2.0]), "status": rng.choice([0, 0, 3])}
    elif kind < 0.3:
        plan["child"] = True
    return plan


def section(rng, name, gpus, schedule):
    plan = random_program(rng, name)
    schedule.ends = schedule.ends or "after" in plan
    command = f"{PYTHON} -S {HERE}/miner.py '{json.dumps(plan)}'".replace("%", "%%")
    if rng.random() < 0.06:
        command = "/nonexistent/miner"
    text = f"[process-{name}]\ndir = FOLDER\ncmd = {command}\ngpus = {gpus}\n"
    return text + (f"log = FOLDER/log-{name}\n" if rng.random() < 0.5 else "")


def random_schedule(seed):
    rng = random.Random(f"gpu_mon {seed}")
    schedule = Schedule(rng.randint(1, 3))
    ignored = rng.sample(NAMES[1:3] + NAMES[4:], rng.randint(1, 3))
    where = rng.choice(["ALL", "ALL", "all", "0"])
    schedule.config = f"[defaults]\ninterval_seconds = 1\n[gpu-x]\ngpus = {where}\nignore_programs = {','.join(ignored)}\n"
    if rng.random() < 0.4:
        schedule.config += section(rng, "all", "ALL", schedule)
    else:
        for number in range(schedule.gpus):
            if rng.random() < 0.85:
                schedule.config += section(rng, number, number, schedule)
    me = pwd.getpwuid(os.getuid()).pw_name
    schedule.config += (f"[tty]\nenabled = {rng.choice(['yes', 'True', 'on', 'no'])}\n"
                        f"whitelist = {rng.choice(['', 'user1,user2', me])}\nidle_seconds = {rng.choice([300, 300, 0])}\n")
    what = rng.random()
    if what < 0.6:
        schedule.visitors = [(rng.randrange(schedule.gpus), rng.choice(NAMES)) for _ in range(rng.choice([1, 1, 2]))]
    elif what < 0.8:
        schedule.typed = True
    schedule.told = rng.choice(["INT", "INT", "TERM"])
    return schedule
