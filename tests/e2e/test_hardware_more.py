"""How real drivers behave, end to end, continued: what test_hardware.py does not have.

Elsewhere: displays, scrubbing, MPS and WSL in `pick` (test_hardware_pick.py), GPUs without permission in `watch`
(test_scope.py).
"""
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import LIMIT, alive, calls, hermetic, read_until, wait_until
from test_hardware import QUICK, next_rows, now, rows, stop


def value(gpus, metric):
    """What `lull check` reads of a metric of GPU 0."""
    done = gpus.lull("check", "--json", f"{metric} < 1")
    assert done.returncode == 0, done.stderr
    signal, = json.loads(done.stdout)["signals"]
    return signal["gpus"][0][signal["field"]]


def rows_apart(watching, seconds):
    """GPU 0 in those lines of `status --watch --json` that came so long after the one before, as they do where this machine
    is not held up."""
    before = None
    for line in watching.stdout:
        shown = json.loads(line)
        at = datetime.datetime.fromisoformat(shown["time"].replace("Z", "+00:00")).timestamp()
        if before and abs(at - before - seconds) < seconds / 10:
            yield shown["gpus"][0]
        before = at
    raise AssertionError(watching.stderr.read())


# -- 7: process lists are dear ----------------------------------------------------------------------
@pytest.mark.parametrize("command", ["status", "record"])
def test_lists_at_most_once_a_second(sim, tmp_path, command):
    log = tmp_path / "log"
    arguments = {"status": ["status", "--watch", "100ms", "--json"],
                 "record": ["record", "--every", "100ms", "--format", "ndjson"]}[command]
    with sim(1) as gpus:
        gpus.load(0)
        start = time.monotonic()
        job = gpus.start_lull(*arguments, env={"LULL_SIM_LOG": str(log)})
        wait_until(lambda: calls(log, "nvmlDeviceGetUtilizationRates") >= 25, what="25 samples")
        stop(job)
        # One at the start, and one may come a tenth of a second early; a sensor that did not come in time is replaced, and
        # the next one knows none.
        most = time.monotonic() - start + 1.1 + calls(log, "nvmlInit") - 1
        for kind in ("Compute", "Graphics", "MPSCompute"):
            assert calls(log, f"Get{kind}RunningProcesses") <= most, kind
        assert calls(log, "GetComputeRunningProcesses") >= 1


def sampled(gpus, command, log, samples):
    """Lets lull sample so often, and ends it; in how many seconds."""
    start = time.monotonic()
    job = gpus.start_lull(*command, env={"LULL_SIM_LOG": str(log)})
    try:
        wait_until(lambda: calls(log, "nvmlDeviceGetUtilizationRates") >= samples, what=f"{samples} samples")
    finally:
        stop(job)
    return time.monotonic() - start


@pytest.mark.parametrize("command", ["run", "watch"])
def test_who_shows_no_list_asks_for_fewer(sim, tmp_path, command):
    log = tmp_path / "log"
    with sim(1) as gpus:
        job = {"run": ["run", *QUICK, "--", gpus.binary, "sim", "load", "--gpu", "0", "--util", "50"],
               "watch": ["watch", "--every", "100ms", "--do", "exit"]}[command]
        took = sampled(gpus, job, log, 30)
        assert calls(log, "GetComputeRunningProcesses") <= took / 5 + 1 + calls(log, "nvmlInit")
        # Who draws is on the GPU as well: whose it is cannot be told without that list.
        assert command == "run" or calls(log, "GetGraphicsRunningProcesses") == 0
        assert calls(log, "GetMPSComputeRunningProcesses") <= calls(log, "GetComputeRunningProcesses")


@pytest.mark.parametrize("rule", ["util < 1 for 300ms", "util < 1"])
@pytest.mark.parametrize("command", ["run", "watch"])
def test_lists_at_most_once_a_second_with_short_rules(sim, tmp_path, command, rule):
    log = tmp_path / "log"
    with sim(1) as gpus:
        load = gpus.load(0, 50)
        job = {"run": ["run", "--delay", "0", "--also", load.pid, "--every", "50ms", "--idle", rule, "--", "sleep", "1000"],
               "watch": ["watch", "--every", "50ms", "--also", load.pid, "--idle", rule, "--do", "exit"]}[command]
        took = sampled(gpus, job, log, 40)
        # One at the start, and one may come a tenth of a second early; as above.
        assert calls(log, "GetComputeRunningProcesses") <= took + 1.1 + calls(log, "nvmlInit") - 1


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_short_rule_acts_on_lists_of_now(sim, command):
    """The job moves to another GPU, and lists are read once a second: it must not be ended on the one that it left."""
    with sim(2) as gpus:
        load = f'"{gpus.binary}" sim load --gpu'
        # What idles ends before what works does: in between the job would be idle.
        script = (f'{load} 0 --util 90 & idle=$!; sleep 2.2; {load} 1 --util 90 & work=$!; '
                  f'until "{gpus.binary}" sim show --json | grep -Eq "\\"pid\\": *$work\\b"; do :; done; "{gpus.binary}" sim set 0 util=0; '
                  'sleep 3; kill $idle; wait $idle; kill $work; wait $work; exit 5')
        rule = ["--every", "50ms", "--idle", "util < 5 for 200ms"]
        if command == "run":
            done = gpus.lull("run", "--delay", "0", *rule, "--grace", "300ms", "--", "sh", "-c", script)
            assert done.returncode == 5, done.stderr
        else:
            job = gpus.start("sh", "-c", script)
            done = gpus.lull("watch", *rule, "--also", job.pid, "--do", "exit=7")
            assert done.returncode == 1 and job.wait(timeout=LIMIT) == 5, done.stderr


@pytest.mark.parametrize("command", [
    ["watch", "--every", "100ms", "--do", "exit"],
    ["run", *QUICK, "--gpus", "0", "--", "sleep", "1000"],
    ["record", "--every", "100ms", "-o", "/dev/null"],
], ids=lambda command: command[0])
def test_a_word_when_sampling_takes_much(sim, command):
    with sim(text='call_cost = "util=30ms"\n[[gpu]]\nmodel = "T4"\n') as gpus:
        job = gpus.start_lull(*command)
        try:
            assert "of every 100ms" in read_until(job.stderr, "reading the GPUs takes")
        finally:
            stop(job)


# -- 8: whoever holds the driver is in the way ------------------------------------------------------
def test_no_driver_no_init(sim, tmp_path):
    log = tmp_path / "log"
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        env = {"LULL_SIM_LOG": str(log)}
        watching = gpus.start_lull("watch", "-v", "--every", "100ms", "--do", "exit", env=env)
        for arguments, code in ((["status"], 125), (["check", "util < 5"], 0), (["pick"], 125),
                                (["run", "--", "true"], 0), (["run", "--require-gpu", "--", "true"], 125)):
            done = gpus.lull(*arguments, env=env)
            assert done.returncode == code, done.stderr
            assert "not loaded" in done.stdout + done.stderr or code == 0  # a short job is over before it can be said
        for _ in range(15):
            read_until(watching.stderr, "no GPU can be read")
        assert not log.exists() or log.read_text() == ""
        gpus.clear()
        read_until(watching.stderr, "GPU 0 util 0 %")


def test_a_driver_that_refuses_is_asked_ever_less(sim, tmp_path):
    log = tmp_path / "log"
    with sim(1) as gpus:
        gpus.fault("all", "mismatch")
        gpus.start_lull("watch", "-v", "--every", "100ms", "--do", "exit", env={"LULL_SIM_LOG": str(log)})
        wait_until(lambda: calls(log, "nvmlInit") >= 3, what="three starts")
        with pytest.raises(AssertionError):
            wait_until(lambda: calls(log, "nvmlInit") >= 4, limit=2, what="a fourth")


def test_a_gpu_that_wants_a_reset_is_let_go(sim):
    with sim(2) as gpus:
        watching = gpus.start_lull("watch", "-v", "--every", "200ms", "--do", "exit")
        read_until(watching.stderr, "GPU 0 util 0 %")
        assert "lull-sensor" in gpus.lull("sim", "reset", 0).stderr, "it does not hold the card"
        gpus.fault(0, "reset")
        read_until(watching.stderr, "reset")
        wait_until(lambda: gpus.lull("sim", "reset", 0).returncode == 0, what="the reset")
        read_until(watching.stderr, "GPU 1 util 0 %")  # the other is watched on
        watching.terminate()
        assert watching.wait(timeout=LIMIT) == -signal.SIGTERM


def test_that_it_lets_go_is_said(sim):
    with sim(1) as gpus:
        watching = gpus.start_lull("watch", "-v", "--every", "200ms", "--do", "exit")
        read_until(watching.stderr, "GPU 0 util 0 %")
        gpus.fault(0, "reset")
        text = read_until(watching.stderr, "requires reset")
        wait_until(lambda: gpus.lull("sim", "reset", 0).returncode == 0, what="the reset")
        watching.terminate()
        text += watching.communicate(timeout=LIMIT)[1]
        assert "let go" in text or "lets go" in text, text


@pytest.mark.parametrize("whom", ["lull watch", "lull-sensor"])
def test_sigusr1_lets_go(sim, whom):
    with sim(1) as gpus:
        watching = gpus.start_lull("watch", "-v", "--every", "200ms", "--do", "exit")
        read_until(watching.stderr, "GPU 0 util 0 %")
        assert gpus.lull("sim", "reset", 0).returncode == 1
        own = [int(p.parent.name) for p in pathlib.Path("/proc").glob("[0-9]*/stat") if parent(p) == watching.pid]
        assert len(own) == 1
        os.kill(watching.pid if whom == "lull watch" else own[0], signal.SIGUSR1)
        assert "let go" in read_until(watching.stderr, "SIGUSR1")
        wait_until(lambda: gpus.lull("sim", "reset", 0).returncode == 0, what="the reset")
        read_until(watching.stderr, "(unknown)")
        assert alive(watching.pid)


def parent(stat):
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


# -- 9: a desktop draws -----------------------------------------------------------------------------
DESKTOP = '[[gpu]]\nmodel = "RTX3090"\ndisplay = true\n'


@pytest.mark.parametrize("command", [
    ["run", "--delay", "0", "--gpus", "0", "--", "sleep", "1000"],
    ["watch", "--do", "exit"],
], ids=lambda command: command[0])
def test_a_desktop_under_the_default_rule_is_told_what_to_write(sim, command):
    """Drawing is work: whose it is cannot be told, so nothing is taken off, and that is said, once."""
    with sim(text=DESKTOP) as gpus:
        job = gpus.start_lull(command[0], "-v", "--every", "100ms", *command[1:])
        try:
            said = read_until(job.stderr, "GPU 0 drives a display")
            assert "`util < 1` may never hold there" in said and "'util < 10 for 30m'" in said, said
            for _ in range(5):
                assert "drives a display" not in read_until(job.stderr, "GPU 0 util 7 % (no)")
        finally:
            stop(job)


def test_the_rule_that_is_proposed_holds_on_a_desktop(sim):
    with sim(text=DESKTOP) as gpus:
        done = gpus.lull("watch", "--every", "100ms", "--idle", "util < 10 for 500ms", "--do", "exit=7")
        assert done.returncode == 7 and "drives a display" not in done.stderr, done.stderr


def test_no_word_of_a_display_that_is_not_the_jobs(sim):
    with sim(text=DESKTOP + '[[gpu]]\nmodel = "A100"\n') as gpus:
        done = gpus.lull("run", *QUICK, "--gpus", "1", "--idle", "util < 1 for 500ms", "--", "sleep", "1000")
        assert done.returncode == 124 and "drives a display" not in done.stderr, done.stderr


def test_a_job_that_works_less_than_the_desktop_draws_is_not_ended(sim):
    with sim(text='[[gpu]]\nmodel = "RTX3090"\ndisplay = true\nutil = 5\n') as gpus:
        done = gpus.lull("run", *QUICK, "--idle", "util < 1 for 500ms", "--", gpus.binary, "sim", "load", "--gpu", "0",
                         "--util", "5", "--for", "2s")
        assert done.returncode == 0, done.stderr


# -- 11: a scrub after attaching --------------------------------------------------------------------
def test_pick_runs_its_command_although_memory_was_scrubbed(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\ncount = 2\nattach = "50ms"\nscrub = "700ms"\n') as gpus:
        done = gpus.lull("pick", "-n", "2", "--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"')
        assert (done.returncode, done.stdout) == (0, "on 0,1\n"), done.stderr


# -- 12: the energy counter of a module -------------------------------------------------------------
def test_power_is_the_gpus_own(sim):
    with sim("1xGH200") as gpus:
        idle = gpus.show()["gpus"][0]["power_watts"]
        done = gpus.lull("record", "--every", "300ms", "--for", "1500ms", "--signals", "power")
        seen = [float(line.split(",")[3]) for line in done.stdout.splitlines()[1:]]
        assert done.returncode == 0 and len(seen) >= 3
        assert seen == pytest.approx([idle] * len(seen), abs=5), "the module's counter is not the GPU's"
        rule = f"power < {idle + 20} for 500ms"
        job = gpus.lull("run", *QUICK, "--gpus", "0", "--idle", rule, "--", "sleep", "1000")
        assert job.returncode == 124, job.stderr


SWINGS = ('[[gpu]]\nmodel = "H100"\nrepeat = "500ms"\n[[gpu.timeline]]\nat = "0s"\npower = 70\n'
          '[[gpu.timeline]]\nat = "350ms"\npower = 700\n')  # 259 W in the mean


def test_a_counter_that_is_the_gpus_own_is_believed_though_power_swings(sim):
    """Power of the moment is far from the mean, and the counter is right nevertheless."""
    with sim(text=SWINGS) as gpus:
        wait_until(lambda: gpus.show()["time_seconds"] % 0.5 < 0.03, what="the low part")
        watching = gpus.start_lull("status", "--watch", "500ms", "--json")
        seen = list(itertools.islice(rows_apart(watching, 0.5), 3, 8))  # some to find that out
        assert [gpu["power_basis"] for gpu in seen] == ["mean"] * 5
        assert [gpu["power_watts"] for gpu in seen] == pytest.approx([259] * 5, abs=80)


def test_a_job_whose_power_swings_is_not_idle(sim):
    with sim(text=SWINGS.replace("500ms", "100ms").replace("350ms", "70ms")) as gpus:
        job = gpus.start_lull("run", "-v", "--gpus", "0", "--delay", "0", "--every", "1s", "--idle", "power < 150 for 1500ms",
                              "--grace", "300ms", "--", "sleep", "1000")
        said = "".join(read_until(job.stderr, "GPU 0 power") for _ in range(6))
        seen = [int(watts) for watts in re.findall(r"GPU 0 power (\d+) W \(", said)]
        assert len(seen) >= 5 and min(seen[2:]) > 150 and job.poll() is None, said
        stop(job)


# -- 13: the clock of the ring ----------------------------------------------------------------------
@pytest.mark.parametrize("clock", ["boot", "epoch"])
def test_both_clocks_of_the_ring_are_understood(sim, clock):
    """Busy for 250 ms of each second: the ring knows, a look at the moment does not."""
    text = (f'sample_clock = "{clock}"\n[[gpu]]\nmodel = "A100"\nrepeat = "1s"\n'
            '[[gpu.timeline]]\nat = "0s"\nutil = 80\n[[gpu.timeline]]\nat = "250ms"\nutil = 0\n')
    with sim(text=text) as gpus:
        gpus.load(0, util=0)  # a card that nobody holds keeps no samples
        watching = gpus.start_lull("status", "--watch", "1s", "--json")
        for gpu in itertools.islice(rows_apart(watching, 1), 2):
            assert gpu["util_basis"] == "mean" and 10 < gpu["util_percent"] < 35, gpu
            assert gpu["util_coverage"] >= 0.9
        gpus.set(0, util=0)
        wait_until(lambda: 1 <= (rows(gpus.lull("status", "--json"))[0]["idle_seconds"] or 0) < LIMIT, limit=10,
                   what="a second of idleness, by the times in the ring")


# -- 14: who opens a device -------------------------------------------------------------------------
def test_those_who_only_look_are_no_openers(sim, tmp_path):
    with sim(1) as gpus:
        def opener(name):
            shutil.copy2("/bin/sleep", tmp_path / name)
            with open(pathlib.Path(gpus.env["LULL_DEV"]) / "nvidia0", "rb") as device:
                gpus.start(tmp_path / name, "1000", pass_fds=[device.fileno()])

        for name in ("nvidia-persistenced", "nv-hostengine", "dcgm-exporter", "nvidia-smi", "nvtop", "Xorg",
                     "gnome-shell", "lull"):
            opener(name)
        assert value(gpus, "openers") == 0
        done = gpus.lull("pick", "--where", "openers < 1")
        assert done.returncode == 0, done.stderr
        opener("train")
        assert value(gpus, "openers") == 1
        assert gpus.lull("pick", "--where", "openers < 1").returncode == 125


# -- 15: MPS ----------------------------------------------------------------------------------------
def test_clients_of_mps_count_and_its_server_does_not(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\n[[process]]\ngpu = 0\ntype = "mps-server"\n') as gpus:
        wait_until(lambda: gpus.show()["gpus"][0]["processes"], what="the server")
        assert value(gpus, "procs") == 0
        rule = ["--idle", "procs < 1 for 500ms"]
        assert gpus.lull("watch", "--every", "100ms", *rule, "--do", "exit=7").returncode == 7
        client = gpus.load(0, 0, None, None, "--mps")
        assert value(gpus, "procs") == 1
        done = gpus.lull("pick")
        assert done.returncode == 125 and "1 process" in done.stderr
        assert gpus.lull("run", *QUICK, "--gpus", "0", *rule, "--", "sh", "-c", "sleep 2; exit 5").returncode == 5
        client.kill()
        client.wait(timeout=LIMIT)
        assert gpus.lull("pick").returncode == 0


# -- 17: where the library is -----------------------------------------------------------------------
def mounted(gpus, over, script):
    """Runs a script where the folder `over` may be written to, by itself only, and the loader knows no NVML."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    if os.environ["LULL_TEST_HERMETIC"] != "namespace":
        pytest.skip("a library of this machine cannot be hidden")
    if gpus.binary.startswith(over + "/") or gpus.env["LULL_SIM"].startswith(over + "/"):
        pytest.skip(f"what is tested is itself in {over}")
    layer = gpus.folder / "layer"
    layer.mkdir()
    prepare = f"mount -t tmpfs none {layer} && mkdir {layer}/upper {layer}/work && mount -t overlay none " \
              f"-o lowerdir={over},upperdir={layer}/upper,workdir={layer}/work {over} || exit 99\n"
    # What hides a library of this machine is not in the overlay.
    prepare += "".join(f"rm -f '{library}'\n" for library in hermetic.libraries() if library.startswith(over + "/"))
    done = gpus.run("unshare", "-m", "sh", "-c", prepare + "unset LD_LIBRARY_PATH\n" + script)
    if done.returncode == 99:
        pytest.skip(f"no overlay here: {done.stderr.strip()}")
    return done


@pytest.mark.parametrize("folder, over", [
    ("/run/opengl-driver/lib", "/run"), ("/usr/lib/wsl/lib", "/usr/lib"), ("/usr/local/nvidia/lib64", "/usr/local"),
    ("/home/kubernetes/bin/nvidia/lib64", "/home")])
def test_the_library_is_found_elsewhere(sim, folder, over):
    with sim(1) as gpus:
        library = pathlib.Path(gpus.env["LD_LIBRARY_PATH"].split(":")[0]) / "libnvidia-ml.so.1"
        done = mounted(gpus, over, f'mkdir -p {folder} && cp "{library}" {folder} && "{gpus.binary}" status --json')
        assert [row["error"] for row in rows(done)] == [None]


def test_a_container_without_the_library(sim):
    with sim(1) as gpus:
        done = mounted(gpus, "/run", f'touch /run/.containerenv; container=podman "{gpus.binary}" status')
        assert done.returncode == 125
        assert "NVIDIA_DRIVER_CAPABILITIES=utility" in done.stderr, done.stderr


# -- 18: a container that lost its devices ----------------------------------------------------------
CONTAINER = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && touch /run/.containerenv && exec "$0" "$@"')


@pytest.mark.skipif(subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0, reason="no right to mount")
@pytest.mark.parametrize("arguments, code", [(["status"], 125), (["pick"], 125), (["check", "util < 5"], 0),
                                             (["run", "--require-gpu", "--", "true"], 125),
                                             (["run", "--", "sh", "-c", "read line; exit 5"], 5)],
                         ids=["status", "pick", "check", "run-require", "run"])
def test_a_container_that_lost_its_devices(sim, arguments, code):
    with sim(1) as gpus:
        gpus.fault("all", "unknown", "nvmlInit*")
        job = gpus.start(*CONTAINER, gpus.binary, *arguments, stdin=subprocess.PIPE)
        said = read_until(job.stderr, "container lost") if "read line; exit 5" in arguments else ""
        said += "".join(job.communicate("\n", timeout=LIMIT))
        done = job
        assert done.returncode == code, said
        assert "container lost" in said and "restart" in said, said


# -- 19: WSL2 ---------------------------------------------------------------------------------------
def test_wsl_tells_what_it_can(sim):
    with sim(text='wsl = true\n[[gpu]]\nmodel = "RTX4090"\nmem_used = "3GiB"\nutil = 50\n') as gpus:
        row, = rows(gpus.lull("status", "--json"))
        assert row["error"] is None and row["mem_used_bytes"] == pytest.approx(3 << 30, abs=1 << 29)
        assert row["util_percent"] is None and row["unknown"]["util_percent"] == "not supported"
        assert row["procs"] is None and row["processes"] is None
        assert now(gpus, "util < 5") is None and now(gpus, "procs < 1") is None
        assert now(gpus, "mem_used > 1GiB") is True
        job = gpus.start_lull("run", "-v", *QUICK, "--gpus", "0", "--idle", "util < 5 for 300ms", "--", "sleep", "1000")
        read_until(job.stderr, "not supported")
        for _ in range(10):
            read_until(job.stderr, "(unknown)")
        stop(job)


# -- 21: GPUs that are not for us -------------------------------------------------------------------
def test_check_judges_by_the_same_gpus_as_watch(sim):
    with sim(2) as gpus:
        gpus.fault(1, "no-permission")
        assert now(gpus, "util < 5") is None, "its device file is open to us"
        (gpus.folder / "dev" / "nvidia1").unlink()
        assert now(gpus, "util < 5") is True
        assert now(gpus, "util < 5", "--gpus", "0,1") is None, "it was asked for by name"


def test_pick_and_run_go_by_the_others(sim):
    with sim(2) as gpus:
        gpus.fault(1, "no-permission")
        done = gpus.lull("pick", "--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"')
        assert (done.returncode, done.stdout) == (0, "on 0\n"), done.stderr
        first, second = rows(gpus.lull("status", "--json"))
        assert first["error"] is None and "no permission" in second["error"]
        job = gpus.lull("run", *QUICK, "--idle", "util < 5 for 500ms", "--", gpus.binary, "sim", "load", "--gpu", "0",
                        "--util", "0")
        assert job.returncode == 124, job.stderr


# -- 22: MIG is switched while we look --------------------------------------------------------------
@pytest.mark.parametrize("mode", ["on", "off"])
def test_mig_is_switched(sim, mode):
    whole, cut = ["gpu"], ["gpu", "mig", "mig"]
    before, after = (whole, cut) if mode == "on" else (cut, whole)
    text = f'[[gpu]]\nmodel = "A100"\nmig = ["3g.40gb", "1g.10gb"]\nmig_mode = {"false" if mode == "on" else "true"}\n'
    with sim(text=text) as gpus:
        watching = gpus.start_lull("status", "--watch", "200ms", "--json")
        assert [row["kind"] for row in next_rows(watching, lambda found: found[0]["mem_total_bytes"])] == before
        gpus.set(0, mig=mode)
        found = next_rows(watching, lambda found: [row["kind"] for row in found] == after)
        assert found[0]["mig_mode"] is (mode == "on")
        found = next_rows(watching, lambda found: all(row["mem_total_bytes"] for row in found))
        assert len({row["uuid"] for row in found}) == len(after)
        assert (found[0]["util_percent"] is None) == (mode == "on")
