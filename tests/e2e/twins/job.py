"""A job for the twins and for lull: writes down what it was given and every signal that it gets, and does as it is told.

    job.py '{"on": {"QUIT": 4, "TERM": null}, "ends": ["exit", 9], "after": 2.5, "children": [{…}]}'

On a signal it exits with that status, or (null) goes on; any other has its usual effect. What is written is in files of
the folder that it runs in: `up` and `signals` of the job itself, `up.0` and `signals.0` of its first child.
"""
import json
import os
import signal
import sys
import time

GIVEN = ("SigBlk:", "SigIgn:")


def append(name, text):
    with open(name, "a") as file:
        file.write(text)


def facts():
    with open("/proc/self/status") as status:
        masks = [line for line in status if line.startswith(GIVEN)]
    environment = [f"{key}={value}\n" for key, value in sorted(os.environ.items())]
    descriptors = [name for name in os.listdir("/proc/self/fd") if int(name) < 3]
    return "".join([*masks, *environment, f"{sorted(descriptors)}\n"])


def live(plan, label):
    def told(number, _):
        name = signal.Signals(number).name
        append("signals" + label, name + "\n")
        if (status := plan["on"][name.removeprefix("SIG")]) is not None:
            os._exit(status)

    if not label:
        append("facts", facts())
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # not with a traceback
    for name in plan.get("on", {}):
        signal.signal(signal.Signals["SIG" + name], told)
    for number, child in enumerate(plan.get("children", [])):
        if os.fork() == 0:
            return live(child, f"{label}.{number}")
    for number in range(len(plan.get("children", []))):
        while not os.path.exists(f"up{label}.{number}"):
            time.sleep(0.005)
    with open(f"up{label}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"up{label}.new", f"up{label}")
    end = time.monotonic() + plan.get("after", 1000)
    while (left := end - time.monotonic()) > 0:
        time.sleep(left)
    how, what = plan.get("ends", ["exit", 0])
    if how == "exit":
        os._exit(what)
    os.kill(os.getpid(), what)


live(json.loads(sys.argv[1]), "")
