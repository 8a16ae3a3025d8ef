"""lull pick: which GPUs suit, what the command sees, what is printed, what is said when nothing fits."""
import collections
import json
import os
import pwd
import pty
import re
import signal
import subprocess

import pytest
from conftest import LIMIT, wait_until

PYTHON = "/usr/bin/python3"


def picked(gpus, *options, **kwargs):
    done = gpus.lull("pick", *options, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(gpus, *options, status=125, **kwargs):
    done = gpus.lull("pick", *options, **kwargs)
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stdout == ""
    return done.stderr


# ---- what suits ----------------------------------------------------------------------------------

def test_busy_gpus_are_passed_over_and_the_reason_is_said(sim):
    gpus = sim(3)
    gpus.load(0, util=41)
    gpus.load(2, util=0, mem="8GiB")
    assert {picked(gpus) for _ in range(5)} == {"1"}
    said = refused(gpus, "-n", "2").splitlines()
    assert said[0] == "lull: 2 GPUs asked for, 1 fits"
    assert re.fullmatch(r"GPU 0: 1 process, 41 % util, \d+ % mem_util, 512.0 MiB in use; wanted 0 processes, 0 % util, 0 % mem_util, at .*", said[1]), said[1]
    assert re.fullmatch(r"GPU 2: 1 process, 8\.\d GiB in use; wanted 0 processes, at most 64\.0 MiB in use \(\w+: .*\)", said[2]), said[2]


def test_memory_in_use_counts(sim):
    gpus = sim("1xT4")
    gpus.set(0, mem_used="14.5GiB")
    # What the driver reserves may be part of what was set here, and is no part of what is in use.
    assert re.search(r"GPU 0: 1[34]\.\d GiB in use; wanted at most 64\.0 MiB in use", refused(gpus))
    gpus.set(0, mem_used="40MiB")  # an X server without a screen, an idle MPS server
    assert picked(gpus) == "0"
    gpus.set(0, mem_used="600MiB")  # a process of another container, which the driver does not show
    refused(gpus)
    gpus.set(0, mem_used="900MiB")
    refused(gpus)
    assert picked(gpus, "--mem-used", "1GiB") == "0"
    assert picked(gpus, "--tolerate", "1GiB") == "0"


def test_small_leftovers_can_be_tolerated(sim):
    gpus = sim(1)
    gpus.load(0, util=0, mem="300MiB")
    assert "1 process, 300.0 MiB in use; wanted 0 processes, at most 64.0 MiB in use" in refused(gpus)
    assert picked(gpus, "--tolerate", "700MiB") == "0"
    gpus.load(0, util=0, mem="2GiB")
    refused(gpus, "--tolerate", "700MiB")


@pytest.mark.parametrize("options, fits", [
    (["--util", "40"], False), (["--util", "50"], False), (["--util", "50", "--procs", "1"], False),
    (["--util", "50", "--procs", "1", "--mem-util", "60"], True),
    (["--util", "any", "--procs", "any", "--mem-util", "any"], True)])
def test_a_gpu_in_use_fits_by_the_given_limits(sim, options, fits):
    gpus = sim(1)
    gpus.load(0, util=45, mem="512MiB")
    done = gpus.lull("pick", *options)
    assert (done.returncode == 0) == fits, done.stderr


def test_free_memory_name_and_temperature(sim):
    gpus = sim("1xT4,2xA100")
    assert picked(gpus, "--mem-free", "20GiB", "-n", "2") == "1,2"
    assert "GPU 0: has 15.0 GiB in all; wanted at least 20.0 GiB free" in refused(gpus, "--mem-free", "20GiB", "-n", "3")
    assert picked(gpus, "--name", "t4") == "0"
    assert "wanted H100" in refused(gpus, "--name", "H100")
    gpus.set(1, temp=80)
    gpus.set(2, temp=50)
    assert picked(gpus, "--name", "a100", "--temp", "60") == "2"
    assert picked(gpus, "--name", "a100", "--best", "cool") == "2"
    gpus.set(1, mem_used="30GiB")
    assert picked(gpus, "--best", "memory", "--mem-used", "any") == "2"


def test_where_is_a_rule_on_one_reading(sim):
    gpus = sim(2)
    gpus.set(0, power=250)
    gpus.set(1, power=60)
    assert picked(gpus, "--where", "power < 100W") == "1"
    assert "power 250 W, power_limit 400 W; wanted power < 20%" in refused(gpus, "--gpus", "0", "--where", "power < 20%")
    assert "for" in refused(gpus, "--where", "util < 5 for 3m", status=2)
    assert refused(gpus, "--where", "utl < 5", status=2)


def test_where_may_ask_for_what_is_dear_to_read(sim):
    gpus = sim(2)
    gpus.load(0, util=0, mem="10MiB")
    fitting = ["--procs", "any", "--where", "openers == 0 and pcie < 1TiB"]
    done = gpus.lull("pick", *fitting)
    if "no permission" in done.stderr:
        pytest.skip("not allowed to look at every process here")
    assert done.stdout == "1\n", done.stderr
    assert "GPU 0: openers 1" in refused(gpus, "-n", "2", *fitting)


def test_unreadable_gpus_are_never_picked(sim):
    gpus = sim(4)
    gpus.fault(0, "lost")
    gpus.fault(1, "unknown", function="nvmlDeviceGetUtilizationRates")
    gpus.fault(2, "hang=4s")
    assert {picked(gpus) for _ in range(3)} == {"3"}
    said = refused(gpus, "-n", "2")
    assert "GPU 0: cannot be read (GPU is lost)" in said
    assert "GPU 1: util cannot be read (unknown error)" in said
    assert "GPU 2: cannot be read (still waking up)" in said  # it hangs in the very first call
    assert gpus.lull("pick", "--gpus", "0-2", "--", "true").returncode == 125


def test_a_card_without_utilisation_is_judged_by_processes_and_memory(sim):
    gpus = sim(1)
    gpus.fault(0, "no-util")
    assert json.loads(picked(gpus, "--format", "json"))["gpus"][0]["judged_by"] == ["procs", "mem_used"]
    assert "GPU 0: util cannot be read (not supported)" in refused(gpus, "--util", "5")
    gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo")
    gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo_v2")
    assert "procs alone does not tell" in refused(gpus)
    gpus.set(0, pstate=8)  # an A100 rests in 0; one that rests in 8 says so
    assert json.loads(picked(gpus, "--format", "json"))["gpus"][0]["judged_by"] == ["procs", "pstate"]
    assert picked(gpus, "--wait", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0"


def test_a_card_without_memory_is_judged_by_utilisation_and_processes(sim):
    gpus = sim(1)
    gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo")
    gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo_v2")
    assert json.loads(picked(gpus, "--format", "json"))["gpus"][0]["judged_by"] == ["util", "procs"]
    gpus.load(0, util=50)
    assert "GPU 0: 1 process, 50 % util" in refused(gpus)


def test_gpus_that_we_may_not_use_are_left_out(sim):
    gpus = sim(3)
    gpus.fault(1, "no-permission")
    assert picked(gpus, "-n", "all") == "0,2"
    said = refused(gpus, "-n", "3")
    assert said.splitlines() == ["lull: 3 GPUs asked for, 2 fit", "GPU 1: cannot be read (no permission)"]
    assert "GPU 1: cannot be read (no permission)" in refused(gpus, "-n", "all", "--gpus", "0,1")
    refused(gpus, "-n", "3", "--wait", "--", "true")  # at once: waiting does not make it ours


def test_no_driver_is_said(sim):
    gpus = sim(1)
    gpus.fault("all", "no-driver")
    assert "driver is not loaded" in refused(gpus)
    assert "driver is not loaded" in refused(gpus, "--", "true")


def test_mine_ok(sim):
    gpus = sim(1)
    gpus.load(0, util=50, mem="8GiB")
    refused(gpus)
    assert picked(gpus, "--mine-ok") == "0"
    if os.geteuid() == 0:
        for path in [gpus.folder, *gpus.folder.rglob("*")]:
            path.chmod(0o777)
        refused(gpus, "--mine-ok", user=12345, group=12345, extra_groups=[])


def test_only_the_gpus_that_were_named(sim):
    gpus = sim(4)
    assert {picked(gpus, "--gpus", "1,3") for _ in range(20)} == {"1", "3"}
    assert picked(gpus, "--gpus", "2-3", "-n", "all") == "2,3"
    assert "3" in refused(gpus, "--gpus", "7", status=2)


def test_random_by_default(sim):
    gpus = sim(4)
    seen = collections.Counter(picked(gpus) for _ in range(60))
    assert set(seen) == {"0", "1", "2", "3"}


def test_a_batch_job_stays_on_its_gpus(sim):
    gpus = sim(4)
    batch = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert picked(gpus, "-n", "2", env=batch) == "1,2"
    refused(gpus, "-n", "3", env=batch)
    assert picked(gpus, "-n", "4", env={"CUDA_VISIBLE_DEVICES": "1"}) == "0,1,2,3"  # of an earlier pick in this shell


# ---- topology ------------------------------------------------------------------------------------

DGX = '[[gpu]]\nmodel = "A100"\ncount = 8\n[topology]\npreset = "dgx"\n'
BRIDGES = '[[gpu]]\nmodel = "3090"\ncount = 4\n[topology]\npreset = "bridges"\n'


def test_topology_of_eight_a100(sim):
    gpus = sim(text=DGX)
    for _ in range(6):
        assert picked(gpus, "-n", "2", "--best", "topology") in ("0,1", "2,3", "4,5", "6,7")
        assert picked(gpus, "-n", "4", "--best", "topology") in ("0,1,2,3", "4,5,6,7")
    gpus.load(0, util=90)
    gpus.load(3, util=90)
    assert picked(gpus, "-n", "4", "--best", "topology") == "4,5,6,7"
    gpus.load(5, util=90)
    gpus.load(6, util=90)
    assert picked(gpus, "-n", "2", "--best", "topology") in ("1,2", "4,7")  # no pair is whole: one NUMA node


def test_topology_of_bridged_3090(sim):
    gpus = sim(text=BRIDGES)
    for _ in range(6):
        assert picked(gpus, "-n", "2", "--best", "topology") in ("0,1", "2,3")
    gpus.load(1, util=90)
    assert picked(gpus, "-n", "2", "--best", "topology") == "2,3"
    assert picked(gpus, "-n", "1", "--best", "topology") == "0"  # leaves the pair whole
    assert picked(gpus, "-n", "3", "--best", "topology") == "0,2,3"


def test_topology_that_hangs_is_said_and_done_without(sim):
    gpus = sim(text=BRIDGES)
    gpus.fault("all", "hang=20s", function="nvmlDeviceGetTopologyCommonAncestor")
    done = gpus.lull("pick", "-n", "2", "--best", "topology")
    assert done.returncode == 0 and "at random" in done.stderr


# ---- MIG -----------------------------------------------------------------------------------------

MIG = '[[gpu]]\nmodel = "H100"\nmig = ["3g.40gb", "1g.10gb"]\n[[gpu]]\nmodel = "H100"\n'


def test_mig_devices_are_picked_like_gpus(sim):
    gpus = sim(text=MIG)
    everything = picked(gpus, "-n", "3").split(",")
    assert [uuid[:4] for uuid in everything] == ["MIG-", "MIG-", "GPU-"]  # CUDA knows MIG by UUID only
    assert "GPU 0: is divided into MIG devices" in refused(gpus, "-n", "4")
    gpus.load("0:0", util=50)
    assert picked(gpus, "--gpus", "0:0,0:1") == everything[1]
    job = gpus.start_lull("pick", "--gpus", "0:1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x",
                          stdin=subprocess.PIPE)
    assert job.stdout.readline().strip() == everything[1]
    assert "leased" in refused(gpus, "--gpus", "0:1")
    assert json.loads(gpus.lull("leases", "--json").stdout)["leases"][0]["label"] == "0:1"
    job.stdin.close()
    job.wait(timeout=LIMIT)


# ---- what is printed -----------------------------------------------------------------------------

def test_gpus_are_named_in_the_given_format(sim):
    gpus = sim(2)
    both = ["-n", "2", "--format"]
    uuids = picked(gpus, *both, "uuids")
    assert re.fullmatch(r"GPU-[0-9a-f-]{36},GPU-[0-9a-f-]{36}", uuids)
    assert picked(gpus, *both, "ids") == "0,1"
    assert picked(gpus, *both, "docker") == '"device=0,1"'
    assert picked(gpus, *both, "docker", "--uuid") == f'"device={uuids}"'
    assert picked(gpus, *both, "env") == "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=0,1"
    parsed = json.loads(picked(gpus, *both, "json"))
    assert [gpu["index"] for gpu in parsed["gpus"]] == [0, 1]
    assert [gpu["uuid"] for gpu in parsed["gpus"]] == uuids.split(",")
    assert parsed["held"] is False and parsed["lease"] is None
    assert parsed["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert json.loads(picked(gpus, *both, "json", "--hold", "10s"))["held"] is True


def test_docker_line(sim, tmp_path):
    gpus = sim(2)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    line = f"{docker} run --gpus $({gpus.binary} pick -n 2 --format docker) --rm image"
    assert gpus.run("sh", "-c", line).stdout.splitlines() == ["run", "--gpus", '"device=0,1"', "--rm", "image"]


def test_a_printed_choice_is_not_held(sim):
    gpus = sim(1)
    assert picked(gpus) == picked(gpus) == "0"
    assert picked(gpus, "--wait") == "0"
    assert json.loads(gpus.lull("leases", "--json").stdout)["leases"] == []


def test_no_lease(sim):
    gpus = sim(1)
    done = gpus.lull("pick", "--no-lease", "--", "sh", "-c", f"echo $CUDA_VISIBLE_DEVICES; {gpus.binary} leases --json")
    assert done.stdout.splitlines()[0] == "0" and json.loads(done.stdout.splitlines()[1])["leases"] == []


# ---- the command ---------------------------------------------------------------------------------

def test_the_command_sees_its_gpus(sim):
    gpus = sim(2)
    shown = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
    assert picked(gpus, "-n", "2", "--", "sh", "-c", shown) == "0,1 PCI_BUS_ID"
    assert picked(gpus, "--gpus", "1", "--uuid", "--", "sh", "-c", shown).startswith("GPU-")
    assert picked(gpus, "--gpus", "1", "--", "sh", "-c", shown, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) == \
        "1 PCI_BUS_ID"


@pytest.mark.parametrize("command, status", [(["true"], 0), (["sh", "-c", "exit 7"], 7),
                                             (["sh", "-c", "kill -9 $$"], -9), (["sh", "-c", "kill -TERM $$"], -15),
                                             (["no-such-command"], 127), (["/etc/passwd"], 126), (["/"], 126)])
def test_its_status_is_the_commands(sim, command, status):
    gpus = sim(1)
    assert gpus.lull("pick", "--", *command).returncode == status


def test_options_end_at_the_command(sim):
    gpus = sim(2)
    assert picked(gpus, "-n", "2", "echo", "-n", "3", "--wait") == "3 --wait"
    assert picked(gpus, "--wait", "echo", "5m") == "5m"
    assert picked(gpus, "--", "echo", "--") == "--"


def test_there_is_no_wrapper(sim):
    gpus = sim(1)
    job = gpus.start_lull("pick", "--", "sleep", "1000")
    wait_until(lambda: open(f"/proc/{job.pid}/comm").read() == "sleep\n", what="the exec")
    job.terminate()
    assert job.wait(timeout=LIMIT) == -signal.SIGTERM


# What a program sees of its own children: by any kind of wait, and in /proc.
CHILDREN = """
import glob, os
try:
    print("waited for", os.waitpid(-1, os.WNOHANG | 0x40000000)[0])  # __WALL: whatever signal they end with
except ChildProcessError:
    print("no child")
print("".join(open(path).read() for path in glob.glob("/proc/self/task/*/children")).split())
"""


@pytest.mark.parametrize("options", [[], ["--best", "cool"], ["--best", "topology"], ["--mine-ok"]])
def test_the_sensor_is_no_child_of_the_command(sim, options):
    gpus = sim(1)
    done = gpus.lull("pick", *options, "--no-lease", "--", PYTHON, "-c", CHILDREN)
    assert (done.stdout, done.stderr) == ("no child\n[]\n", "")


def test_the_lease_holder_is_no_child_of_the_command_either(sim):
    gpus = sim(1)
    for options in ([], ["--wait"], ["--best", "topology"]):
        done = gpus.lull("pick", *options, "--", PYTHON, "-c", CHILDREN)
        assert (done.stdout, done.stderr) == ("no child\n[]\n", ""), options


def test_the_jobs_own_wait_sees_nobody(sim):
    gpus = sim(1)
    script = "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')"
    assert picked(gpus, "--", PYTHON, "-c", script) == "none"
    assert picked(gpus, "--", "sh", "-c", "wait; echo $?") == "0"


def test_streams_are_the_commands_own(sim):
    gpus = sim(1)
    data = os.urandom(1 << 20)
    done = gpus.lull("pick", "--", "sh", "-c", "tee /dev/stderr", input=data, text=False)
    assert done.stdout == data and done.stderr == data


def test_nothing_is_left_behind_when_the_command_cannot_run(sim):
    gpus = sim(1)
    assert gpus.lull("pick", "--", "no-such-command").returncode == 127
    folder = gpus.folder / "leases"
    wait_until(lambda: not folder.exists() or not list(folder.iterdir()))


def test_a_gpu_that_was_taken_between_is_noticed(sim):
    """Sampled as idle, used by a stranger when the lease was there: another one is taken."""
    gpus = sim(2)
    gpus.load(0, util=50)
    for _ in range(5):
        assert picked(gpus, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "1"


def test_mistakes_get_one_line(sim):
    gpus = sim(1)
    for options in (["-n", "0"], ["-n", "x"], ["--util", "-3"], ["--mem-free", "20Gib"], ["--best", "bset"],
                    ["--format", "xml"], ["--wait=soon"], ["--wait", "10m", "--", "true"], ["--priority", "1.5"], ["--hold", "10m", "--", "true"],
                    ["--hold", "1m", "--hold-pid", "1"], ["--hold-pid", "0"], ["--no-lease", "--wait", "--", "true"],
                    ["--format", "json", "--", "true"], ["--colour"], ["--"], ["-n"], ["--quiet=1"], ["-x"]):
        done = gpus.lull("pick", *options)
        assert done.returncode == 2, (options, done.stderr)
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("lull pick: "), done.stderr


def test_help_has_an_example(run_lull):
    for command in ("pick", "leases", "release"):
        done = run_lull(command, "--help")
        assert done.returncode == 0 and "example" in done.stdout.lower() and done.stderr == ""


def test_the_place_in_the_queue_is_shown_on_a_terminal(sim):
    gpus = sim(1)
    holder = gpus.start_lull("pick", "--", "sh", "-c", "echo here; read line", stdin=subprocess.PIPE)
    holder.stdout.readline()
    ahead = gpus.start_lull("pick", "--wait", "-q", "--", "true")
    queue = lambda: json.loads(gpus.lull("leases", "--json").stdout)["queue"]
    wait_until(lambda: len(queue()) == 1)
    master, slave = pty.openpty()
    waiter = gpus.start_lull("pick", "--wait", "--", "echo", "served", stderr=slave)
    os.close(slave)
    text = ""
    while "2nd in turn" not in text:
        text += os.read(master, 4096).decode()
    assert "waiting for 1 GPU" in text and "GPU 0: leased" in text
    holder.stdin.close()
    assert waiter.stdout.read() == "served\n"
    assert waiter.wait(timeout=LIMIT) == 0 and ahead.wait(timeout=LIMIT) == 0
    os.close(master)


@pytest.mark.parametrize("option, most", [("--util", 100), ("--mem-util", 100), ("--procs", 1000000), ("--temp", 250)])
def test_limits_that_no_gpu_can_reach_are_refused(sim, option, most):
    gpus = sim(1)
    assert gpus.lull("pick", option, most).returncode == 0
    for value in (most + 1, "1e300", "nan", "-1"):
        refused = gpus.lull("pick", option, value)
        assert refused.returncode == 2 and f"0 to {most} would be right" in refused.stderr, refused.stderr


def test_a_printed_choice_says_that_nothing_is_held(sim):
    with sim(2) as gpus:
        done = gpus.lull("pick")
        assert done.returncode == 0 and "nothing is held" in done.stderr and "--hold" in done.stderr
        for more in (["-q"], ["--no-lease"], ["--hold", "1m"]):
            assert "nothing is held" not in gpus.lull("pick", *more).stderr, more


def test_a_refusal_names_the_owner_and_suggests_to_wait(sim):
    with sim(1) as gpus:
        job = gpus.load(0, util=80)
        done = gpus.lull("pick")
        assert done.returncode == 125 and "--wait" in done.stderr
        me = pwd.getpwuid(os.geteuid()).pw_name
        assert f"({me}: " in done.stderr, done.stderr
        job.terminate()
        job.wait(timeout=LIMIT)
        never = gpus.lull("pick", "-n", "2")  # there is one
        assert never.returncode == 125 and "--wait" not in never.stderr


def test_a_size_without_a_unit_asks_for_it(sim):
    with sim(1) as gpus:
        done = gpus.lull("pick", "--mem-free", "20")
        assert done.returncode == 2 and "20GiB" in done.stderr
        assert gpus.lull("pick", "-q", "--mem-free", "20G").returncode == 0
