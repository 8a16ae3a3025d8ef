"""The package gpuselect on simulated GPUs: what its README promises, and the faults of the original."""
import json
import subprocess

import pytest
from conftest import LIMIT, wait_until
from machine import machine, read_until  # noqa: F401

def call(gpus, expression, before="", env=None):
    """The value of an expression, in a Python of its own."""
    code = f"import json, os\nfrom gpuselect import *\nfrom gpuselect import gpuselect, gpustatus\n{before}\n" \
           f"print(json.dumps({expression}))"
    done = gpus.python(code, env=env or {})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(gpus, expression, before=""):
    """The type and text of what it raises."""
    code = f"import os\nfrom gpuselect import gpuselect, gpustatus\n{before}\ntry:\n    {expression}\n" \
           "except Exception as error:\n    print(type(error).__name__, error, sep=': ')"
    done = gpus.python(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start(gpus, arguments="", after="print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"):
    """A script that selects, says what it got, and works until its stdin is closed."""
    code = f"import os, sys\nfrom gpuselect import gpuselect\ngpuselect({arguments})\n{after}\nsys.stdin.read()"
    return gpus.start(code)


def finish(*scripts):
    for script in scripts:
        script.stdin.close()
    assert [script.wait(timeout=LIMIT) for script in scripts] == [0] * len(scripts)


# ---- the README

def test_any_idle_gpu_by_default(machine):
    gpus = machine(3)
    gpus.load(0, util=50)
    gpus.load(1, util=0, mem="100MiB")
    assert call(gpus, "[gpuselect(), os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER']]") == [
        "2", "2", "PCI_BUS_ID"]


def test_by_name_and_count(machine):
    gpus = machine("2x3090,1xT4")
    assert sorted(call(gpus, "gpuselect(count=2, name='3090')").split(",")) == ["0", "1"]
    assert call(gpus, "gpuselect(name='T4')") == "2"
    assert refused(gpus, "gpuselect(name='rtx')") == "Exception: Requested 1 GPUs, but 0 matched filters"


def test_a_threshold_is_the_most_that_is_taken(machine):
    gpus = machine(1)
    gpus.load(0, util=10, mem="4GiB")
    assert refused(gpus, "gpuselect()") == "Exception: Requested 1 GPUs, but 0 matched filters"
    assert refused(gpus, "gpuselect(util=10)").startswith("Exception: Requested")
    assert refused(gpus, "gpuselect(processes=1)").startswith("Exception: Requested")
    assert call(gpus, "gpuselect(util=10, mem_util=100, processes=1)") == "0"


@pytest.mark.parametrize("devices, chosen", [("0", ["0"]), ("[0, 1]", ["0", "1"]), ("(1, 2)", ["1", "2"]),
                                             ("[2, 2]", ["2"])])
def test_by_device_id_all_that_are_named(machine, devices, chosen):
    """`devices=[0, 1]` gave one GPU."""
    assert sorted(call(machine(3), f"gpuselect(devices={devices})").split(",")) == chosen


@pytest.mark.parametrize("devices", ["'01'", "['0']", "[0.5]"])
def test_a_device_id_that_is_no_number(machine, devices):
    assert refused(machine(2), f"gpuselect(devices={devices})").startswith("TypeError: ")


def test_the_debug_log_says_who_has_it(machine):
    gpus = machine(1)
    held = start(gpus)
    assert held.stdout.readline() == "0\n"
    done = gpus.python("import logging\nfrom gpuselect import gpuselect\n"
                       "logging.getLogger('gpuselect').setLevel(logging.DEBUG)\ngpuselect(silent=True)")
    assert [line for line in done.stderr.splitlines() if line.startswith("GPU 0: leased") and "gpuselect()" in line], done.stderr
    finish(held)


@pytest.mark.parametrize("devices, wrong", [("7", "7"), ("[0, 9]", "9"), ("-1", "-1")])
def test_a_device_id_that_is_not_there(machine, devices, wrong):
    gpus = machine(2)
    assert refused(gpus, f"gpuselect(devices={devices})") == f"Exception: Invalid device ID {wrong}"
    assert refused(gpus, f"gpuselect(devices={devices}, silent=True)") == f"Exception: Invalid device ID {wrong}"


def test_own_selector(machine):
    gpus = machine("2x3090,1xT4")
    gpus.load(2, util=80)
    selector = "lambda gpu: isinstance(gpu, GpuInfo) and 'T4' in gpu.name and gpu.util == 80 and gpu.processes == 1"
    assert call(gpus, f"gpuselect(selector={selector})") == "2"
    assert refused(gpus, "gpuselect(count=2, selector=lambda gpu: gpu.util > 50)") == (
        "Exception: Requested 2 GPUs, but 1 matched filters")


def test_silent_leaves_the_environment_alone(machine):
    gpus = machine(1)
    assert call(gpus, "[gpuselect(count=4, silent=True), os.environ.get('CUDA_VISIBLE_DEVICES')]") == ["", None]
    assert call(gpus, "[gpuselect(count=4, silent=True), os.environ.get('CUDA_VISIBLE_DEVICES')]",
                env={"CUDA_VISIBLE_DEVICES": "5"}) == ["", "5"]


def test_set_cvd_false_only_answers(machine):
    gpus = machine(1)
    assert call(gpus, "[gpuselect(set_cvd=False), gpuselect(set_cvd=False), os.environ.get('CUDA_VISIBLE_DEVICES')]") == [
        "0", "0", None]
    assert gpus.python("import logging; from gpuselect import gpuselect; logging.basicConfig(); gpuselect(set_cvd=False)").stderr == ""
    held = start(gpus)
    assert held.stdout.readline() == "0\n"
    assert refused(gpus, "gpuselect(set_cvd=False)") == "Exception: Requested 1 GPUs, but 0 matched filters"
    finish(held)


def test_debug_log(machine):
    gpus = machine(2)
    code = "import logging\nfrom gpuselect import gpuselect\n" \
           "logging.getLogger('gpuselect').setLevel(logging.DEBUG)\ngpuselect(devices=[0, 1])"
    lines = gpus.python(code).stderr.splitlines()
    assert lines[0] == "count=1,devices=[0, 1],name=None,util=0,mem_util=0,processes=0,silent=False"
    assert lines[1] == "count=1 but 2 device IDs were specified, setting count=2"
    assert lines[2] == "GPU count: 2" and lines[3].startswith("Device 0: GpuInfo(device=0, name='NVIDIA ")
    assert "Device filter, 2 devices left" in lines and "Utilization filter matched 2 / 2 GPUs" in lines
    assert lines[-1] in ("CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=1,0")
    quiet = gpus.python("from gpuselect import gpuselect; gpuselect(devices=[0, 1])")
    assert quiet.stderr == "count=1 but 2 device IDs were specified, setting count=2\n"


def test_the_command(machine):
    """`python3 -m gpuselect` and `python3 -m gpuselect.nvmlgpuselect` are gpuselect: options, output, status, signals."""
    gpus = machine(3)
    for module in ("gpuselect", "gpuselect.nvmlgpuselect"):
        assert gpus.python("-m", module, "-d", "0,1").stdout in ("0,1\n", "1,0\n")
        done = gpus.python("-m", module, "-d", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3")
        assert (done.returncode, done.stdout.splitlines()[1]) == (3, "1")
    ignored = gpus.python("-m", "gpuselect", "--", "grep", "SigIgn", "/proc/self/status").stdout.split()[-1]
    assert int(ignored, 16) & 1 << 12 == 0  # SIGPIPE, which Python ignores
    done = gpus.python("-m", "gpuselect", "-c", "0")
    assert (done.returncode, done.stderr) == (1, "gpuselect: GPU count must be >= 1\n")


# ---- gpustatus

def test_status_values(machine):
    gpus = machine("2xA100")
    gpus.load(1, util=60, mem="8GiB")
    infos = call(gpus, "[dict(info) for info in gpustatus()]")
    assert [info["device"] for info in infos] == [0, 1]
    busy = infos[1]
    assert "A100" in busy["name"] and busy["util"] == busy["utilization"] == 60 and busy["processes"] == 1
    assert busy["mem_used"] >= 8 << 30 and busy["mem_used"] + busy["mem_free"] == busy["mem_total"]
    assert 30_000 < busy["power_usage"] < busy["effective_power_limt"] < 1_000_000  # milliwatts
    assert 0 <= busy["performance_state"] <= 15 and 15 < busy["temperature"] < 110
    whole = [name for name in busy if name != "name" and busy[name] is not None]
    assert all(type(busy[name]) is int for name in whole)


@pytest.mark.parametrize("value, devices", [(None, [0, 1, 2]), ("", [0, 1, 2]), ("all", [0, 1, 2]), ("2", [2]),
                                            ("2,0", [0, 2]), ("1, 7", [1]), ("-1", []), ("NoDevFiles", [])])
def test_status_of_what_is_visible(machine, value, devices):
    """Without CUDA_VISIBLE_DEVICES it was a KeyError."""
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert call(machine(3), "[[info.device for info in gpustatus()], len(gpustatus(only_cvd=False))]", env=env) == [devices, 3]


def test_status_is_a_dict_with_the_fields_as_attributes(machine):
    code = "[isinstance(one, dict), one.util, one['utilization'], one[0], one[-1], one.info()[1] == one['name'], 'x' in one, " \
           "sorted(one)[0], one == dict(one), hasattr(one, 'nothing')]"
    assert call(machine(1), code, before="one = gpustatus()[0]") == [True, 0, 0, 0, 0, True, False, "device", True, False]
    # NVML's own figure has what the driver keeps for itself.
    reserved = call(machine("1xA100"), "[gpustatus()[0].mem_used, gpustatus()[0].mem_total - gpustatus()[0].mem_free]")
    assert reserved[0] == reserved[1] > 100 << 20


def test_status_by_uuid(machine):
    gpus = machine(2)
    uuid = gpus.show()["gpus"][1]["uuid"]
    for name in (uuid, uuid[:12]):
        assert call(gpus, "[info.device for info in gpustatus()]", env={"CUDA_VISIBLE_DEVICES": name}) == [1]


def test_one_gpu_of_them(machine):
    assert call(machine(2), "nvmlgpuselect.pynvml_get_gpu_state(1).device", "from gpuselect import nvmlgpuselect") == 1


# ---- faults of the original

def test_a_card_without_a_fan(machine):
    gpus = machine("1xT4")
    assert call(gpus, "[gpustatus()[0].fan_speed, gpustatus()[0].util, gpuselect()]") == [None, 0, "0"]


def test_a_lost_gpu(machine):
    gpus = machine(2)
    gpus.fault(1, "lost")
    assert call(gpus, "[[info.device, info.util, info.processes] for info in gpustatus()]") == [[0, 0, 0], [1, None, None]]
    assert {call(gpus, "gpuselect()") for _ in range(4)} == {"0"}
    assert refused(gpus, "gpuselect(count=2)") == "Exception: Requested 2 GPUs, but 1 matched filters"
    assert refused(gpus, "gpuselect(count=2, selector=lambda gpu: True)") == (
        "Exception: Requested 2 GPUs, but 1 matched filters")


def test_a_selector_is_not_asked_about_a_lost_gpu(machine):
    gpus = machine(3)
    gpus.fault(1, "lost")
    assert call(gpus, "[gpuselect(selector=lambda gpu: not asked.append(gpu.device), count=2) and asked]",
                "asked = []") == [[0, 2]]


def test_cuda_that_is_initialised_already_is_said(machine, tmp_path):
    """It was silent, and the variable did nothing."""
    gpus = machine(1)
    (tmp_path / "cuda.c").write_text("int cuDeviceGetCount(int* count) { *count = 1; return 0; }\n")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", tmp_path / "libcuda.so.1",
                    tmp_path / "cuda.c"], check=True, timeout=LIMIT)
    code = "from gpuselect import gpuselect; print(gpuselect())"
    plain = gpus.python(code)
    late = gpus.python(f"import ctypes; ctypes.CDLL('{tmp_path}/libcuda.so.1'); {code}")
    assert (plain.stdout, plain.stderr) == ("0\n", "")
    assert late.stdout == "0\n" and late.stderr.startswith("CUDA is already initialised in this process")


def test_throttling_is_what_throttles(machine):
    gpus = machine(1)
    throttling = "gpustatus()[0].is_throttling"
    assert call(gpus, throttling) == 0
    gpus.set(0, util=100)
    assert call(gpus, throttling) == 0  # busy at full clocks: the original said 1
    for reasons, expected in ((0x4, 1), (0x20, 1), (0x1, 0), (0x10, 0)):
        gpus.set(0, throttle=reasons)
        assert call(gpus, throttling) == expected


def test_memory_in_use_counts(machine):
    gpus = machine("1xT4")
    gpus.set(0, mem_used="14.5GiB")
    assert refused(gpus, "gpuselect()") == "Exception: Requested 1 GPUs, but 0 matched filters"
    assert refused(gpus, "gpuselect(mem_util=50)").startswith("Exception: Requested")
    assert call(gpus, "gpuselect(mem_util=100)") == "0"


def test_utilisation_that_cannot_be_read_is_not_idle(machine):
    gpus = machine(2)
    gpus.fault(0, "no-util")
    assert {call(gpus, "gpuselect()") for _ in range(4)} == {"1"}
    assert call(gpus, "gpustatus()[0].util") is None


def test_no_driver_is_an_exception_with_a_reason(machine):
    gpus = machine(1)
    gpus.fault("all", "no-driver")
    for expression in ("gpuselect()", "gpustatus()"):
        assert "river" in refused(gpus, expression)


def test_four_at_once_never_share(machine):
    gpus = machine(4)
    for _ in range(3):
        scripts = [start(gpus) for _ in range(4)]
        assert sorted(script.stdout.readline() for script in scripts) == ["0\n", "1\n", "2\n", "3\n"]
        finish(*scripts)


# ---- what is held, and for how long

def test_held_until_the_script_ends_however_it_does(machine):
    gpus = machine(1)
    script = start(gpus)
    assert script.stdout.readline() == "0\n"
    assert refused(gpus, "gpuselect()") == "Exception: Requested 1 GPUs, but 0 matched filters"
    assert gpus.lull("pick", "--", "true").returncode == 125
    script.kill()
    wait_until(lambda: refused(gpus, "gpuselect()") == "", what="the GPU to be free")


def test_selecting_again_gives_back_what_was_held(machine):
    gpus = machine(2)
    script = start(gpus, "devices=0", "gpuselect(devices=1); print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)")
    assert script.stdout.readline() == "1\n"
    assert refused(gpus, "gpuselect(devices=0)") == ""
    assert refused(gpus, "gpuselect(devices=1)") != ""
    finish(script)


def test_selecting_again_may_get_the_same_and_a_failure_keeps_it(machine):
    gpus = machine(1)
    script = start(gpus, "", "assert gpuselect() == '0'\nassert gpuselect(count=2, silent=True) == ''\nprint('on', flush=True)")
    read_until(script.stdout, "on")
    assert refused(gpus, "gpuselect()") != ""
    finish(script)


def test_processes_shares_with_so_many_others(machine):
    gpus = machine(1)
    scripts = [start(gpus, "processes=1") for _ in range(2)]
    assert [script.stdout.readline() for script in scripts] == ["0\n", "0\n"]
    assert refused(gpus, "gpuselect(processes=1)") == "Exception: Requested 1 GPUs, but 0 matched filters"
    assert refused(gpus, "gpuselect(processes=2)") == ""
    finish(*scripts)


def test_workers_of_a_script_get_gpus_of_their_own(machine, tmp_path):
    """Forked or spawned, also when the script itself has selected one before."""
    gpus = machine(4)
    code = """
import multiprocessing, os, sys
from gpuselect import gpuselect
def work(queue, done):
    queue.put(gpuselect())
    done.wait(60)
if __name__ == "__main__":
    mine = gpuselect()
    how = multiprocessing.get_context(sys.argv[1])
    queue, done = how.Queue(), how.Event()
    workers = [how.Process(target=work, args=(queue, done)) for _ in range(3)]
    for one in workers: one.start()
    print(sorted([mine] + [queue.get(timeout=60) for _ in workers]))
    done.set()
    for one in workers: one.join()
"""
    for how in ("fork", "spawn"):
        script = tmp_path / f"{how}.py"
        script.write_text(code)
        done = gpus.python(script, how)
        assert done.stdout == "['0', '1', '2', '3']\n", done.stderr


def test_threads_that_select_at_once_leave_what_was_set_held(machine):
    gpus = machine(4)
    code = """
import os, sys, threading
from gpuselect import gpuselect
threads = [threading.Thread(target=gpuselect) for _ in range(3)]
for one in threads: one.start()
for one in threads: one.join()
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""
    script = gpus.start(code)
    chosen = script.stdout.readline().strip()
    assert refused(gpus, f"gpuselect(devices={chosen})") != ""
    finish(script)


def test_a_child_on_a_machine_with_one_gpu_gets_its_parents(machine):
    """As where a worker that is spawned runs the script's first lines again."""
    gpus = machine(1)
    child = "from gpuselect import gpuselect; print(gpuselect())"
    done = gpus.python("import subprocess, sys\nfrom gpuselect import gpuselect\ngpuselect()\n"
                    f"subprocess.run([sys.executable, '-c', {child!r}])")
    assert done.stdout == "0\n", done.stderr


def test_inside_a_job_only_the_jobs_gpus(machine):
    gpus = machine(4)
    code = "from gpuselect import gpuselect; print(gpuselect())"
    assert {gpus.lull("pick", "--gpus", "2", "--", "/usr/bin/python3", "-c", code).stdout for _ in range(4)} == {"2\n"}
