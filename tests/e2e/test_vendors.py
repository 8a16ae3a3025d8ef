"""GPUs of AMD, Intel and Jetsons: `lull` on folders as their drivers have them in /sys."""
import json
import os
import pathlib
import subprocess

import pytest

from conftest import LIMIT, clean_environment


def look_at(folder, program, *args):
    env = clean_environment(LULL_SIM=str(folder))
    env.pop("LULL_NVML", None)
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=LIMIT, env=env)


class Machine:
    """A folder that `lull` takes for /sys; NVIDIA's driver is not loaded."""

    def __init__(self, folder: pathlib.Path, lull):
        self.folder, self.program = folder, lull
        (folder / "proc").mkdir(parents=True)
        (folder / "sys").mkdir()

    def lull(self, *args):
        return look_at(self.folder, self.program, *args)

    def status(self, *args):
        done = self.lull("status", "--json", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["gpus"]

    def write(self, path, value):
        file = self.folder / "sys" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def card(self, number, address, vendor, driver):
        device = f"devices/pci0000:00/{address}"
        self.write(f"{device}/vendor", vendor)
        self.write(f"{device}/power/runtime_status", "active")
        self.write(f"{device}/drm/card{number}/dev", f"226:{number}")
        self.write(f"{device}/drm/renderD{128 + number}/dev", f"226:{128 + number}")
        (self.folder / "sys" / device / f"drm/card{number}/device").symlink_to(f"../../../{address}")
        (self.folder / "sys" / device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        drm = self.folder / "sys/class/drm"
        drm.mkdir(parents=True, exist_ok=True)
        (drm / f"card{number}").symlink_to(f"../../{device}/drm/card{number}")
        return device

    def navi(self, number=0, address="0000:03:00.0", busy=0):
        device = self.card(number, address, "0x1002", "amdgpu")
        for name, value in {"class": "0x030000", "product_name": "AMD Radeon RX 7900 XTX", "gpu_busy_percent": busy,
                            "unique_id": f"6f3a1c77d4ee90b{number}", "mem_busy_percent": 0,
                            "mem_info_vram_total": 24 << 30, "mem_info_vram_used": 60 << 20,
                            f"hwmon/hwmon{number}/name": "amdgpu",
                            f"hwmon/hwmon{number}/power1_average": 24_000_000,
                            f"hwmon/hwmon{number}/power1_cap": 203_000_000,
                            f"hwmon/hwmon{number}/temp1_input": 44_000}.items():
            self.write(f"{device}/{name}", value)
        return device


@pytest.fixture
def machine(tmp_path, lull):
    return Machine(tmp_path / "machine", lull)


def test_amd_and_intel_gpus_are_in_one_inventory_and_have_names(machine):
    machine.navi(1, "0000:83:00.0", busy=97)
    machine.navi(0, "0000:03:00.0")
    intel = machine.card(2, "0000:00:02.0", "0x8086", "i915")
    machine.write(f"{intel}/drm/card2/gt/gt0/rc6_residency_ms", 1000)
    gpus = machine.status()
    assert [(gpu["vendor"], gpu["vendor_index"], gpu["index"]) for gpu in gpus] == [
        ("amd", 0, 0), ("amd", 1, 1), ("intel", 0, 2)]
    assert gpus[1]["util_percent"] == 97 and gpus[1]["uuid"] == "GPU-6f3a1c77d4ee90b1"
    assert gpus[1]["power_watts"] == 24 and gpus[1]["power_limit_watts"] == 203
    assert gpus[2]["util_percent"] is None and gpus[2]["unknown"]["util_percent"] == "its counter does not move"
    for name in ("amd:1", "1", "0000:83:00.0", "GPU-6f3a1c77d4ee90b1"):
        assert [gpu["index"] for gpu in machine.status("--gpus", name)] == [1], name
    table = machine.lull("status").stdout
    assert "VENDOR" in table and "intel:0" in table
    wrong = machine.lull("status", "--gpus", "amd:2")
    assert wrong.returncode == 2 and "there are 2 of this vendor" in wrong.stderr


def test_one_vendor_is_not_named_on_every_row(machine):
    machine.navi()
    assert "VENDOR" not in machine.lull("status").stdout


def test_where_there_is_no_gpu_all_vendors_are_named(machine):
    done = machine.lull("status")
    assert done.returncode == 125 and done.stderr.count("\n") == 1
    for vendor in ("NVIDIA", "AMD", "Intel", "Jetson"):
        assert vendor in done.stderr


def test_check_offers_a_rule_that_fits_the_card(machine):
    machine.navi()
    remarks = json.loads(machine.lull("check", "--json", "util < 1 for 30m").stdout)["remarks"]
    assert any("RDNA" in one and "`power < 25% for 30m` would do" in one for one in remarks), remarks
    remarks = json.loads(machine.lull("check", "--json", "pcie < 1MiB/s for 30m").stdout)["remarks"]
    assert any("on GPU 0 `power < 25% for 30m` would do instead" in one for one in remarks), remarks
    remarks = json.loads(machine.lull("check", "--json", "pcie < 1MiB/s and util < 1 for 30m").stdout)["remarks"]
    assert [one.count("would do") for one in remarks if "GPU 0" in one] == [1, 0], remarks


def test_the_rule_for_hangs_is_not_used_on_rdna(machine):
    machine.navi(busy=100)
    seen = json.loads(machine.lull("check", "--json", "hung").stdout)
    assert seen["now"] is None and any("`hung` is not used" in one for one in seen["remarks"]), seen
    same = json.loads(machine.lull("check", "--json", "util >= 95 and power < 35% for 5m").stdout)
    assert same["now"] is True, "who writes such a rule means it"
    done = machine.lull("run", "--every", "100ms", "--delay", "0s", "--gpus", "all", "--idle", "util < 1 for 1h",
                        "--warn-by", "hung", "--", "sleep", "2")
    assert done.returncode == 0 and done.stderr.count("`hung` is not used") == 1, done.stderr


def test_dump_is_a_copy_that_lull_can_read(machine, lull, tmp_path):
    machine.navi(busy=42)
    machine.write("devices/pci0000:00/0000:03:00.0/gpu_metrics", "not one")
    copy = tmp_path / "copy"
    done = machine.lull("status", "--dump", str(copy))
    assert done.returncode == 0, done.stderr
    assert (copy / "lull.txt").read_text().startswith("lull ")
    assert not [path for path in copy.rglob("*") if "proc" in path.relative_to(copy).parts], "no process is in it"
    os.mkdir(copy / "proc")
    (gpu,) = json.loads(look_at(copy, lull, "status", "--json").stdout)["gpus"]
    assert (gpu["util_percent"], gpu["uuid"], gpu["power_watts"]) == (42, "GPU-6f3a1c77d4ee90b0", 24)
    again = machine.lull("status", "--dump", str(copy))
    assert again.returncode == 2 and again.stderr.count("\n") == 1


def test_a_sleeping_card_is_idle_and_left_alone(machine):
    device = machine.navi(busy=99)
    machine.write(f"{device}/power/runtime_status", "suspended")
    (gpu,) = machine.status()
    assert gpu["asleep"] and gpu["util_percent"] == 0 and gpu["power_watts"] is None
