"""What cannot be seen may make an answer unknown or a no, never a yes: whose GPU is it, if that cannot be told?"""
import pytest

RULE = ("--every", "100ms", "--delay", "0")
LISTS = "nvmlDeviceGetComputeRunningProcesses*"


def test_a_gpu_whose_list_cannot_be_read_when_the_job_begins_there(sim):
    gpus = sim(2)
    load = f"{gpus.binary} sim load --gpu"
    done = gpus.lull("run", "--idle", "util < 5 for 1s", *RULE, "--", "sh", "-c",
                     f"{load} 0 --util 90 --for 3s --then util=0 --for 3s & sleep 0.5; "
                     f"{gpus.binary} sim fault 1 unknown --function '{LISTS}'; {load} 1 --util 90 --for 6s; wait; exit 5")
    assert done.returncode == 5, done.stderr


def test_work_in_a_graphics_context_is_work_of_the_job(sim):
    gpus = sim(2)
    load = f"{gpus.binary} sim load --gpu"
    done = gpus.lull("run", "--idle", "util < 5 for 1s", *RULE, "--", "sh", "-c",
                     f"{load} 1 --util 90 --graphics --for 5s & sleep 1; {load} 0 --util 0 --for 3s; wait; exit 5")
    assert done.returncode == 5, done.stderr


@pytest.mark.parametrize("rule", ["any(util) < 5", "min(util) < 5", "mean(util) < 50", "not util > 5"])
def test_a_gpu_that_is_only_maybe_the_jobs_never_ends_it(sim, rule):
    gpus = sim(2)
    gpus.fault(1, "unknown", function=LISTS)
    done = gpus.lull("run", "--idle", f"({rule}) for 500ms", *RULE, "--",
                     gpus.binary, "sim", "load", "--gpu", "0", "--util", "90", "--for", "2s")
    assert done.returncode == 0, done.stderr
    assert "it is unknown whether the job works on" in done.stderr


@pytest.mark.parametrize("function, rule", [
    ("nvmlDeviceGetEnforcedPowerLimit", "power < 30%"),
    ("nvmlDeviceGetMemoryInfo*", "mem_used < 5%"),
    ("nvmlDeviceGetSamples", "util < 5"),
    ("nvmlDeviceGetUtilizationRates", "util < 5"),
    ("nvmlDeviceGet*", "util < 5 or power < 30% or mem_used < 5%"),
])
def test_garbage_from_the_driver_ends_nobody(sim, function, rule):
    """368 W are no share of a limit of all ones, and a ring of garbage tells nothing of a card at 90 %."""
    with sim("1xH100") as gpus:
        gpus.set(0, util=90, power=368, mem_used="40GiB")
        gpus.fault(0, "garbage", function)
        done = gpus.lull("run", "-v", "--gpus", "0", "--delay", "0", "--every", "100ms", "--grace", "300ms", "--idle",
                         f"({rule}) for 300ms", "--", "sh", "-c", "sleep 2; exit 5")
        assert done.returncode == 5, done.stderr
        assert done.stderr.count("GPU 0 ") >= 5
