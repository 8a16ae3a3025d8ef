"""`lull sim` with GPUs of AMD and Intel and a Jetson: the files that the kernel would show, alive."""
import errno
import json
import os
import pathlib
import signal
import time

import pytest

from conftest import end, wait_until

PLAIN = {"LULL_SIM_FILES": "plain"}


class Tree:
    """The files of a simulation."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.sys = gpus.folder / "sys"

    def served(self):
        return any(f" {self.sys}/devices " in line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())

    def card(self, number):
        return self.sys / f"class/drm/card{number}"

    def read(self, number, name):
        return (self.card(number) / "device" / name).read_text().strip()

    def sensor(self, number, name):
        return next((self.card(number) / "device/hwmon").iterdir()).joinpath(name).read_text().strip()


@pytest.fixture(params=["served", "plain"])
def tree(sim, request):
    """tree(gpus): a simulation, and its files, made as they are read (where there is FUSE) or written anew."""
    def start(*args, **kwargs):
        env = {**os.environ, **(PLAIN if request.param == "plain" else {})}
        tree = Tree(sim(*args, env=env, **kwargs))
        if request.param == "served" and not tree.served():
            pytest.skip("files are not made as they are read here: no FUSE")
        assert tree.served() == (request.param == "served")
        return tree
    return start


def test_cards_of_three_vendors_in_one_machine(tree):
    machine = tree("1xA770,2xMI300X,1xH100")
    gpus = json.loads(machine.gpus.lull("sim", "show", "--json").stdout)["gpus"]
    assert [gpu["vendor"] for gpu in gpus] == ["nvidia", "amd", "amd", "intel"]
    assert [machine.read(card, "vendor") for card in (0, 8, 16)] == ["0x1002", "0x1002", "0x8086"]
    assert not (machine.card(1) / "device/vendor").exists()  # of a partition
    assert sorted(path.name for path in (machine.gpus.folder / "dev/dri").iterdir()) == [
        "card0", "card16", "card8", "renderD128", "renderD136", "renderD144"]
    assert (machine.gpus.folder / "dev/nvidia0").exists() and not (machine.gpus.folder / "dev/nvidia1").exists()
    assert "H100" in machine.gpus.lull("status", "--gpus", "0").stdout


def test_values_follow_what_is_set(tree):
    machine = tree("1xRX7900XTX,1xH100")
    machine.gpus.set("amd:0", util=37, power=210, temp=61)
    assert machine.read(0, "gpu_busy_percent") == "37"
    assert machine.sensor(0, "power1_average") == "210000000"
    assert machine.sensor(0, "temp1_input") == "61000"
    shown = json.loads(machine.gpus.lull("sim", "show", "--json").stdout)["gpus"]
    assert [gpu["util_percent"] for gpu in shown] == [0, 37]
    machine.gpus.clear("amd:0")
    assert machine.read(0, "gpu_busy_percent") == "0"


def test_time_alone_changes_counters(tree):
    machine = tree("1xA770")
    residency = machine.card(0) / "gt/gt0/rc6_residency_ms"
    before = int(residency.read_text())
    wait_until(lambda: int(residency.read_text()) > before + 300, what="idle time")
    machine.gpus.set("intel:0", util=100)
    before, began = int(residency.read_text()), time.monotonic()
    time.sleep(0.5)
    assert int(residency.read_text()) - before < 100 * (time.monotonic() - began) + 150


def test_a_load_of_amd_is_in_kfd(tree):
    machine = tree("2xMI210")
    load = machine.gpus.load("amd:1", 80, "3GiB")
    assert machine.read(1, "gpu_busy_percent") == "80"
    kfd = machine.sys / "class/kfd/kfd/proc" / str(load.pid)
    # A file for each card that it may open.
    wait_until(lambda: sorted(path.read_text() for path in kfd.glob("vram_*")) == ["0\n", f"{3 << 30}\n"], what="its memory")
    held = {os.path.basename(os.readlink(path)) for path in pathlib.Path(f"/proc/{load.pid}/fd").iterdir()}
    assert {"kfd", "renderD129"} <= held and "renderD128" not in held
    os.kill(load.pid, signal.SIGKILL)
    end(load)
    wait_until(lambda: not kfd.exists(), what="its end in KFD")
    wait_until(lambda: machine.read(1, "gpu_busy_percent") == "0", what="its end on the card")


def test_a_load_of_intel_has_fdinfo(tree):
    machine = tree("1xA770,1xB580")
    load = machine.gpus.load("intel:1", 50, "1GiB")
    folder = machine.gpus.folder / f"proc/{load.pid}/fdinfo"
    numbers = [path.name for path in folder.iterdir()]
    for number in numbers:
        assert os.readlink(f"/proc/{load.pid}/fd/{number}").endswith("/dev/dri/renderD129")
    assert len(numbers) == 2  # one client by two descriptors

    def fields(number):
        lines = (line.partition(":") for line in (folder / number).read_text().splitlines())
        return {name: value.strip() for name, _, value in lines}
    first, second = fields(numbers[0]), fields(numbers[1])
    assert (first["drm-driver"], first["drm-client-id"]) == ("xe", second["drm-client-id"])
    assert first["drm-pdev"] == os.path.basename(os.path.realpath(machine.card(1) / "device"))
    assert first["drm-resident-vram0"] == f"{1 << 20} KiB"
    wait_until(lambda: int(fields(numbers[0])["drm-cycles-ccs"]) > int(first["drm-cycles-ccs"]), what="work")
    end(load)
    wait_until(lambda: not folder.exists(), what="its end")


def test_graphics_of_amd_are_not_in_kfd(tree):
    machine = tree("1xRX7900XTX")
    load = machine.gpus.load("amd:0", 20, "1GiB", None, "--graphics")
    assert list((machine.sys / "class/kfd/kfd/proc").iterdir()) == []
    clients = machine.gpus.folder / f"proc/{load.pid}/fdinfo"
    texts = [path.read_text() for path in clients.iterdir()]
    assert texts and all(f"drm-memory-vram:\t{1 << 20} KiB" in text for text in texts)
    assert list((machine.sys / "class/kfd/kfd/proc").iterdir()) == []


def test_a_load_takes_what_rocm_would(tree):
    machine = tree("2xMI210")
    uuids = [gpu["uuid"] for gpu in json.loads(machine.gpus.lull("sim", "show", "--json").stdout)["gpus"]]
    kfd = machine.sys / "class/kfd/kfd/proc"
    for said, card in (({"ROCR_VISIBLE_DEVICES": "0"}, 1),  # not the order of the bus
                       ({"ROCR_VISIBLE_DEVICES": uuids[0]}, 0),
                       ({"ROCR_VISIBLE_DEVICES": f"{uuids[0]},0", "HIP_VISIBLE_DEVICES": "1"}, 1)):
        load = machine.gpus.start(machine.gpus.binary, "sim", "load", "--util", "70", env=said)
        wait_until(lambda: (kfd / str(load.pid)).exists(), what="the load")
        machine.gpus.settle()
        assert [machine.read(each, "gpu_busy_percent") for each in (0, 1)] == ["70" if each == card else "0" for each in (0, 1)]
        end(load)
        wait_until(lambda: not (kfd / str(load.pid)).exists(), what="its end")


def test_a_jetson_has_its_load_beside_an_nvml_that_says_nothing(tree):
    machine = tree("1xOrin")
    gpu = machine.sys / "class/devfreq/17000000.gpu/device"
    assert (gpu / "load").read_text() == "0\n"
    machine.gpus.set("tegra:0", util=42)
    assert (gpu / "load").read_text() == "420\n"
    assert (gpu / "of_node/name").read_bytes() == b"gpu\0"


def test_a_machine_without_nvidia_has_no_driver_of_it(tree):
    machine = tree("1xMI210")
    assert not (machine.gpus.folder / "proc/driver").exists()
    assert not (machine.gpus.folder / "dev/nvidiactl").exists()


@pytest.mark.parametrize("kind", ["ebusy", "eperm", "einval", "enoent", "empty"])
def test_a_file_fails(tree, kind):
    machine = tree("1xMI210")
    machine.gpus.ok("fault", "amd:0", kind, "--file", "gpu_busy_percent")
    if kind == "empty" or not machine.served():
        assert machine.read(0, "gpu_busy_percent") == ""
    else:
        with pytest.raises(OSError) as failed:
            machine.read(0, "gpu_busy_percent")
        assert failed.value.errno == getattr(errno, kind.upper())
    assert machine.read(0, "mem_busy_percent") == "0"
    assert f"fault: {kind} --file gpu_busy_percent" in machine.gpus.lull("sim", "show").stdout
    machine.gpus.clear("amd:0")
    assert machine.read(0, "gpu_busy_percent") == "0"


def test_a_file_hangs(tree):
    machine = tree("2xMI210")
    done = machine.gpus.lull("sim", "fault", "amd:0", "hang=1s", "--file", "gpu_busy_percent")
    if not machine.served():
        assert done.returncode == 125 and "needs FUSE" in done.stderr
        return
    began = time.monotonic()
    assert machine.read(1, "gpu_busy_percent") == "0" and time.monotonic() - began < 0.9
    began = time.monotonic()
    assert machine.read(0, "gpu_busy_percent") == "0" and time.monotonic() - began >= 0.9


def test_reading_a_value_wakes_a_card(tree):
    machine = tree("1xMI210")
    machine.gpus.set("amd:0", asleep="on")
    assert machine.read(0, "power/runtime_status") == "suspended"
    assert machine.read(0, "vendor") == "0x1002"
    assert machine.read(0, "power/runtime_status") == "suspended"
    if machine.served():
        machine.read(0, "gpu_busy_percent")
        assert machine.read(0, "power/runtime_status") == "active"
    else:
        machine.gpus.set("amd:0", asleep="off")
        assert machine.read(0, "power/runtime_status") == "active"


@pytest.mark.parametrize("words, says", [
    (["set", "amd:1", "util=5"], "amd: there is no GPU 1"),
    (["set", "tegra:0", "util=5"], "there is no GPU of tegra here"),
    (["set", "amd:0", "pstate=0"], "does not show pstate"),
    (["fault", "nvidia:0", "ebusy"], "is not read from files"),
    (["fault", "amd:0", "ebusy", "--file", "rc6_residency_ms"], "has no file 'rc6_residency_ms'"),
    (["fault", "amd:0", "ebusy", "--file", "../x"], "is not a file of a GPU"),
])
def test_what_cannot_be_is_refused(sim, words, says):
    done = sim("1xMI210,1xT4").lull("sim", *words)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_nothing_is_left_behind(sim):
    with sim("1xMI210,1xA770") as gpus:
        folder = gpus.folder
    assert not folder.exists()
    assert str(folder) not in pathlib.Path("/proc/self/mountinfo").read_text()


def test_what_a_killed_one_leaves_is_swept(sim):
    gpus = sim("1xMI210")
    folder = gpus.folder
    os.kill(gpus.holder.pid, signal.SIGKILL)
    gpus.holder.wait()
    with sim(1):
        wait_until(lambda: not folder.exists(), what="the sweep")
    assert str(folder) not in pathlib.Path("/proc/self/mountinfo").read_text()
