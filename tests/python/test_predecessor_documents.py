"""The Python examples in the documents of gpuselect and gpu_sentinel, as they are written, on simulated GPUs."""
import json

import pytest
from machine import machine  # noqa: F401

# A T4, and RTX A6000s behind it.
def with_a6000(count):
    return '[[gpu]]\nmodel = "T4"\n' + count * '[[gpu]]\nmodel = "RTX3090"\nname = "NVIDIA RTX A6000"\n'


# What the document shows, the GPUs, what they do, and what CUDA_VISIBLE_DEVICES is afterwards; the call returns the same.
SELECT = [
    ("from gpuselect import gpuselect\ngpuselect()", "2xT4", {0: 50}, {"1"}),
    ('from gpuselect import gpuselect\ngpuselect(name="A6000")', with_a6000(1), {}, {"1"}),
    ('from gpuselect import gpuselect\ngpuselect(count=2, name="A6000")', with_a6000(2), {}, {"1,2", "2,1"}),
    ("from gpuselect import gpuselect\ngpuselect(util=10, processes=1)", "1xT4", {0: 0}, {"0"}),  # any more, and its memory is active too
    ("from gpuselect import gpuselect\ngpuselect(devices=0)", "2xT4", {}, {"0"}),
    ("from gpuselect import gpuselect\ngpuselect(devices=[0, 1])", "3xT4", {}, {"0,1", "1,0"}),
    ("""from gpuselect import gpuselect, GpuInfo

def custom_select(gpu: GpuInfo) -> bool:
    return "3090" in gpu.name and gpu.util <= 5

gpuselect(selector=custom_select)""", "1xT4,2x3090", {1: 50}, {"2"}),
]


@pytest.mark.parametrize("code, gpus, busy, wanted", SELECT)
def test_examples_of_gpuselect(machine, tmp_path, code, gpus, busy, wanted):
    (tmp_path / "scenario.toml").write_text(gpus)
    made = machine(scenario=tmp_path / "scenario.toml") if "[[gpu]]" in gpus else machine(gpus)
    for index, util in busy.items():
        made.load(index, util=util)
    head, call = code.rsplit("\n", 1)
    done = made.python(f"{head}\nreturned = {call}\nimport os\nprint(returned, os.environ.get('CUDA_VISIBLE_DEVICES'), sep=';')")
    returned, variable = done.stdout.strip().split(";")
    assert variable in wanted and returned == variable, done.stderr


@pytest.mark.parametrize("state", [{"util": 1}, {"mem_util": 1}, {"process": True}], ids=lambda one: next(iter(one)))
def test_what_gpuselect_excludes_by_default(machine, state):
    """Device or memory utilisation, processes; also where devices are named."""
    made = machine("2xT4")
    made.load(0, util=0, mem="200MiB") if "process" in state else made.set(0, **state)
    for call in ("gpuselect()", "gpuselect(devices=[0, 1])"):
        done = made.python(f"from gpuselect import gpuselect\ntry:\n    print({call})\nexcept Exception as e:\n    print(e)")
        wanted = "1" if call == "gpuselect()" else "Requested 2 GPUs, but 1 matched filters"
        assert done.stdout.strip() == wanted, (call, done.stdout, done.stderr)


def test_handling_errors_of_gpuselect(machine):
    code = """from gpuselect import gpuselect
try:
    gpuselect(count=4)
except Exception as e:
    print(f"Failed to select GPUs: {e}")

if gpuselect(count=4, silent=True) == "":
    print(f"Failed to select GPUs")
"""
    done = machine(1).python(code)
    assert done.stdout == "Failed to select GPUs: Requested 4 GPUs, but 1 matched filters\nFailed to select GPUs\n"


def test_debug_logging_of_gpuselect(machine):
    code = """import logging
from gpuselect import gpuselect
logging.getLogger("gpuselect").setLevel(logging.DEBUG)
gpuselect()
"""
    assert "GPUs left after filtering (1 requested): 1" in machine(1).python(code).stderr


def test_state_of_gpuselect(machine):
    """A list of dicts with these keys and types; what json and isinstance take for a dict."""
    gpus = machine("2xA100")
    gpus.load(1, util=60, mem="8GiB")
    code = """import json
from gpuselect import gpustatus
gpu_info = gpustatus()
all_gpu_info = gpustatus(only_cvd=False)
assert all(isinstance(one, dict) for one in gpu_info)
print(json.dumps([gpu_info, all_gpu_info]))
"""
    done = gpus.python(code, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert done.returncode == 0, done.stderr
    visible, everything = json.loads(done.stdout)
    assert [one["device"] for one in visible] == [1] and [one["device"] for one in everything] == [0, 1]
    types = {"device": int, "name": str, "utilization": int, "mem_utilization": int, "processes": int,
             "performance_state": int, "power_usage": int, "temperature": int}
    assert {key: type(visible[0][key]) for key in types} == types
    assert visible[0]["utilization"] == 60 and visible[0]["power_usage"] > 10_000  # milliwatts


def test_api_of_gpu_sentinel(machine):
    """As it is written, with `import time`, which it lacks, and shorter durations."""
    gpus = machine(4)
    for index in range(4):
        gpus.set(index, util=90)
    code = """import time
from gpu_sentinel import Sentinel, get_gpu_usage

def my_callback_fn():
    print("Triggered!")
    exit()

sentinel = Sentinel(
    arm_duration=2,
    arm_threshold=0.7,
    kill_duration=3,
    kill_threshold=0.7,
    kill_fn=my_callback_fn,
)

while True:
    gpu_usage = get_gpu_usage(device_ids=[0, 1, 2, 3])
    sentinel.tick(gpu_usage)
    print(sentinel.state.name, flush=True)
    time.sleep(0.2)
"""
    script = gpus.start(code)
    while script.stdout.readline() != "ARMED\n":
        assert script.poll() is None, script.stderr.read()
    for index in range(4):
        gpus.set(index, util=0)
    assert script.wait(timeout=60) == 0 and script.stdout.read().endswith("Triggered!\n")
