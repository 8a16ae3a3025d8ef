"""`lull sim`: what real drivers and machines do that a kind one would not."""
import json
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from conftest import LIMIT, build_dir, clean_environment, end, wait_until

SANITIZED = any(word in build_dir().name for word in ("asan", "tsan"))
needs_python_client = pytest.mark.skipif(
    SANITIZED, reason="Python cannot load a library that needs a sanitizer's runtime")

# A client that knows nothing but the public names: makes one call after the other and says what came of it.
CLIENT = r"""
import ctypes as c, sys, time
n = c.CDLL("libnvidia-ml.so.1")
class P(c.Structure): _fields_ = [("pid", c.c_uint), ("memory", c.c_ulonglong), ("gi", c.c_uint), ("ci", c.c_uint)]
def init(flags=None): return n.nvmlInit_v2() if flags is None else n.nvmlInitWithFlags(flags)
def find(i):
    d = c.c_void_p(); r = n.nvmlDeviceGetHandleByIndex_v2(i, c.byref(d)); return r or d
def number(name, d):
    out = c.c_uint(); r = getattr(n, name)(d, c.byref(out)); return -r if r else out.value
def pids(d, which="Compute"):
    a = (P * 64)(); k = c.c_uint(64); r = getattr(n, f"nvmlDeviceGet{which}RunningProcesses_v3")(d, c.byref(k), a)
    return -r if r else sorted(p.pid for p in a[:k.value])
"""


def client(gpus, script, *before, **kwargs):
    done = gpus.run(*before, "/usr/bin/python3", "-c", CLIENT + script, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def one_line(done, status):
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("lull: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# -- D state --------------------------------------------------------------------------------------
def mounts(folder):
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture
def fuse(sim):
    """Skips, and says so, where FUSE cannot be had."""
    with sim(1) as gpus:
        done = gpus.lull("sim", "fault", 0, "hang=dstate")
        if done.returncode:
            assert "needs FUSE" in one_line(done, 125)
            pytest.skip(done.stderr.strip())


def asleep(gpus, job, gpu=0):
    """Beyond the reach of a signal: counted by the file that it reads."""
    wait_until(lambda: (gpus.folder / "dstate" / str(gpu)).stat().st_size == 1 and state_of(job.pid) == "D",
               what="D state")


def hanging_client(gpus, script="init(); find(0)"):
    job = gpus.start("/usr/bin/python3", "-c", CLIENT + script)
    asleep(gpus, job, 0 if "find" in script else "driver")
    return job


@needs_python_client
def test_a_hang_in_d_state_survives_sigkill_until_it_is_cleared(sim, fuse):
    with sim(2) as gpus:
        gpus.fault(0, "hang=dstate")
        assert gpus.show()["gpus"][0]["faults"] == ["hang=dstate"]
        job = hanging_client(gpus)
        job.kill()
        gpus.set(1, util=50)  # nothing else wakes it
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(timeout=2)
        assert state_of(job.pid) == "D"
        assert client(gpus, "print(init(), number('nvmlDeviceGetMinorNumber', find(1)))") == ["0 1"]
        gpus.clear(0)
        assert job.wait(timeout=LIMIT) == -signal.SIGKILL
    assert mounts(gpus.folder) == []


@needs_python_client
def test_init_hangs_in_d_state_and_comes_back(sim, fuse):
    text = '[[gpu]]\nmodel = "T4"\n[[fault]]\nkind = "dstate"\nfunction = "nvmlInit*"\n'
    with sim(text=text) as gpus:
        job = hanging_client(gpus, "print(init())")
        gpus.clear()
        assert job.communicate(timeout=LIMIT)[0] == "0\n"


@needs_python_client
@pytest.mark.parametrize("how", ["its end", "SIGKILL"])
def test_a_simulation_that_ends_lets_go_of_all(sim, fuse, how):
    gpus = sim(1)
    gpus.fault(0, "hang=dstate")
    job = hanging_client(gpus, "init(); print(find(0))")
    gpus.started.remove(job)
    try:
        if how == "SIGKILL":
            gpus.holder.kill()
        else:
            gpus.holder.stdin.close()
        gpus.holder.wait(timeout=LIMIT)  # not close(): that would end the job
        assert job.communicate(timeout=LIMIT)[0] == "9\n"
    finally:
        end(job)
    wait_until(lambda: mounts(gpus.folder) == [], what="the end of the mount")
    shutil.rmtree(gpus.folder, ignore_errors=True)


def test_a_mount_that_was_left_behind_is_swept(lull, run_lull, fuse, tmp_path):
    env = clean_environment(XDG_RUNTIME_DIR=tmp_path)
    job = subprocess.Popen([lull, "sim", "--", "sh", "-c", f'"{lull}" sim fault 0 hang=dstate; echo ready; read line'],
                           env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "ready\n"
        folder, = tmp_path.iterdir()
        servers = [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and serves(p, folder)]
        assert servers
        for server in servers:  # it may be forking
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)  # it cannot unmount any more
        job.kill()
        job.wait(timeout=LIMIT)
        assert mounts(folder)
        assert run_lull("sim", "--", "true", env=env).returncode == 0
        assert not mounts(folder) and list(tmp_path.iterdir()) == []
    finally:
        end(job)


def serves(process, folder):
    """The D state server of this simulation: it maps its state."""
    try:
        return (process / "comm").read_text() == "lull-sim-dstate\n" and str(folder) in (process / "maps").read_text()
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not")
def test_who_may_not_mount_is_told_so(lull):
    with tempfile.TemporaryDirectory(prefix="lull-e2e-") as folder:
        os.chmod(folder, 0o777)
        script = f'"{lull}" sim fault 0 hang=dstate; echo "status $?"; "{lull}" sim show --json'
        done = subprocess.run([lull, "sim", "--", "sh", "-c", script], user=65534, group=65534, extra_groups=[],
                              env=clean_environment(XDG_RUNTIME_DIR=folder, HOME=folder), cwd="/", text=True,
                              capture_output=True, timeout=LIMIT)
    first, rest = done.stdout.split("\n", 1)
    assert first == "status 125", done.stderr
    assert done.stderr.count("\n") == 1 and "needs FUSE" in done.stderr
    assert json.loads(rest)["gpus"][0]["faults"] == []


# -- init, attaching, the ring --------------------------------------------------------------------
@needs_python_client
def test_init_take_effect(sim):
    with sim(1) as gpus:
        gpus.fault(0, "unknown", "nvmlInit*")
        assert client(gpus, "print(init(), init(0))") == ["999 999"]
        gpus.clear()
        gpus.fault("all", "hang=300ms", "nvmlInitWithFlags")
        took, = client(gpus, "t = time.time(); r = init(0); print(time.time() - t if r == 0 else r)")
        assert 0.3 <= float(took) < LIMIT
        gpus.clear()
        gpus.fault(0, "no-permission", "nvmlDeviceGetHandleByIndex_v2")
        assert client(gpus, "print(init(), find(0))") == ["0 4"]


@needs_python_client
def test_attaching_takes_its_time_in_each_process(sim):
    look = "init(); t = time.time(); d = find(0); print(time.time() - t, number('nvmlDeviceGetPersistenceMode', d))"
    with sim(text='[[gpu]]\nmodel = "T4"\nattach = "300ms"\n') as gpus:
        for _ in range(2):
            took, mode = client(gpus, look)[0].split()
            assert float(took) >= 0.3 and mode == "0"
    with sim(text='[[gpu]]\nmodel = "T4"\nattach = "1h"\npersistence = true\n') as gpus:
        assert client(gpus, look)[0].split()[1] == "1"
        gpus.set(0, persistence="off")
        assert gpus.show()["gpus"][0]["persistence"] == 0


def test_the_ring_can_be_another(sim):
    with sim(text='sample_period = "50ms"\nsample_capacity = 20\nsample_clock = "epoch"\n'
                  '[[gpu]]\nmodel = "T4"\nsample_dry = true\n') as gpus:
        assert gpus.show()["gpus"]


# -- the machine's files --------------------------------------------------------------------------
@needs_python_client
def test_a_call_wakes_a_gpu_that_sleeps(sim):
    text = '[[gpu]]\nmodel = "RTX4090"\npci = "0000:17:00.0"\nasleep = true\n[[gpu]]\nmodel = "T4"\n'
    with sim(text=text) as gpus:
        device = gpus.folder / "sys/bus/pci/devices/0000:17:00.0"
        status = device / "power/runtime_status"
        assert ((device / "vendor").read_text(), (device / "class").read_text()) == ("0x10de\n", "0x030000\n")
        assert "Model: \t\t NVIDIA GeForce RTX 4090\n" in (
            gpus.folder / "proc/driver/nvidia/gpus/0000:17:00.0/information").read_text()
        assert status.read_text() == "suspended\n" and gpus.show()["gpus"][0]["asleep"]
        client(gpus, "init(); find(1)")
        assert status.read_text() == "suspended\n"
        client(gpus, "init(); find(0)")
        assert status.read_text() == "active\n" and not gpus.show()["gpus"][0]["asleep"]
        gpus.set(0, asleep=1)
        assert status.read_text() == "suspended\n"
        gpus.set(0, asleep="off")
        assert status.read_text() == "active\n"
        assert "on or off" in one_line(gpus.lull("sim", "set", 0, "asleep=maybe"), 2)


def test_the_drivers_version_comes_and_goes_with_it(sim):
    text = 'driver = "550.54.15"\nspeed = 10\n[[gpu]]\nmodel = "T4"\n[[fault]]\nkind = "no-driver"\nat = "5s"\nfor = "5s"\n'
    with sim(text=text) as gpus:
        version = gpus.folder / "proc/driver/nvidia/version"
        if gpus.show()["time_seconds"] < 4.5:
            assert "550.54.15" in version.read_text()
        wait_until(lambda: gpus.show()["time_seconds"] > 10, what="the end of the fault")
        wait_until(version.exists, what="the driver")
        gpus.fault("all", "no-driver")
        assert not version.exists()
        gpus.clear()
        assert version.exists()
        gpus.fault("all", "no-driver", None, "2s")
        assert not version.exists()
        wait_until(version.exists, what="the driver")


# -- who is on a GPU ------------------------------------------------------------------------------
@needs_python_client
def test_a_desktop(sim):
    with sim(text='[[gpu]]\nmodel = "RTX3090"\ndisplay = true\n') as gpus:
        gpu = gpus.show()["gpus"][0]
        xorg, = gpu["processes"]
        assert xorg["type"] == "graphics" and 300 << 20 <= xorg["mem_used_bytes"] <= 900 << 20
        assert pathlib.Path(f"/proc/{xorg['pid']}/comm").read_text() == "Xorg\n"
        assert gpu["util_percent"] == 7
        script = "init(); d = find(0); print(number('nvmlDeviceGetDisplayActive', d), pids(d), pids(d, 'Graphics'))"
        assert client(gpus, script) == [f"1 [] [{xorg['pid']}]"]


@needs_python_client
def test_wsl_tells_neither_utilisation_nor_processes(sim):
    with sim(text='wsl = true\n[[gpu]]\nmodel = "RTX4090"\nutil = 50\n') as gpus:
        assert not (gpus.folder / "proc/driver/nvidia").exists()
        assert list((gpus.folder / "sys/bus/pci/devices").iterdir()) == []
        assert client(gpus, "init(); d = find(0); print(number('nvmlDeviceGetUtilizationRates', d), pids(d))") == ["-3 -3"]


@needs_python_client
def test_an_mps_server_is_a_process_and_idle(sim):
    text = ('[[gpu]]\nmodel = "A100"\n[[process]]\ngpu = 0\ntype = "mps-server"\n'
            '[[process]]\ngpu = 0\ntype = "mps"\nutil = 40\n')
    with sim(text=text) as gpus:
        found = {p["type"]: p for p in gpus.show()["gpus"][0]["processes"]}
        server, work = found["compute"], found["mps"]
        assert server["util_percent"] == 0
        assert pathlib.Path(f"/proc/{server['pid']}/comm").read_text() == "nvidia-cuda-mps\n"  # the kernel cuts it there
        assert pathlib.Path(f"/proc/{server['pid']}/cmdline").read_bytes().startswith(b"nvidia-cuda-mps-server")
        both = sorted([server["pid"], work["pid"]])
        assert client(gpus, "init(); d = find(0); print(pids(d), pids(d, 'MPSCompute'))") == [f"{both} [{work['pid']}]"]
        second = gpus.load(0, None, None, None, "--mps-server")
        assert pathlib.Path(f"/proc/{second.pid}/comm").read_text() == "nvidia-cuda-mps\n"


def may_unshare():
    return shutil.which("unshare") and subprocess.run(["unshare", "-p", "-f", "true"], capture_output=True).returncode == 0


@needs_python_client
@pytest.mark.skipif(not may_unshare(), reason="no right to make PID namespaces")
@pytest.mark.parametrize("view", ["all", "own_namespace", "host"])
def test_processes_as_a_pid_namespace_sees_them(sim, view):
    inside = ("unshare", "-p", "-f", "--mount-proc")
    with sim(text=f'process_view = "{view}"\n[[gpu]]\nmodel = "T4"\n') as gpus:
        out = gpus.load(0)
        boxed = gpus.start("unshare", "-p", "-f", "--kill-child", gpus.binary, "sim", "load", "--gpu", "0")
        wait_until(lambda: len(gpus.show()["gpus"][0]["processes"]) == 2, what="the load in a namespace")
        host = sorted(p["pid"] for p in gpus.show()["gpus"][0]["processes"])
        assert out.pid in host and boxed.pid not in host and 1 not in host
        look = "init(); print(pids(find(0)))"
        assert client(gpus, look) == [str(host)]  # from above all is seen, by its number there
        hidden = client(gpus, look, *inside)
        assert hidden == (["[]"] if view == "own_namespace" else [str(host)])
        # From inside its own namespace a load is seen by its number in there.
        pid = next(pid for pid in host if pid != out.pid)
        own = client(gpus, look, "nsenter", "-t", pid, "-p")
        assert own == (["[1]"] if view == "own_namespace" else [str(host)])
        end(boxed)


@needs_python_client
@pytest.mark.skipif(not may_unshare(), reason="no right to make PID namespaces")
def test_a_load_in_a_box_with_a_proc_of_its_own_has_its_outer_number_outside(sim):
    """In there it is process 1 and /proc tells it nothing else; nobody outside may take it for init."""
    with sim(1) as gpus:
        boxed = gpus.start("unshare", "-p", "-f", "--kill-child", "--mount-proc", gpus.binary, "sim", "load", "--gpu", "0")
        wait_until(lambda: gpus.show()["gpus"][0]["processes"], what="the load in a box")
        pid, = (process["pid"] for process in gpus.show()["gpus"][0]["processes"])
        assert pid not in (1, boxed.pid)
        assert pathlib.Path(f"/proc/{pid}/comm").read_text() == "lull\n"
        assert client(gpus, "init(); print(pids(find(0)))") == [str([pid])]
        done = gpus.lull("status", "--json")
        assert [process["pid"] for process in json.loads(done.stdout)["gpus"][0]["processes"]] == [pid]
        end(boxed)
        wait_until(lambda: not gpus.show()["gpus"][0]["processes"], what="its end")


# -- reset, MIG, nonsense -------------------------------------------------------------------------
@needs_python_client
def test_a_reset_needs_a_card_that_nobody_holds(sim):
    with sim(2) as gpus:
        gpus.fault("all", "reset")
        load = gpus.load(0)
        assert f"GPU 0 is in use by {load.pid} (lull)" in one_line(gpus.lull("sim", "reset", 0), 1)
        end(load)
        gpus.started.remove(load)
        holder = gpus.start("sh", "-c", 'exec 3<"$LULL_DEV/nvidia0"; echo ready; exec cat', stdin=subprocess.PIPE)
        assert holder.stdout.readline() == "ready\n"
        wait_until(lambda: pathlib.Path(f"/proc/{holder.pid}/comm").read_text() == "cat\n", what="cat")
        assert f"{holder.pid} (cat)" in one_line(gpus.lull("sim", "reset", 0), 1)
        end(holder)
        gpus.started.remove(holder)
        gpus.fault(0, "lost", "nvmlDeviceGetName")  # of another kind: stays
        gpus.ok("reset", 0)
        assert [gpu["faults"] for gpu in gpus.show()["gpus"]] == [["lost --function nvmlDeviceGetName"], ["reset"]]
        watcher = gpus.start("/usr/bin/python3", "-c", CLIENT + "init(); find(0); print(1, flush=True); time.sleep(1000)")
        assert watcher.stdout.readline() == "1\n"
        assert str(watcher.pid) in one_line(gpus.lull("sim", "reset", 0), 1)
        gpus.ok("reset", 1)
        watcher.kill()
        watcher.wait(timeout=LIMIT)
        gpus.ok("reset", 0)


@needs_python_client
def test_mig_mode_is_switched(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\nmig = ["3g.40gb", "1g.10gb"]\nmig_mode = false\n[[gpu]]\nmodel = "T4"\n') as gpus:
        look = ("init(); d = find(0); m = c.c_void_p(); r = n.nvmlDeviceGetMigDeviceHandleByIndex(d, 0, c.byref(m));"
                "print(r, number('nvmlDeviceGetUtilizationRates', d))")
        assert client(gpus, look) == ["6 0"]
        gpus.set(0, mig="on")
        assert client(gpus, look) == ["0 -3"]
        gpus.set(0, mig="off")
        assert client(gpus, look) == ["6 0"]
        assert "has no MIG" in one_line(gpus.lull("sim", "set", 1, "mig=on"), 2)


@needs_python_client
def test_garbage_and_costs(sim):
    with sim(text='call_cost = "lists=100ms"\ncost_fan = "1ms"\n[[gpu]]\nmodel = "T4"\n') as gpus:
        took, = client(gpus, "init(); d = find(0); t = time.time(); pids(d); print(time.time() - t)")
        assert float(took) >= 0.1
        gpus.fault(0, "garbage")
        assert gpus.show()["gpus"][0]["faults"] == ["garbage"]
        assert client(gpus, "init(); print(number('nvmlDeviceGetEnforcedPowerLimit', find(0)))") == ["4294967295"]


@pytest.mark.parametrize("top, gpu, wanted", [
    ('sample_capacity = 0', '', "sample_capacity"),
    ('sample_period = "1us"', '', "1ms to 1m"),
    ('sample_clock = "wall"', '', '"boot" or "epoch"'),
    ('process_view = "mine"', '', "own_namespace"),
    ('call_cost = "list=4ms"', '', "did you mean 'lists'?"),
    ('cost_lists = "1h"', '', "too much for one call"),
    ('', 'reserved = "10GiB"', "more than half"),
    ('', 'attach = "soon"', "is not a duration"),
    ('', 'display = 1', "true or false"),
    ('', 'persistence = "maybe"', "persistence"),
])
def test_wrong_keys_are_refused(run_lull, tmp_path, top, gpu, wanted):
    bad = tmp_path / "bad.toml"
    bad.write_text(f'{top}\n[[gpu]]\nmodel = "T4"\n{gpu}\n')
    line = one_line(run_lull("sim", "--scenario", bad, "--", "true", env=clean_environment(XDG_RUNTIME_DIR=tmp_path)), 2)
    assert wanted in line and f"{bad}:" in line
