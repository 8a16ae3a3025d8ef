"""nvidia-smi, unmodified: every way of asking, and every fault as a real driver's."""
import re
import signal
import time
import xml.etree.ElementTree as ElementTree


def busy(clients):
    """An H100 that was set, an A100 with a load, an idle T4."""
    here = clients("1xH100,1xA100,1xT4")
    here.gpus.set(0, util=35, power=180, mem_used="8GiB", temp=60)
    return here


def test_the_table_shows_values_and_processes(clients):
    here = busy(clients)
    load = here.gpus.load(1, 90, "4GiB")
    table = here.smi()
    assert "Driver Version: 535" in table
    rows = re.findall(r"\|\s+(\S+)\s+(\d+)C\s+P(\d+)\s+(\d+)W /\s*(\d+)W \|\s+(\d+)MiB /\s*(\d+)MiB \|\s+(\d+)%", table)
    assert rows[0] == ("N/A", "60", "0", "180", "700", "8192", "81559", "35")
    assert rows[1][3:] == ("367", "400", "4096", "81920", "90")
    assert rows[2] == ("N/A", "32", "8", "9", "70", "0", "15360", "0")
    assert re.search(rf"\|\s+1\s+N/A\s+N/A\s+{load.pid}\s+C\s+\S+.*4096MiB \|", table)


def test_the_list_names_model_and_uuid(clients):
    lines = busy(clients).smi("-L").splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"GPU 0: NVIDIA H100 80GB HBM3 \(UUID: GPU-[0-9a-f-]{36}\)", lines[0])
    assert lines[2].startswith("GPU 2: Tesla T4 ")


def test_query_gpu(clients):
    rows = busy(clients).query("index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,fan.speed,pstate")
    assert rows[0] == ["0", "NVIDIA H100 80GB HBM3", "35 %", "8192 MiB", "81559 MiB", "180.00 W", "60", "[N/A]", "P0"]
    assert rows[2] == ["2", "Tesla T4", "0 %", "0 MiB", "15360 MiB", "9.00 W", "32", "[N/A]", "P8"]


def test_one_gpu_by_uuid(clients):
    here = busy(clients)
    uuid = here.query("uuid")[1][0]
    assert here.query("index,uuid", "-i", uuid) == [["1", uuid]]


def test_the_xml_has_what_was_set(clients):
    here = busy(clients)
    load = here.gpus.load(1, 90, "4GiB")
    log = ElementTree.fromstring(here.smi("-q", "-x").split("<nvidia_smi_log>")[1].join(["<nvidia_smi_log>", ""]))
    gpus = log.findall("gpu")
    assert log.findtext("attached_gpus") == "3"
    first, second, third = gpus
    assert first.findtext("fb_memory_usage/used") == "8192 MiB"
    assert first.findtext("utilization/gpu_util") == "35 %"
    assert first.findtext("temperature/gpu_temp") == "60 C"
    assert first.findtext("gpu_power_readings/power_draw") == "180.00 W"
    assert third.findtext("fan_speed") == "N/A"
    assert first.findtext("clocks_event_reasons/clocks_event_reason_gpu_idle") in ("Not Active", None)
    process = second.find("processes/process_info")
    assert (process.findtext("pid"), process.findtext("type")) == (str(load.pid), "C")
    assert process.findtext("used_memory") == "4096 MiB"


def test_compute_apps(clients):
    here = busy(clients)
    load = here.gpus.load(1, 50, "1GiB", None, "--as", "python train.py")
    text = here.smi("--query-compute-apps=pid,name,used_memory", "--format=csv,noheader")
    assert text.split(", ") == [str(load.pid), "python", "1024 MiB\n"] or f"{load.pid}, python train.py, 1024 MiB" in text
    load.kill()
    load.wait()
    assert here.smi("--query-compute-apps=pid", "--format=csv,noheader").strip() == ""


def test_types_of_processes(clients):
    here = clients("1xRTX4090")
    kinds = {"C": [], "G": ["--graphics"], "C+G": ["--both"], "M+C": ["--mps"]}
    pids = {here.gpus.load(0, 5, "10MiB", None, *more).pid: kind for kind, more in kinds.items()}
    shown = dict(re.findall(r"\|\s+0\s+N/A\s+N/A\s+(\d+)\s+(\S+)\s", here.smi()))
    assert shown == {str(pid): kind for pid, kind in pids.items()}


def test_dmon_shows_power_temperature_and_use(clients):
    lines = [l.split() for l in busy(clients).smi("dmon", "-c", "1").splitlines() if not l.startswith("#")]
    # gpu pwr gtemp mtemp sm mem …
    assert lines[0][:6] == ["0", "180", "60", "-", "35", "14"]
    assert lines[2][:6] == ["2", "9", "32", "-", "0", "0"]


def matrix(here):
    """What `topo -m` says of each pair, as rows of words."""
    text = re.sub(r"\x1b\[\d*m", "", here.smi("topo", "-m"))
    rows = [line.split("\t") for line in text.splitlines() if re.match(r"GPU\d+\t", line)]
    return [[word.strip() for word in row[1:]] for row in rows]


def test_the_matrix_shows_how_gpus_are_joined(clients):
    dgx = matrix(clients("8xH100"))
    assert [row[:8] for row in dgx] == [["X" if i == j else "NV18" for j in range(8)] for i in range(8)]
    assert [row[9] for row in dgx] == ["0"] * 4 + ["1"] * 4
    assert [row[:2] for row in matrix(clients("2xRTX3090"))] == [["X", "NV4"], ["NV4", "X"]]
    assert [row[:4] for row in matrix(clients("4xT4"))][0] == ["X", "PIX", "NODE", "NODE"]


def test_nvlinks_have_their_speed(clients):
    here = clients("2xRTX3090")
    assert re.findall(r"Link (\d): ([\d.]+ GB/s)", here.smi("nvlink", "-s", "-i", "1")) == [
        (str(link), "14.062 GB/s") for link in range(4)]
    assert "Link 3, P2P is supported: true" in here.smi("nvlink", "-c", "-i", "1")
    dgx = clients("8xH100")
    assert "4, 5, 6, 7" in dgx.smi("topo", "-c", "40")
    assert "to device(s): 2, 3" in dgx.smi("topo", "-n", "4", "-i", "0")


def test_pmon_shows_a_process(clients):
    here = busy(clients)
    load = here.gpus.load(1, 80, "1GiB")
    assert re.search(rf"^\s+1\s+{load.pid}\s+C\s", here.smi("pmon", "-c", "1"), re.M)


def test_mig_devices_are_listed_with_their_processes(clients):
    here = clients(text='[[gpu]]\nmodel = "A100"\nmig = ["3g.40gb", "2g.20gb", "1g.10gb"]\n')
    load = here.gpus.load("0:1", 50, "3GiB")
    listing = here.smi("-L")
    assert len(re.findall(r"^  MIG (\dg\.\d+gb)\s+Device\s+\d: \(UUID: MIG-", listing, re.M)) == 3
    table = here.smi()
    assert re.search(r"\|\s+0\s+2\s+0\s+1\s+\|\s+30\d\dMiB /\s*20480MiB", table)
    assert re.search(rf"\|\s+0\s+2\s+0\s+{load.pid}\s+C\s", table)
    assert here.query("utilization.gpu") == [["[N/A]"]]


def test_sixty_four_gpus(clients):
    here = clients("64xA100")
    here.gpus.set(63, util=77)
    rows = here.query("index,utilization.gpu,pci.bus_id")
    assert len(rows) == 64
    assert rows[63][:2] == ["63", "77 %"]
    assert len({row[2] for row in rows}) == 64
    assert len(here.smi("-L").splitlines()) == 64


# -- faults -----------------------------------------------------------------------------------------
def test_lost_at_start(clients):
    here = busy(clients)
    here.gpus.fault(2, "lost")
    assert "GPU is lost" in here.smi(status=15)


def until(read, wanted, limit=30):
    end = time.monotonic() + limit
    seen = []
    while time.monotonic() < end:
        seen.append(read())
        if seen[-1] == wanted:
            return seen
    raise AssertionError(f"no {wanted!r} in {seen[-10:]}")


def test_loop_goes_on_through_a_lost_gpu(clients):
    here = busy(clients)
    process = here.follow("--query-gpu=index,utilization.gpu", "--format=csv,noheader", "-lms", "100")

    def read():
        return process.stdout.readline().strip()

    until(read, "2, 0 %")
    here.gpus.fault(2, "lost")
    until(read, "[GPU is lost], [GPU is lost]")
    here.gpus.clear()
    here.gpus.set(0, util=36)
    until(read, "0, 36 %")
    until(read, "2, 0 %")
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=10)


def test_no_driver(clients):
    here = busy(clients)
    here.gpus.fault("all", "no-driver")
    assert "couldn't communicate with the NVIDIA driver" in here.smi(status=9)
    here.gpus.clear()
    assert here.query("index") == [["0"], ["1"], ["2"]]


def test_version_mismatch(clients):
    here = busy(clients)
    here.gpus.fault("all", "mismatch")
    assert "Driver/library version mismatch" in here.smi(status=18)


def test_no_utilisation(clients):
    here = busy(clients)
    here.gpus.fault(0, "no-util")
    assert here.query("utilization.gpu,power.draw")[0] == ["[N/A]", "180.00 W"]


def test_a_call_that_hangs_takes_its_time(clients):
    here = busy(clients)
    here.gpus.fault(0, "hang=1s", function="nvmlDeviceGetPowerUsage")
    start = time.monotonic()
    assert here.query("power.draw")[0] == ["180.00 W"]
    assert time.monotonic() - start >= 1
