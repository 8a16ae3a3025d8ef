"""A program for gpu_mon to start: opens its GPUs, writes down what it was given, and ends as it is told.

    miner.py '{"opens": true, "child": true, "after": 2.0, "status": 3}'
"""
import json
import os
import signal
import sys
import time


def append(name, text):
    with open(name, "a") as file:
        file.write(text + "\n")


def told(number, _):
    append("ended", signal.Signals(number).name)
    os._exit(0)


plan = json.loads(sys.argv[1])
signal.signal(signal.SIGTERM, told)
if plan.get("child") and os.fork():
    os.wait()
    os._exit(0)
folder = os.environ["LULL_DEV"]
gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
numbers = gpus.split(",") if gpus else [name[6:] for name in os.listdir(folder) if name[:6] == "nvidia" and name[6:].isdigit()]
held = [open(f"{folder}/nvidia{number}") for number in numbers]
append("started", f"{os.getcwd()} {gpus} {'PATH' in os.environ}")
append(f"up.{os.getpid()}", str(os.getpid()))
print("hello", flush=True)
time.sleep(plan.get("after", 1000))
os._exit(plan.get("status", 0))
