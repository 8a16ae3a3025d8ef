"""rocm-smi, sensors, lsgpu and node_exporter, unmodified, on the files of simulated AMD and Intel GPUs.

They look at /sys, so its folders are bound over it in a mount namespace: the folders, not /sys itself, since libsensors asks
statfs what /sys is.
"""
import json
import os
import re
import socket
import subprocess
import time
import urllib.request

import pytest

from conftest import ROOT
from lull_e2e import end, wait_until

# $0 is the simulation. /run has the devices that udev has seen; rocm-smi would leave files in /dev/shm.
INSIDE = r"""
mount --make-rprivate / || exit 99
for d in class devices bus module dev; do
  [ ! -d "$0/sys/$d" ] || [ ! -d /sys/$d ] || mount --bind "$0/sys/$d" /sys/$d || exit 99
done
mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && mkdir -p /run/udev/data && : >/run/udev/control || exit 99
for n in $(ls "$0/sys/dev/char"); do echo I:1000000 >/run/udev/data/c$n; done
exec "$@"
"""
ENVIRONMENT = {"LD_LIBRARY_PATH": f"{ROOT}/usr/lib:{ROOT}/usr/lib/x86_64-linux-gnu",
               "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",  # libudev: what is bound is no sysfs
               "PYTHONDONTWRITEBYTECODE": "1"}


class Machine:
    def __init__(self, gpus):
        self.gpus = gpus

    def inside(self, *command):
        return ["unshare", "-m", "bash", "-c", INSIDE, str(self.gpus.folder), *map(str, command)]

    def run(self, *command):
        done = self.gpus.run(*self.inside(*command), env=ENVIRONMENT)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def rocm_smi(self, *args):
        """Its exit status says only that a card does not have one of the things."""
        done = self.gpus.run(*self.inside("/usr/bin/python3", ROOT / "usr/libexec/rocm_smi/rocm_smi.py", "--json", *args),
                             env=ENVIRONMENT)
        assert "Traceback" not in done.stderr and "ERROR" not in done.stderr, done.stderr
        return json.loads(done.stdout or "{}")

    def sensors(self):
        def merged(pairs):  # a label may stand for several sensors
            found = {}
            for name, value in pairs:
                found[name] = {**found[name], **value} if isinstance(found.get(name), dict) else value
            return found
        return json.loads(self.run(ROOT / "usr/bin/sensors", "-c", ROOT / "etc/sensors3.conf", "-j"), object_pairs_hook=merged)

    def address(self, card):
        return os.path.basename(os.path.realpath(self.gpus.folder / f"sys/class/drm/card{card}/device"))

    def node_exporter(self):
        """Its metrics, by their text."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        process = self.gpus.start(ROOT / "usr/bin/prometheus-node-exporter", f"--path.sysfs={self.gpus.folder}/sys",
                                  f"--web.listen-address={address}", "--collector.disable-defaults", "--collector.drm",
                                  "--collector.hwmon", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page = []

        def answers():
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                    page.append(answer.read().decode())
            except OSError:
                return False
            return True
        wait_until(answers, what="node_exporter")
        end(process)
        lines = (line.rpartition(" ") for line in page[0].splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}


@pytest.fixture
def machine(sim):
    if subprocess.run(["unshare", "-m", "mount", "--make-rprivate", "/"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be had here")
    return lambda gpus: Machine(sim(gpus))


def test_rocm_smi_reads_every_value(machine):
    here = machine("1xRX7900XTX,1xMI210")
    here.gpus.set("amd:0", util=37, mem_util=12, power=210, temp=61, mem_used="8GiB", fan=40)
    here.gpus.set("amd:1", util=93, power=271, temp=70, mem_used="40GiB")
    found = here.rocm_smi("--showuse", "--showmemuse", "--showpower", "--showmaxpower", "--showtemp", "--showmeminfo", "vram",
                          "--showbus", "--showuniqueid", "--showfan", "--showclocks", "--showproductname")
    uuids = [gpu["uuid"] for gpu in here.gpus.show()["gpus"]]
    for card, (use, mem_use, power, limit, temp, used, total, series) in {
            "card0": (37, 12, 210, 327, 61, (8 << 30) + (60 << 20), 24560 << 20, "AMD Radeon RX 7900 XTX"),
            "card1": (93, 37, 271, 300, 70, (40 << 30) + (10 << 20), 65520 << 20, "AMD Instinct MI210")}.items():
        shown = found[card]
        assert (shown["GPU use (%)"], shown["GPU memory use (%)"]) == (str(use), str(mem_use))
        assert float(shown["Average Graphics Package Power (W)"]) == power
        assert float(shown["Max Graphics Package Power (W)"]) == limit
        assert float(shown["Temperature (Sensor edge) (C)"]) == temp
        assert int(shown["VRAM Total Used Memory (B)"]) == used and int(shown["VRAM Total Memory (B)"]) == total
        assert shown["PCI Bus"].lower() == here.address(int(card[-1]))
        assert "GPU-" + shown["Unique ID"].removeprefix("0x") == uuids[int(card[-1])]
        assert shown["Card series"] == series
    assert found["card0"]["Fan speed (%)"] == "40"
    assert found["card0"]["sclk clock speed:"] == "(2500Mhz)"


def test_rocm_smi_reads_energy_from_gpu_metrics(machine):
    here = machine("1xMI210")
    here.gpus.set("amd:0", power=200)

    def joules():
        began = time.monotonic()
        found = here.rocm_smi("--showenergycounter")["card0"]
        return began, time.monotonic(), float(found["Accumulated Energy (uJ)"]) / 1e6
    first = joules()
    time.sleep(1)
    last = joules()
    assert 200 * (last[0] - first[1]) - 5 <= last[2] - first[2] <= 200 * (last[1] - first[0]) + 5


def test_rocm_smi_finds_the_processes_of_kfd(machine):
    here = machine("2xMI210")
    assert not any(name.startswith("PID") for name in here.rocm_smi("--showpids").get("system", {}))
    load = here.gpus.load("amd:0,amd:1", 50, "3GiB")
    name, gpus, memory = here.rocm_smi("--showpids")["system"][f"PID{load.pid}"].split(", ")[:3]
    assert (name, gpus, int(memory)) == ("lull", "2", 6 << 30)


def test_sensors(machine):
    here = machine("1xRX7900XTX,1xMI300X,1xA770,1xB580")
    here.gpus.set("amd:0", power=210, temp=61, fan=50)
    here.gpus.set("amd:1", power=640, temp=57)
    here.gpus.set("intel:0", temp=52)
    here.gpus.set("intel:1", temp=44, power_limit=150)
    found = here.sensors()

    def of(kind, card):
        return found["{}-pci-{}".format(kind, "".join(re.findall(r":(..):(..)\.", here.address(card))[0]))]
    navi, mi300, i915, xe = of("amdgpu", 0), of("amdgpu", 1), of("i915", 9), of("xe", 10)
    assert (navi["edge"]["temp1_input"], navi["junction"]["temp2_input"]) == (61, 69)
    assert (navi["PPT"]["power1_average"], navi["PPT"]["power1_cap"]) == (210, 327)
    assert navi["fan1"]["fan1_input"] == 1650
    assert "edge" not in mi300 and mi300["junction"]["temp2_input"] == 57
    assert mi300["PPT"]["power1_input"] == 640
    assert i915["temp1"]["temp1_input"] == 52
    assert (xe["pkg"]["temp2_input"], xe["vram"]["temp3_input"]) == (44, 48)


def test_lsgpu(machine):
    here = machine("1xMI300X,1xA770")
    text = here.run(ROOT / "usr/bin/lsgpu")
    lines = [line.split() for line in text.splitlines()]
    assert ["card0", "1002:74a1", "drm:/dev/dri/card0"] in lines, text
    intel = next(line for line in lines if line[0] == "card8")
    assert intel[1:3] == ["Intel", "Dg2"] and intel[-1] == "drm:/dev/dri/card8", text
    assert "└─renderD136" in text


def test_node_exporter(machine):
    here = machine("1xRX7900XTX,1xMI210")
    here.gpus.set("amd:0", util=37, mem_used="8GiB")
    load = here.gpus.load("amd:1", 80, "3GiB")
    found, shown = here.node_exporter(), here.gpus.show()
    end(load)
    assert found['node_drm_gpu_busy_percent{card="card0"}'] == 37
    assert found['node_drm_gpu_busy_percent{card="card1"}'] == 80
    assert found['node_drm_memory_vram_used_bytes{card="card0"}'] == (8 << 30) + (60 << 20)
    assert found['node_drm_memory_vram_used_bytes{card="card1"}'] == (3 << 30) + (10 << 20)
    assert found['node_drm_memory_vram_size_bytes{card="card1"}'] == 65520 << 20
    temps = [value for name, value in found.items() if name.startswith("node_hwmon_temp_celsius") and 'temp1"' in name]
    assert sorted(temps) == sorted(gpu["temp_celsius"] for gpu in shown["gpus"])


def test_lull_status_says_the_same(machine):
    """Every number that one of these clients shows as well."""
    here = machine("1xRX7900XTX,1xMI210,1xA770,1xB580")
    here.gpus.set("amd:0", util=37, mem_util=12, power=210, temp=61, mem_used="8GiB", fan=40)
    here.gpus.set("amd:1", util=93, mem_util=55, power=271, temp=70)
    here.gpus.set("intel:0", temp=52, power_limit=180)
    here.gpus.set("intel:1", temp=44, power_limit=150)
    load = here.gpus.load("amd:1", 93, "3GiB")

    def joules():
        began, shown = time.monotonic(), here.rocm_smi("--showenergycounter")
        return began, time.monotonic(), {card: float(one["Accumulated Energy (uJ)"]) / 1e6 for card, one in shown.items()
                                         if "Accumulated Energy (uJ)" in one}
    first = joules()
    status = json.loads(here.gpus.lull("status", "--json").stdout)["gpus"]
    last = joules()
    smi = here.rocm_smi("--showuse", "--showmemuse", "--showpower", "--showmaxpower", "--showtemp", "--showmeminfo", "vram",
                        "--showbus", "--showuniqueid", "--showfan", "--showclocks", "--showpids")
    sensors, metrics = here.sensors(), here.node_exporter()
    assert [gpu["vendor"] for gpu in status] == ["amd", "amd", "intel", "intel"]

    def sensor(kind, gpu):
        return sensors["{}-pci-{}".format(kind, "".join(re.findall(r":(..):(..)\.", gpu["pci"])[0]).lower())]
    for gpu in status[:2]:
        card = f"card{gpu['vendor_index']}"
        shown, parts = smi[card], sensor("amdgpu", gpu)
        assert gpu["pci"].lower().endswith(shown["PCI Bus"].lower()[-10:])
        assert gpu["uuid"] == "GPU-" + shown["Unique ID"].removeprefix("0x")
        busy = metrics[f'node_drm_gpu_busy_percent{{card="{card}"}}']
        assert gpu["util_percent"] == float(shown["GPU use (%)"]) == busy
        assert gpu["mem_util_percent"] == float(shown["GPU memory use (%)"])
        # Of a card that counts energy lull's is a mean over 150 ms.
        assert gpu["power_watts"] == pytest.approx(float(shown["Average Graphics Package Power (W)"]), abs=1)
        assert gpu["power_watts"] == pytest.approx(parts["PPT"]["power1_average"], abs=1)
        assert gpu["power_limit_watts"] == float(shown["Max Graphics Package Power (W)"]) == parts["PPT"]["power1_cap"]
        assert gpu["temp_celsius"] == float(shown["Temperature (Sensor edge) (C)"]) == parts["edge"]["temp1_input"]
        used, total = int(shown["VRAM Total Used Memory (B)"]), int(shown["VRAM Total Memory (B)"])
        assert gpu["mem_used_bytes"] == used == metrics[f'node_drm_memory_vram_used_bytes{{card="{card}"}}']
        assert gpu["mem_total_bytes"] == total == metrics[f'node_drm_memory_vram_size_bytes{{card="{card}"}}']
        assert gpu["mem_free_bytes"] == total - used
        assert f"({gpu['clock_mhz']:.0f}Mhz)" == shown["sclk clock speed:"]
        assert f"({gpu['mem_clock_mhz']:.0f}Mhz)" == shown["mclk clock speed:"]
        seconds = last[1] - first[0]
        assert gpu["power_watts"] * (last[0] - first[1]) - 20 <= last[2][card] - first[2][card] <= gpu["power_watts"] * seconds + 20
    navi, mi210, i915, xe = status
    assert navi["fan_percent"] == pytest.approx(float(smi["card0"]["Fan speed (%)"]), abs=1) and mi210["fan_percent"] is None
    process, = mi210["processes"]
    assert navi["processes"] == [] and process["pid"] == load.pid
    name, gpus, memory = smi["system"][f"PID{load.pid}"].split(", ")[:3]
    assert (process["name"], "1", process["mem_used_bytes"]) == (name, gpus, int(memory))
    assert i915["temp_celsius"] == sensor("i915", i915)["temp1"]["temp1_input"]
    assert xe["temp_celsius"] == sensor("xe", xe)["pkg"]["temp2_input"]
    for gpu, kind in ((i915, "i915"), (xe, "xe")):
        limits = [value for part in sensor(kind, gpu).values() if isinstance(part, dict)
                  for key, value in part.items() if re.fullmatch(r"power\d_(max|crit|cap)", key)]
        assert gpu["power_limit_watts"] in limits
