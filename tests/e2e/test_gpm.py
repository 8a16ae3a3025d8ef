"""The chip's own counters: `sm`, `tensor`, `dram`, and the utilisation of MIG devices."""
import csv
import json

import pytest
from conftest import LIMIT, calls, wait_until

EVERY = ["--delay", "0", "--every", "500ms", "--grace", "300ms"]
MIG = '[[gpu]]\nmodel = "H100"\nmig = ["3g.40gb", "1g.10gb"]\n'
OLD_MIG = '[[gpu]]\nmodel = "A100"\nmig = ["3g.40gb", "1g.10gb"]\n'
SAMPLES = ["nvmlGpmSampleGet", "nvmlGpmMigSampleGet"]


def load(gpus, gpu="0", **values):
    """The command of a job."""
    return [str(gpus.binary), "sim", "load", "--gpu", gpu, "--mem", "1GiB",
            *[f"--{name}={value}" for name, value in values.items()]]


def start(gpus, log, rule, *job):
    return gpus.start_lull("run", *EVERY, "--idle", rule, "--", *job, env={"LULL_SIM_LOG": str(log)})


def outlives_its_rule(run, log, function="nvmlGpmSampleGet"):
    """So many more samples as would have ended it several times."""
    seen = calls(log, function)
    wait_until(lambda: run.poll() is not None or calls(log, function) >= seen + 20, what="more samples")
    return run.poll() is None


def status(gpus, *options):
    return json.loads(gpus.lull("status", "--json", *options).stdout)["gpus"]


# ---- whole GPUs

def test_job_that_spins_is_told_from_one_that_works(sim, tmp_path):
    """Both at 100 % of util."""
    gpus = sim("2xH100")
    rule = "util >= 95 and tensor < 1 and dram < 1 for 2s"
    works = start(gpus, tmp_path / "calls", rule, *load(gpus, util=100))
    spins = gpus.start_lull("run", *EVERY, "--gpus", "1", "--idle", rule, "--",
                            *load(gpus, "1", util=100, sm=9, tensor=0, dram=0))
    _, stderr = spins.communicate(timeout=LIMIT)
    assert spins.returncode == 124, stderr
    assert outlives_its_rule(works, tmp_path / "calls"), works.stderr.read()


def test_work_between_the_samples_is_seen(sim, tmp_path):
    """A tenth of the time, in step with our samples."""
    gpus = sim("H100")
    job = load(gpus, util=100, sm=100) + ["--for", "100ms"]
    for _ in range(7):
        job += ["--then", "util=0", "sm=0", "--for", "900ms", "--then", "util=100", "sm=100", "--for", "100ms"]
    log = tmp_path / "calls"
    run = gpus.start_lull("run", "--delay", "0", "--every", "1s", "--idle", "sm < 5 for 3s", "--", *job,
                          env={"LULL_SIM_LOG": str(log)})
    stdout, stderr = run.communicate(timeout=LIMIT)
    assert run.returncode == 0, stderr
    assert calls(log, "nvmlGpmSampleGet") >= 5


@pytest.mark.parametrize("fault", ["no-permission", "unsupported", "unknown", "garbage", "hang=30s"])
@pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_counter_that_cannot_be_read_ends_nobody(sim, tmp_path, fault, function):
    if fault == "garbage" and function == "nvmlGpmSampleGet":
        pytest.skip("a sample is no number")
    gpus = sim("2xH100")
    log = tmp_path / "calls"
    run = start(gpus, log, "sm < 1 for 3s", *load(gpus, "0,1", util=0))
    wait_until(lambda: calls(log, "nvmlGpmMetricsGet") >= 2, what="two values")
    gpus.fault(0, fault, function)
    seen = calls(log, "nvmlGpmSampleGet", "1")
    wait_until(lambda: run.poll() is not None or calls(log, "nvmlGpmSampleGet", "1") >= seen + 20, what="samples of the other")
    assert run.poll() is None, run.stderr.read()
    gpus.clear()
    _, stderr = run.communicate(timeout=LIMIT)
    assert run.returncode == 124, stderr
    assert "sm" in stderr


def test_permission_that_goes_after_a_while_makes_the_counters_unknown(sim):
    gpus = sim(text='[[gpu]]\nmodel = "H100"\nutil = 50\n[[fault]]\nkind = "no-permission"\nfunction = "nvmlGpm*"\nat = "2s"\n')
    done = gpus.lull("record", "--every", "500ms", "--for", "5s", "--signals", "util,sm", check=True)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert rows[0]["sm_active_percent"] == "40"
    assert rows[-1]["sm_active_percent"] == ""
    assert rows[-1]["util_percent"] == "50"


@pytest.mark.parametrize("model", ["A100", "RTX4090", "GB10", "L40S"])
def test_cards_without_counters_say_so(sim, model):
    gpus = sim(model)
    gpus.load(0, util=0)
    checked = gpus.lull("check", "sm < 5 for 10m")
    assert "not supported" in checked.stdout, checked.stdout


@pytest.mark.parametrize("model", ["H100", "H200", "GH200", "B200"])
def test_check_shows_the_counters_of_now(sim, model):
    gpus = sim(model)
    gpus.set(0, util=50, sm=31)
    checked = gpus.lull("check", "sm < 5 and tensor < 5 for 10m")
    assert "31 %" in checked.stdout and "25 %" in checked.stdout, checked.stdout


def test_counters_are_asked_for_only_where_a_rule_wants_them(sim, tmp_path):
    gpus = sim("H100")
    log = tmp_path / "calls"
    env = {"LULL_SIM_LOG": str(log)}
    gpus.lull("status", env=env, check=True)
    gpus.lull("record", "--every", "200ms", "--for", "1s", env=env, check=True)
    gpus.lull("run", "--every", "200ms", "--", "sleep", "1", env=env, check=True)
    gpus.lull("pick", "--", "true", env=env, check=True)
    assert "Gpm" not in log.read_text()
    gpus.lull("pick", "--where", "sm < 5", "--", "true", env=env, check=True)
    assert calls(log, "nvmlGpmMetricsGet") >= 1


def test_pick_goes_by_the_counters(sim):
    gpus = sim("2xH100")
    gpus.set(0, sm=50)
    for _ in range(3):
        assert gpus.lull("pick", "--where", "sm < 5", check=True).stdout.strip() == "1"


def test_recording_of_a_job_has_what_its_rule_looks_at(sim, tmp_path):
    gpus = sim("H100")
    path = tmp_path / "job.csv"
    gpus.lull("run", "--every", "300ms", "--record", path, "--idle", "tensor < 1 for 1h", "--", *load(gpus, util=80),
              "--for", "2s", check=True)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert "tensor_active_percent" in rows[0] and "sm_active_percent" not in rows[0]
    assert any(row["tensor_active_percent"] == "40" for row in rows), rows
    replayed = gpus.lull("replay", path, "--idle", "tensor < 1 for 1s")
    assert replayed.returncode == 0, replayed.stderr


# ---- MIG devices

def test_mig_devices_show_their_own_utilisation(sim):
    gpus = sim(text=MIG)
    gpus.load("0:1", util=60, mem="1GiB")
    card, first, second = status(gpus)
    assert card["util_percent"] is None
    assert first["util_percent"] == 0
    assert second["util_percent"] == 60
    assert second["unknown"].get("util_percent") is None
    assert "busy" in gpus.lull("status").stdout


def test_mig_devices_before_hopper_have_none(sim):
    gpus = sim(text=OLD_MIG)
    gpus.load("0:1", util=60, mem="1GiB")
    _, first, second = status(gpus)
    assert first["util_percent"] is None and second["util_percent"] is None
    assert second["unknown"]["util_percent"] == "not supported"


def test_mig_device_is_judged_by_its_own_work(sim, tmp_path):
    gpus = sim(text=MIG)
    log = tmp_path / "calls"
    works = gpus.start_lull("run", *EVERY, "--gpus", "0:0", "--idle", "util < 1 for 2s", "--",
                            *load(gpus, "0:0", util=5), env={"LULL_SIM_LOG": str(log)})
    idles = gpus.start_lull("run", *EVERY, "--gpus", "0:1", "--idle", "util < 1 for 2s", "--",
                            *load(gpus, "0:1", util=0))
    _, stderr = idles.communicate(timeout=LIMIT)
    assert idles.returncode == 124, stderr
    assert outlives_its_rule(works, log, "nvmlGpmMigSampleGet"), works.stderr.read()


@pytest.mark.parametrize("text", [OLD_MIG, MIG])
def test_mig_device_without_utilisation_is_never_idle(sim, tmp_path, text):
    gpus = sim(text=text)
    gpus.fault(0, "no-permission", "nvmlGpm*")
    log = tmp_path / "calls"
    run = gpus.start_lull("run", *EVERY, "--gpus", "0:0", "--idle", "util < 1 for 1s", "--",
                          *load(gpus, "0:0", util=0), env={"LULL_SIM_LOG": str(log)})
    assert outlives_its_rule(run, log, "nvmlDeviceGetUtilizationRates"), run.stderr.read()


def test_pick_chooses_the_mig_device_that_does_nothing(sim):
    gpus = sim(text=MIG)
    gpus.load("0:0", util=40, mem="0B")
    devices = status(gpus)
    for _ in range(3):
        assert gpus.lull("pick", check=True).stdout.strip() == devices[2]["uuid"]
    refused = gpus.lull("pick", "--gpus", "0:0")
    assert refused.returncode != 0
    assert "40 %" in refused.stderr, refused.stderr


@pytest.mark.parametrize("text", [OLD_MIG, MIG])
def test_pick_goes_by_memory_and_processes_where_utilisation_is_refused(sim, text):
    gpus = sim(text=text)
    gpus.fault(0, "no-permission", "nvmlGpm*")
    gpus.load("0:0", util=0, mem="1GiB")
    devices = status(gpus)
    assert gpus.lull("pick", check=True).stdout.strip() == devices[2]["uuid"]
    assert gpus.lull("pick", "--gpus", "0:0").returncode != 0
    assert "1 free" in gpus.lull("status").stdout


def test_mig_that_is_switched_off_and_on_meanwhile(sim):
    gpus = sim(text=MIG)
    gpus.load("0:1", util=60)
    watch = gpus.start_lull("status", "--watch", "500ms", "--json")

    def shows(expected):
        devices = json.loads(watch.stdout.readline())["gpus"]
        return {(one["mig_index"], one["util_percent"]) for one in devices if one["util_percent"]} == expected

    for mode, place in [("on", 1), ("off", None), ("on", 1)]:
        gpus.set(0, mig=mode)
        wait_until(lambda: shows({(place, 60)}), what=f"utilisation with MIG {mode}")
    watch.terminate()
    watch.wait(LIMIT)


# ---- the driver's buffers

def test_as_many_samples_are_given_back_as_were_made(sim, tmp_path):
    """MIG devices come and go. At the end those of two devices are left, three of each, and maybe the card's."""
    gpus = sim(text=MIG)
    log = tmp_path / "calls"
    record = gpus.start_lull("record", "--every", "200ms", "--signals", "util,sm", env={"LULL_SIM_LOG": str(log)})
    for mode, function in [("on", SAMPLES[1]), ("off", SAMPLES[0])] * 2:
        seen = calls(log, function)
        gpus.set(0, mig=mode)
        wait_until(lambda: calls(log, function) >= seen + 6, what=f"samples with MIG {mode}")
    made = calls(log, "nvmlGpmSampleAlloc") - calls(log, "nvmlGpmSampleFree")
    assert 0 < made <= 9, made
    assert calls(log, "nvmlGpmSampleFree") >= 6
    record.terminate()
    record.wait(LIMIT)


def test_loads_say_what_the_counters_show(sim):
    gpus = sim("H100")
    gpus.load(0, 100, None, None, "--sm=70", "--tensor=20")
    rows = list(csv.DictReader(gpus.lull("record", "--every", "300ms", "--for", "1s", "--signals", "sm,tensor,dram",
                                         check=True).stdout.splitlines()))
    assert [rows[-1][name + "_active_percent"] for name in ("sm", "tensor", "dram")] == ["70", "20", "40"]
    bad = gpus.lull("sim", "load", "--sm", "101")
    assert bad.returncode != 0 and "sm" in bad.stderr
