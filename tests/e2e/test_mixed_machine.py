"""The drop-ins on a machine with GPUs of several vendors: they see those of NVIDIA alone, as their originals."""
import pytest

from conftest import LIMIT, build_dir, read_until
from test_gpu_mon import Mon, TTY_OFF


@pytest.fixture
def mixed(sim):
    """An idle card of AMD and one of Intel beside two of NVIDIA."""
    gpus = sim("2xH100,1xMI210,1xA770")
    assert len(gpus.show()["gpus"]) == 4
    return gpus


def tool(name):
    return str(build_dir() / name)


def test_gpuselect_chooses_cards_of_nvidia_alone(mixed):
    mixed.set("0,1", util=90)
    assert mixed.run(tool("gpuselect")).returncode == 1, "the idle ones are not NVIDIA's"
    mixed.set(1, util=0)
    assert mixed.run(tool("gpuselect")).stdout == "1\n"
    assert mixed.run(tool("gpuselect"), "-c", "2").returncode == 1


def test_gpu_mon_fills_cards_of_nvidia_alone(mixed, tmp_path):
    mixed.load("amd:0", 50)
    mon = Mon(mixed, tmp_path, f"[defaults]\ninterval_seconds=1\n[process-all]\ndir={tmp_path}\ncmd=sleep 1000\ngpus=all\n" + TTY_OFF)
    mon.wait_for("Starting: sleep 1000 on all GPUs")
    assert [line for line in mon.lines() if "GPUInfo(" in line] == [
        f"INFO gpu_mon GPUInfo(file_name='/dev/nvidia{gpu}', id={gpu})" for gpu in (0, 1)]


def test_gpu_sentinel_takes_the_mean_of_cards_of_nvidia_alone(mixed):
    mixed.set("0,1", util=95)
    sentinel = mixed.start(tool("gpu_sentinel"), "--arm_duration", "1", "--kill_duration", "2")
    read_until(sentinel.stdout, "GPU Sentinel is armed")  # the mean of all four would be 47
    mixed.set("amd:0,intel:0", util=100)
    mixed.set("0,1", util=60)  # and now 80
    assert sentinel.wait(timeout=LIMIT) == 0


def test_gpu_idle_timeout_judges_cards_of_nvidia_alone(mixed):
    mixed.set("amd:0,intel:0", util=100)
    done = mixed.run(tool("gpu_idle_timeout"), "--gpus", "all", "-t", "50", "-s", "0.2", "-n", "4", "-d", "1", "-x", "sleep", "1000")
    assert done.returncode == 1, done.stderr
    nvidia = [gpu["uuid"] for gpu in mixed.show()["gpus"][:2]]
    assert f"usage for all GPUs: {nvidia} was below" in done.stderr
