"""lull's commands on simulated GPUs of AMD, Intel and a Jetson that work, rest, fail and sleep."""
import contextlib
import csv
import json
import pathlib
import re
import time

import pytest

from conftest import alive, wait_until

MIXED = "2xMI300X,1xRX7900XTX,1xA770,1xH100"  # 0 is NVIDIA's, 1 to 3 are AMD's, 4 is Intel's
FAST = ("--every", "200ms", "--delay", "0s", "--grace", "200ms")


def gpus_of(machine, *args):
    done = machine.lull("status", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["gpus"]


def environment_of(machine, *args, env=None):
    """What `lull pick` gives to its command, of the variables that choose GPUs. An Intel GPU looks busy on a loaded machine."""
    found = {}

    def picked():
        done = machine.lull("pick", *args, "--", "env", env=env)
        found.update(line.split("=", 1) for line in done.stdout.splitlines()
                     if line.startswith(("ROCR_", "HIP_", "ZE_", "CUDA_VISIBLE", "GPU_DEVICE")))
        return done.returncode == 0
    wait_until(picked, what=f"lull pick {args}")
    return found


@pytest.fixture
def served(sim):
    """served(gpus): a simulation whose files can fail and hang."""
    def start(*args, **kwargs):
        machine = sim(*args, **kwargs)
        if f" {machine.folder}/sys/devices " not in pathlib.Path("/proc/self/mountinfo").read_text():
            pytest.skip("there is no FUSE here")
        return machine
    return start


@contextlib.contextmanager
def running(machine, *args):
    process = machine.start_lull(*args)
    yield process
    process.terminate()
    process.communicate(timeout=30)


# ---- status and check


def test_status_names_vendors_and_their_processes(sim):
    machine = sim(MIXED)
    load = machine.load("amd:0", 80, "20GiB")
    intel = machine.load("intel:0", 50, "1GiB")
    gpus = gpus_of(machine)
    assert [(gpu["vendor"], gpu["vendor_index"]) for gpu in gpus] == [
        ("nvidia", 0), ("amd", 0), ("amd", 1), ("amd", 2), ("intel", 0)]
    assert gpus[1]["util_percent"] == 80 and gpus[1]["mem_used_bytes"] > 20 << 30
    assert [[process["pid"] for process in gpu["processes"]] for gpu in gpus] == [[], [load.pid], [], [], [intel.pid]]
    assert gpus[4]["util_percent"] >= 45 and gpus[2]["util_percent"] == 0


def test_check_says_which_rule_fits_each_card(sim):
    machine = sim(MIXED)
    hung = machine.lull("check", "hung").stdout
    assert "GPU 3 is an RDNA card" in hung and "GPU 4: `util` of Intel is an upper bound" in hung and "cannot be judged" in hung
    assert "on GPU 4 `procs < 1` would do instead" in machine.lull("check", "mem_used < 1GiB").stdout


@pytest.mark.parametrize("kind", ["ebusy", "eperm", "einval", "enoent", "empty", "garbage"])
def test_a_file_that_fails_is_unknown_and_the_gpu_is_not_picked(served, kind):
    machine = served("1xMI210,1xA770")
    machine.fault("all", kind)
    for gpu in gpus_of(machine):
        assert gpu["util_percent"] is None and gpu["unknown"]["util_percent"], gpu
    assert "cannot be judged" in machine.lull("check", "util < 1").stdout
    for vendor in ("amd", "intel"):
        assert machine.lull("pick", "--vendor", vendor, "--", "true").returncode != 0


@pytest.mark.parametrize("kind", ["hang=60s", "hang=dstate"])
def test_a_file_that_hangs_costs_its_gpu_only(served, kind):
    machine = served("2xMI210")
    machine.ok("fault", "amd:0", kind, "--file", "gpu_busy_percent")
    first, second = gpus_of(machine)
    assert first["util_percent"] is None and second["util_percent"] == 0
    assert environment_of(machine, "--vendor", "amd")["ROCR_VISIBLE_DEVICES"] == second["uuid"]
    machine.clear()


def test_a_residency_that_does_not_move_is_not_idle(sim):
    machine = sim(text='[[gpu]]\nmodel = "A770"\nresidency_stands = true\n')
    gpu, = gpus_of(machine)
    assert gpu["util_percent"] is None and gpu["unknown"]["util_percent"] == "its counter does not move"
    assert machine.lull("pick", "--", "true").returncode != 0


def test_zeros_of_an_orins_nvml_are_not_read(sim):
    machine = sim(text='[[gpu]]\nmodel = "Orin"\nnvml_zeros = true\n')
    machine.load("tegra:0", 70)
    gpu, = gpus_of(machine)
    assert gpu["vendor"] == "tegra" and gpu["util_percent"] == 70 and gpu["processes"] in ([], None)


def test_a_jetson_that_may_be_held_is_not_picked(sim):
    machine = sim("1xOrin")
    done = machine.lull("pick", "--", "true")
    assert done.returncode != 0 and "cannot be judged without procs" in done.stderr


def test_a_sleeping_card_stays_asleep(served):
    machine = served("1xRX7900XTX,1xA770")
    machine.set("all", asleep="on")
    for _ in range(2):
        assert [gpu["asleep"] for gpu in gpus_of(machine)] == [True, True]
    machine.lull("check", "util < 1")
    states = [path.read_text().strip() for path in machine.folder.glob("sys/bus/pci/devices/*/power/runtime_status")]
    assert states == ["suspended"] * 2


# ---- run


@pytest.mark.parametrize("gpu", ["amd:0", "intel:0"])
def test_run_ends_an_idle_job(sim, gpu):
    machine = sim("1xMI210,1xA770")
    done = machine.lull("run", "--gpus", gpu, "--idle", "util < 20 for 1s", *FAST, "--", "sleep", "60")
    assert done.returncode == 124 and "has held" in done.stderr, done.stderr


@pytest.mark.parametrize("gpu", ["amd:0", "intel:0"])
def test_run_does_not_end_a_busy_job(sim, gpu):
    machine = sim("1xMI210,1xA770")
    done = machine.lull("run", "--gpus", gpu, "--idle", "util < 20 for 500ms", *FAST, "--",
                        machine.binary, "sim", "load", "--gpu", gpu, "--util", "90", "--for", "3s")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("gpu, other", [("amd:0", "amd:1,intel:0"), ("intel:0", "amd:0,amd:1")])
def test_run_judges_a_job_by_the_cards_on_which_it_has_a_context(sim, gpu, other):
    """KFD or fdinfo says which; the rule is the default one for a shorter time."""
    machine = sim("2xMI210,1xA770")
    by_contexts = ("run", "--idle", "1s", "--every", "500ms", "--delay", "0s", "--grace", "200ms", "--")
    job = (machine.binary, "sim", "load", "--gpu", gpu)
    neighbour = machine.load(other, 90)
    idle = machine.lull(*by_contexts, *job, "--util", "0")
    number = {"amd:0": 0, "intel:0": 2}[gpu]
    assert idle.returncode == 124 and re.search(f"'util < 1 for 1s' has held for .* on GPU {number},", idle.stderr), idle.stderr
    neighbour.kill()
    neighbour.wait()
    busy = machine.lull(*by_contexts, *job, "--util", "90", "--for", "4s")
    assert busy.returncode == 0, busy.stderr


def test_work_between_two_samples_keeps_a_job_alive(sim):
    """Busy for half a second of each two, with a sample every two."""
    machine = sim(text='[[gpu]]\nmodel = "MI210"\nrepeat = "2s"\n'
                       '[[gpu.timeline]]\nat = "0s"\nutil = 0\n[[gpu.timeline]]\nat = "1s"\nutil = 95\n'
                       '[[gpu.timeline]]\nat = "1500ms"\nutil = 0\n')
    done = machine.lull("run", "--gpus", "amd:0", "--idle", "util < 5 for 4s", "--every", "2s", "--delay", "0s", "--", "sleep", "9")
    assert done.returncode == 0, done.stderr


def test_a_phantom_load_is_not_taken_for_a_hang(sim):
    machine = sim(text='[[gpu]]\nmodel = "RX7900XTX"\nphantom_busy = true\n')
    done = machine.lull("run", "--gpus", "amd:0", "--idle", "hung", *FAST, "--",
                        machine.binary, "sim", "load", "--gpu", "amd:0", "--util", "0", "--for", "2s")
    assert done.returncode == 0 and done.stderr.count("RDNA") == 1, done.stderr


def test_an_intel_gpu_that_is_kept_awake_is_not_taken_for_a_hang(sim):
    machine = sim(text='[[gpu]]\nmodel = "B580"\nutil = 100\npower = 30\n')
    command = ["--", machine.binary, "sim", "load", "--gpu", "intel:0", "--util", "0", "--for", "2s"]
    done = machine.lull("run", "--gpus", "intel:0", "--idle", "hung", *FAST, *command)
    assert done.returncode == 0 and done.stderr.count("`hung` is not used") == 1, done.stderr


def test_a_model_that_waits_on_rdna_is_idle_by_its_power_alone(sim):
    machine = sim(text='[[gpu]]\nmodel = "RX7900XTX"\nidle_util = 4\n')
    machine.load("amd:0", 0, "1GiB")

    def look(rule):
        return json.loads(machine.lull("check", "--json", rule).stdout)
    by_util = look("util < 1 for 30m")
    assert by_util["now"] is False and gpus_of(machine)[0]["util_percent"] in (3, 4)
    assert any("`power < 25% for 30m` would do" in one for one in by_util["remarks"]), by_util["remarks"]
    assert look("power < 25% for 30m")["now"] is True


def test_partitions_are_shown_and_not_judged(sim):
    machine = sim(text='[[gpu]]\nmodel = "MI300X"\npartition = "CPX"\n[[gpu]]\nmodel = "MI300X"\n')
    load = machine.load("amd:0", 0, "1GiB")
    split = [gpu for gpu in gpus_of(machine) if gpu["kind"] == "mig"]
    assert [(gpu["index"], gpu["mig_index"]) for gpu in split] == [(0, part) for part in range(8)]
    for gpu in split:
        assert gpu["util_percent"] is None and gpu["unknown"]["util_percent"] == "no values of a single partition"
    assert [[one["pid"] for one in gpu["processes"]] for gpu in split] == [[load.pid]] + [[]] * 7
    # The job on it does nothing, and is not ended.
    done = machine.lull("run", "--idle", "util < 5 for 500ms", *FAST, "--", machine.binary, "sim", "load", "--gpu", "amd:0",
                        "--util", "0", "--for", "3s")
    assert done.returncode == 0 and "GPU 0:0" in done.stderr and "no values of a single partition" in done.stderr, done.stderr


def test_a_partition_is_not_picked_unless_it_is_asked_for(sim):
    """By its place in ROCm's order: all partitions of a card have one UUID."""
    machine = sim(text='[[gpu]]\nmodel = "MI300X"\npartition = "CPX"\n[[gpu]]\nmodel = "MI300X"\n')
    whole = gpus_of(machine)[-1]
    assert environment_of(machine)["ROCR_VISIBLE_DEVICES"] == whole["uuid"]
    done = machine.lull("pick", "--gpus", "0:3", "--", "true")
    assert done.returncode != 0 and "no values of a single partition" in done.stderr, done.stderr
    chosen = environment_of(machine, "--gpus", "0:3", "--util", "any", "--mem-util", "any", "--mem-used", "any")
    assert chosen == {"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "0"}, "behind the whole card and three partitions"


# ---- pick


def test_pick_sets_what_each_runtime_reads(sim):
    machine = sim(MIXED)
    gpus = gpus_of(machine)
    stray = {"CUDA_VISIBLE_DEVICES": "1", "GPU_DEVICE_ORDINAL": "1", "HIP_VISIBLE_DEVICES": "1"}
    assert environment_of(machine, "--gpus", "amd:1", env=stray) == {
        "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": gpus[2]["uuid"], "HIP_VISIBLE_DEVICES": "0"}
    assert environment_of(machine, "--vendor", "intel", "--util", "50") == {
        "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1", "ZE_AFFINITY_MASK": "0"}
    assert environment_of(machine)["CUDA_VISIBLE_DEVICES"] == "0"
    done = machine.lull("pick", "--vendor", "intel", "--util", "any", "--", "true", env={"ZE_FLAT_DEVICE_HIERARCHY": "FLAT"})
    assert done.returncode != 0 and "COMPOSITE" in done.stderr


def test_visible_gpus_are_those_of_the_runtimes_variables(sim):
    machine = sim(MIXED)
    environment = environment_of(machine, "--gpus", "amd:1")
    done = machine.lull("status", "--json", "--visible", env=environment)
    assert [gpu["index"] for gpu in json.loads(done.stdout)["gpus"]] == [2], done.stdout


@pytest.mark.parametrize("model,vendor", [("MI300X", "amd"), ("B580", "intel")])
def test_two_picks_never_share_a_gpu(sim, model, vendor):
    machine = sim(f"2x{model}")
    command = ("pick", "--vendor", vendor, "--util", "50", "--", "sh", "-c",
               "echo $ROCR_VISIBLE_DEVICES$ZE_AFFINITY_MASK; exec sleep 60")
    with running(machine, *command) as first, running(machine, *command) as second:
        assert len({first.stdout.readline(), second.stdout.readline()} - {""}) == 2
        assert machine.lull(*command[:-3], "true").returncode != 0


def test_a_gpu_that_is_held_is_not_free(sim):
    machine = sim("2xMI300X,1xA770")
    machine.load("amd:0", 0, "1GiB")
    machine.load("intel:0", 0, "100MiB")
    second = gpus_of(machine)[1]["uuid"]
    assert {environment_of(machine, "--vendor", "amd")["ROCR_VISIBLE_DEVICES"] for _ in range(3)} == {second}
    assert machine.lull("pick", "--vendor", "intel", "--util", "50", "--", "true").returncode != 0


# ---- watch, fill, record


def test_watch_ends_the_idle_job_and_not_its_neighbour(sim):
    machine = sim("2xMI210")
    idle, busy = machine.load("amd:0", 0, "1GiB"), machine.load("amd:1", 90, "1GiB")
    with running(machine, "watch", "--per", "gpu", "--idle", "util < 5 for 1s", "--do", "end", *FAST):
        wait_until(lambda: not alive(idle.pid) or idle.poll() is not None, what="the end of the idle process")
    assert busy.poll() is None


def test_fill_gives_way_to_who_opens_the_gpu(sim, tmp_path):
    machine = sim("1xMI210")
    beats = tmp_path / "beats"
    script = f"while :; do echo x >> {beats}; sleep 0.1; done"
    count = lambda: len(beats.read_text()) if beats.exists() else 0  # noqa: E731
    quick = ("--idle", "util < 5 for 500ms", "--every", "200ms", "--confirm", "1s", "--user-idle", "0", "--grace", "200ms")
    with running(machine, "fill", "--gpus", "amd:0", *quick, "--", "sh", "-c", script):
        wait_until(lambda: count() > 2, what="the filler")
        other = machine.load("amd:0", 50, "1GiB")

        def still():
            before = count()
            time.sleep(0.7)
            return count() == before
        wait_until(still, what="the pause")
        other.kill()
        other.wait()
        before = count()
        wait_until(lambda: count() > before + 2, what="the filler again")


def test_a_recorded_day_is_judged_again_as_it_was(sim, tmp_path):
    machine = sim("1xMI210,1xB580")
    machine.load("amd:0", 90)
    file = tmp_path / "day.csv"
    done = machine.lull("record", "--every", "200ms", "--for", "2s", "-o", file)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert {round(float(row["util_percent"])) for row in rows if row["gpu"] == "0"} == {90}
    assert [row["util_percent"] for row in rows if row["gpu"] == "1"][0] == "", "it takes two looks"
    judged = json.loads(machine.lull("replay", file, "--idle", "util < 30 for 1s", "--json").stdout)
    assert judged["totals"]["jobs"] == 1 and judged["totals"]["ended"] == 0, judged["totals"]
