"""Random schedules for gpu_sentinel: how busy the GPUs are in one phase after the other, options, faults, programs.

A phase lasts long enough to arm or to trigger for sure, or is too short for sure: between the two a tick decides.
"""
import dataclasses
import random

from twins.idle_schedules import gpu, spelled

LONGER = 2.5  # seconds, than what the options ask for


@dataclasses.dataclass
class Schedule:
    scenario: str = ""
    words: list = dataclasses.field(default_factory=list)
    env: dict = dataclasses.field(default_factory=dict)
    lasts: float = 0.0
    told: str = "TERM"      # where it goes on until then
    closed: tuple = ()
    nobody: bool = False    # not root
    sudo: bool = True       # lets everybody
    power: str = "exit 0"   # what shutdown and reboot do


def levels(arm, kill):
    """Usages in percent that mean something to the thresholds; one that is reached is not crossed."""
    low, high = max(0, min(arm, kill) - 20), min(100, max(arm, kill) + 15)
    found = {"low": low, "high": high, "at arm": arm, "at kill": kill}
    if arm - kill >= 10:
        found["between"] = (arm + kill) // 2
    return {name: usage for name, usage in found.items() if 0 <= usage <= 100}


def spread(rng, usage, count):
    """Different GPUs with that mean."""
    if count < 2:
        return [usage] * count
    by = rng.choice([0, min(usage, 100 - usage, 30)])
    return [usage - by, usage + by] + [usage] * (count - 2)


def wrong_words(rng):
    return rng.choice([["--arm_threshold", "nan"], ["--kill_threshold", "+inf"], ["--arm_duration", "+1_0"], ["--kill_threshold", "-inf"],
                       ["--arm_duration", "3600"], ["--kill_duration", "x"], ["--kill_action", "explode"], ["--bogus"],
                       ["--arm", "3"], ["--kill_threshold"], ["stray"], ["-h"], ["--arm_threshold", "high"],
                       ["--kill_duration", "5000"], ["--help=x"], ["-q"]])


def random_phases(rng, arm_for, kill_for, known):
    story = rng.choice([["low", "high", "low"], ["high", "low"], ["high", "low"], ["high", "between", "low"],
                        ["low", "high", "low"], ["high", "low"], ["high", "at kill"],
                        ["at arm", "low"], ["high", "low", "high", "low"], ["between", "low"], ["low"],
                        ["high", "at kill", "low"], ["high"]])
    phases, armed, short, needed = [], False, False, 0
    for name in story:
        if name not in known:
            continue
        needed = kill_for if armed else arm_for
        short = needed >= 3 and name in ("low", "high") and rng.random() < 0.3
        phases.append((1.2 if short else max(needed, 1) + LONGER, known[name]))
        armed = armed or (name == "high" and not short)
    if short:  # the last one goes on until somebody ends it: it cannot be too short for sure
        phases[-1] = (max(needed, 1) + LONGER, phases[-1][1])
    return phases


def random_schedule(seed):
    rng = random.Random(f"gpu_sentinel {seed}")
    schedule = Schedule()
    arm_for, kill_for = rng.choice([0, 1, 1, 2, 3]), rng.choice([0, 1, 1, 2, 3])
    arm, kill = rng.choice([(80, 70), (80, 70), (50, 30), (30, 60), (-100, 40), (5, 5)])
    phases = random_phases(rng, arm_for, kill_for, levels(arm, kill))
    count = rng.randint(1, 3)
    named = rng.choice([None] * 5 + [["0"], ["0", "1"], ["0", "7"], ["7"], ["1", "0", "0"], []])
    watched = list(range(count)) if not named else [index for index in range(count) if str(index) in named]
    per_phase = []
    for _, usage in phases:
        usages = [rng.choice([0, 50, 100]) for _ in range(count)]
        for index, value in zip(watched, spread(rng, usage, len(watched))):
            usages[index] = value
        per_phase.append(usages)
    at, starts = 0.0, []
    for length, _ in phases:
        starts.append(at)
        at += length
    schedule.lasts = at
    for index in range(count):
        first, *later = [usages[index] for usages in per_phase]
        schedule.scenario += gpu(first, *zip(starts[1:], later))
    if rng.random() < 0.3:
        schedule.scenario += random_fault(rng, count, phases, starts)
    pairs = [(["--arm_duration", "--arm_d"], arm_for), (["--kill_duration"], kill_for)]
    if (arm, kill) != (80, 70) or rng.random() < 0.3:
        pairs += [(["--arm_threshold"], arm / 100), (["--kill_threshold", "--kill_t"], kill / 100)]
    action = rng.choice(["end_process"] * 4 + ["shutdown", "shutdown", "reboot", "reboot"])
    if action != "end_process" or rng.random() < 0.2:
        pairs.append((["--kill_action"], action))
    schedule.words = spelled(rng, *pairs)
    if named is not None:
        schedule.words += ["--gpu_devices", *named]
    if rng.random() < 0.08:
        schedule.words[:0] = wrong_words(rng)
    if rng.random() < 0.2:
        schedule.env["CUDA_VISIBLE_DEVICES"] = rng.choice(["", "0", "1", "7"])
    schedule.told = rng.choice(["TERM", "Ctrl-C", "HUP"])
    schedule.nobody = rng.random() < 0.4
    schedule.sudo = rng.random() < 0.7
    schedule.power = rng.choice(["exit 0", "exit 0", "exit 1"])
    if rng.random() < 0.1:
        schedule.closed = (rng.choice(["out", "err"]),)
    return schedule


def random_fault(rng, count, phases, starts):
    """For one phase as a whole, or to the end."""
    which = rng.randrange(len(phases))
    kinds = ["lost", "unknown", "no-util", "no-driver", "no-driver"]
    if which > 0:  # without permission from the start a GPU is not meant for lull, which leaves it out
        kinds.append("no-permission")
    kind = rng.choice(kinds)
    name = '"all"' if kind == "no-driver" else rng.randrange(count)
    text = f'[[fault]]\ngpu = {name}\nkind = "{kind}"\nat = "{starts[which]:.2f}s"\n'
    return text if rng.random() < 0.3 else text + f'for = "{max(phases[which][0], 3):.2f}s"\n'
