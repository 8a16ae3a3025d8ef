"""Numbers from outside: every number of every option, file and record is checked where it
enters. What is nonsense is refused in one line that names the option and says what would be right, with status 2.

The options come from --help: one that is new and takes a number is tried here without anybody's doing.
"""
import json
import os
import re
import subprocess

import pytest

from conftest import LIMIT, build_dir, clean_environment

NONSENSE = ["nan", "inf", "-1", "0", "1e308", "1e-400", "99999999999999999999", "0x10", "", " 5", "5 ", "5x",
            "9223372036854775807s", "4294967297", "3000000000", "1.5"]
BLANKS = {" 5", "5 "}  # around a list of GPUs or a limit they do no harm
SPEAKS = re.compile(r"would be right|must be|such as|needs a (value|unit)|at least|there is no such process|is no signal|names no GPU|no GPU \d")

# What is no nonsense after all, by what --help calls the value; then the options that differ from that.
BY_KIND = {"TIME": set(), "SIZE": {"0"}, "N": {"0"}, "C": {"0", "1.5"}, "PID": set(), "MONEY": {"0", "1.5"},
           "[TIME]": {""}, "PID|CGROUP|CONTAINER": {"99999999999999999999"}}
BY_OPTION = {
    "run --delay": {"0"}, "run --grace": {"0"}, "run --backoff": {"0"},
    "watch --delay": {"0"}, "watch --grace": {"0"}, "watch --retry-after": {"0"},
    "watch --warn": {"0"}, "watch --keep-at-most": {"0"}, "pick --count": set(), "pick --priority": {"-1", "0"}, "pick --util": {"0", "1.5"}, "pick --mem-util": {"0", "1.5"},
    "replay --regret": {"0"}, "replay --delay": {"0"}, "pick --share": set(), "pick --joinable": set(), "replay --memory": set(),
}


def base(command, option, trace):
    """A command line that ends by itself where no driver can be loaded; 2 is said before anybody looks for one."""
    return {"run": ["run", "--require-gpu", option, "--", "true"],
            "watch": ["watch", "--require-gpu", "--do", "exit", option],
            "pick": ["pick", option],
            "record": ["record", option],
            "replay": ["replay", trace, "--idle", "util < 5 for 10s", option],
            "status": ["status", option]}[command]


def numeric_options(run_lull, command):
    text = run_lull(command, "--help").stdout
    found = re.findall(r"^ +(?:-\w, ?)?(--[\w-]+) (\S+)", text, re.M)
    return [(name, kind) for name, kind in found if kind in BY_KIND]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time,gpu,util_percent\n" + "".join(f"2026-01-01T00:00:{i:02}Z,0,0\n" for i in range(60)))
    return str(path)


@pytest.mark.parametrize("command", ["run", "watch", "pick", "record", "replay", "status"])
def test_every_number_of_every_option(run_lull, tmp_path, trace, command):
    env = clean_environment(LULL_NVML=tmp_path / "none.so", LULL_LEASES=tmp_path / "leases")
    options = numeric_options(run_lull, command)
    assert options, "its --help names none"
    for option, kind in options:
        good = BY_OPTION.get(f"{command} {option}", BY_KIND[kind])
        for value in NONSENSE:
            if command == "status" and value in good:
                continue  # it would watch
            done = run_lull(*base(command, f"{option}={value}", trace), env=env)
            what = f"lull {command} {option}={value!r}: {done.returncode} {done.stderr}"
            if value in good:
                assert done.returncode in (0, 125), what
                assert "would be right" not in done.stderr, what
                continue
            assert done.returncode == 2, what
            assert done.stdout == "", what
            assert done.stderr.count("\n") == 1, what
            assert option in done.stderr and SPEAKS.search(done.stderr), what


@pytest.mark.parametrize("action", ["exit=", "kill=", "kill=PGID:"])
def test_numbers_of_actions(run_lull, tmp_path, action):
    """`kill=4294967296+PID` killed PID."""
    env = clean_environment(LULL_NVML=tmp_path / "none.so")
    for value in NONSENSE + [str((1 << 32) + os.getpid())]:
        done = run_lull("watch", "--require-gpu", "--do", action + value, env=env)
        good = action == "exit=" and value == "0"
        assert done.returncode == (125 if good else 2), (value, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("command", [["status"], ["check", "util < 5"], ["pick", "--no-lease"], ["record", "--for", "20ms"],
                                     ["run"], ["watch", "--do", "exit"]])
def test_numbers_of_gpus(sim, command):
    with sim(2) as gpus:
        for value in NONSENSE:
            if value in ("0", "1.5"):
                continue
            more = ["--", "true"] if command == ["run"] else []
            done = gpus.lull(*command, f"--gpus={value}", *more)
            assert done.returncode == 2, (command, value, done.stderr)
            assert done.stderr.count("\n") == 1, (command, value, done.stderr)


def test_numbers_in_rules(run_lull):
    for value in NONSENSE:
        done = run_lull("check", f"util < 5 for {value}")
        assert done.returncode == 2 and "bad rule, column" in done.stderr, (value, done.stdout)
        done = run_lull("check", f"util < {value}")
        if value in ("-1", "0"):
            assert "can never hold" in done.stdout, value
        elif value in BLANKS | {"1.5"}:
            assert done.returncode == 0 and "hold where" not in done.stdout, value
        elif value in ("99999999999999999999", "4294967297", "3000000000"):
            assert "always holds" in done.stdout, value
        else:
            assert done.returncode == 2, (value, done.stdout)
    for value in ("0.5 samples", "0 samples", "-1 samples", "99999999999 samples", "10001d", "99999999999999h"):
        assert run_lull("check", f"util < 5 for {value}").returncode == 2, value


@pytest.mark.parametrize("name", ["util", "mem_used", "power", "temp", "clock", "pstate", "throttle", "power_limit", "pcie_rx",
                                  "compute_mode", "mem_util", "mem_clock", "encoder"])
def test_numbers_of_sim_set(sim, name):
    with sim("1xT4") as gpus:
        for value in ("nan", "inf", "-1", "1e308", "1e-400", "99999999999999999999", "", "5x", "9223372036854775807s"):
            done = gpus.lull("sim", "set", "0", f"{name}={value}")
            assert done.returncode == 2, (name, value, done.stderr)
            assert done.stderr.count("\n") == 1 and "would be right" in done.stderr, done.stderr


def test_numbers_of_sim(sim, run_lull):
    for value in NONSENSE:
        done = run_lull("sim", f"--gpus={value}", "--", "true")
        assert done.returncode == (0 if value in BLANKS else 2), (value, done.stderr)
        done = run_lull("sim", f"--speed={value}", "--", "true")
        assert done.returncode == (0 if value in ("5x", "1.5") else 2), (value, done.stderr)
    with sim(1) as gpus:
        for value in NONSENSE:
            for command in (["fault", "0", f"hang={value}"], ["fault", "0", "lost", f"--for={value}"],
                            ["load", "--gpu", "9", f"--util={value}"], ["load", "--gpu", value, "--for", "1ms"],
                            ["clear", value], ["reset", value], ["set", value, "util=5"]):
                if value == "0" and command[-1] in ("--util=0", "0", "1ms", "util=5") or value == "" and command[0] == "load":
                    continue
                done = gpus.lull("sim", *command)
                assert done.returncode == 2, (command, done.stderr)
                assert done.stderr.count("\n") == 1, done.stderr


def test_a_fault_of_a_call_that_nobody_knows(sim):
    """It was taken, and the fault never happened."""
    with sim(1) as gpus:
        for name in ("foo", "nvmlDeviceGetFoo", "nvmlFoo*", "nvmlDeviceGetPowerusage", "nvmlDeviceGet", "*", ""):
            done = gpus.lull("sim", "fault", "0", "lost", "--function", name)
            assert done.returncode == 2 and "NVML function" in done.stderr, (name, done.stderr)
        assert "did you mean 'nvmlDeviceGetPowerUsage'" in gpus.lull("sim", "fault", "0", "lost", "--function",
                                                                     "nvmlDeviceGetPowrUsage").stderr
        for name in ("nvmlDeviceGetPowerUsage", "DeviceGetPowerUsage", "nvmlDeviceGet*", "nvmlDeviceGetMemoryInfo_v2",
                     "nvmlDeviceGetCount", "nvmlInit*"):
            done = gpus.lull("sim", "fault", "0", "lost", "--function", name)
            assert done.returncode == 0, (name, done.stderr)


def test_a_very_long_time_does_not_wrap_around(sim):
    """Three times 136 years is a negative time: every sample was a gap, and no rule ever held."""
    with sim(1, speed=0.001) as gpus:
        gpus.fault(0, "lost", lasting="10000d")  # 27 000 years by our clock
        assert gpus.show()["gpus"][0]["faults"]
    with sim(1, speed=1000000) as gpus:
        load = gpus.load(0, 50, None, "10000d")
        assert load.poll() is None and gpus.show()["gpus"][0]["util_percent"] == 50


GPU = '[[gpu]]\nmodel = "T4"\n'
PROCESS = GPU + "[[process]]\ngpu = 0\n"
SCENARIO = {  # with a value that is right
    "speed = {}\n" + GPU: "60", GPU + "count = {}": "2", GPU + "util = {}": "5", GPU + "mem_used = {}": '"1GiB"', GPU + "power = {}": "50",
    GPU + "memory = {}": '"16GiB"', GPU + "reserved = {}": '"300MiB"', GPU + "attach = {}": '"1s"', "sample_period = {}\n" + GPU: '"100ms"',
    "sample_capacity = {}\n" + GPU: "72", GPU + "numa = {}": "0", GPU + "fans = {}": "1", GPU + "idle_power = {}": "10",
    GPU + "context_power = {}": "20", GPU + "max_clock = {}": "1500", GPU + "pcie_width = {}": "16", GPU + "pcie_generation = {}": "3",
    GPU + "timeline = [{{ at = {}, util = 5 }}]": '"1s"', GPU + "timeline = [{{ at = \"1s\", util = {} }}]": "5",
    GPU + '[[fault]]\nkind = "lost"\nat = {}': '"1s"', GPU + '[[fault]]\nkind = "lost"\nfor = {}': '"1s"',
    GPU + '[[fault]]\nkind = "lost"\ngpu = {}': "0", GPU + "[[process]]\ngpu = {}\nfor = \"1s\"": "0",
    PROCESS + "pid = {}": "4711", PROCESS + "util = {}\nfor = \"1s\"": "5", PROCESS + "mem = {}\nfor = \"1s\"": '"1GiB"',
    PROCESS + "at = {}": '"1h"', PROCESS + "for = {}": '"1s"',
}


@pytest.mark.parametrize("line", SCENARIO)
def test_numbers_in_a_scenario(run_lull, tmp_path, line):
    path = tmp_path / "scenario.toml"
    path.write_text(line.format(SCENARIO[line]) + "\n")
    done = run_lull("sim", "--scenario", path, "--", "true")
    assert done.returncode == 0, done.stderr
    for value in ("nan", "inf", "-1e9", "1e308", "-9223372036854775808", "9223372036854775807", "99999999999999999999", '"5x"',
                  '"nan"', '"9223372036854775807s"', "[]", '""'):
        path.write_text(line.format(value) + "\n")
        done = run_lull("sim", "--scenario", path, "--", "true")
        assert done.returncode == 2, (line, value, done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1 and str(path) in done.stderr, done.stderr


def test_numbers_in_lease_records(sim):
    """A record of nonsense names nobody: it is shown as unreadable or left out, and takes no GPU from anybody for ever."""
    with sim(2) as gpus:
        assert gpus.lull("pick", "--hold", "100s").returncode == 0
        folder = gpus.env["LULL_LEASES"]
        (name,) = [one for one in os.listdir(folder) if one.startswith("GPU-")]
        path = os.path.join(folder, name)
        with open(path) as file:
            text = file.read()
        numbers = list(re.finditer(r"(?<=: )\S*\d\S*$", text, re.M))
        assert numbers, text
        for match in numbers:
            for value in ("-1", "99999999999999999999", "nan", "1e308", "0x10", ""):
                with open(path, "w") as file:
                    file.write(text[:match.start()] + value + text[match.end():])
                for command in (["leases"], ["leases", "--json"], ["status", "--json"]):
                    done = gpus.lull(*command)
                    assert done.returncode == 0, (match.group(), value, command, done.stderr)
                    if "--json" in command:
                        json.loads(done.stdout)
        with open(path, "w") as file:
            file.write(text)
        assert gpus.lull("release", "all").returncode == 0


def test_numbers_in_variables(sim, tmp_path):
    with sim(2) as gpus:
        for value in NONSENSE:
            for name in ("COLUMNS", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_STEP_GPUS", "LULL_LEASE"):
                for command in (["status"], ["status", "--visible"], ["run", "--", "true"], ["pick", "--no-lease"]):
                    done = gpus.lull(*command, env={name: value})
                    assert done.returncode in (0, 2, 125), (name, value, command, done.returncode, done.stderr)
                    assert done.stderr.count("\n") <= 2, (name, value, command, done.stderr)
        for name in ("LULL_SIM", "LULL_DEV", "LULL_NVML", "LULL_LEASES"):
            for value in NONSENSE:
                done = gpus.lull("status", env={name: value}, cwd=tmp_path)
                assert done.returncode in (0, 125), (name, value, done.returncode, done.stderr)


CELLS = NONSENSE + ["-0", "1e400", "0x1p3", "1,5", '"', "٣"]


@pytest.mark.parametrize("value", CELLS)
def test_numbers_in_traces(run_lull, tmp_path, value):
    """A cell that is no number is unknown, a row that has no time is said: none of them makes a GPU idle."""
    path = tmp_path / "trace.csv"
    for column in range(3):
        rows = []
        for i in range(60):
            row = [f"2026-01-01T00:00:{i:02}Z", "0", "90"]
            if i >= 10:
                row[column] = value
            rows.append(",".join(row))
        path.write_text("time,gpu,util_percent\n" + "\n".join(rows) + "\n")
        done = run_lull("replay", path, "--idle", "util < 5 for 10s", "--json")
        assert done.returncode in (0, 125), (column, value, done.returncode, done.stderr)
        if done.returncode == 0 and not (column == 2 and value in ("0", " 5", "5 ", "1.5", "-0")):
            assert json.loads(done.stdout)["totals"]["ended"] == 0, (column, value)


@pytest.mark.parametrize("header", ["time:{}", "time=ts:{}", "util=load:{}", "gpu={}", "time={},gpu={},util={}"])
def test_numbers_in_columns(run_lull, trace, header):
    for value in NONSENSE:
        done = run_lull("replay", trace, "--idle", "util < 5", f"--columns={header.replace('{}', value)}")
        assert done.returncode in (2, 125), (value, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr


DROP_INS = {
    "gpu_idle_timeout": ["-t", "-s", "-n", "-d"],
    "gpu_sentinel": ["--arm_duration", "--arm_threshold", "--kill_duration", "--kill_threshold", "--gpu_devices"],
    "gpuselect": ["-u", "-m", "-c", "-p", "-d"],
}


@pytest.mark.parametrize("program", DROP_INS)
def test_numbers_of_drop_ins(sim, program):
    """As their originals read them (argparse: status 2), and what those would choke on later is refused at once."""
    with sim(1) as gpus:
        for option in DROP_INS[program]:
            for value in ("nan", "inf", "1e-400", "99999999999999999999", "0x10", "", "5x", "9223372036854775807s"):
                if value in ("nan", "inf", "1e-400", "99999999999999999999") and option.endswith("threshold"):
                    continue  # numbers to Python: the original takes them
                tail = ["true"] if program == "gpu_idle_timeout" else []
                done = subprocess.run([str(build_dir() / program), option, value, *tail], env=gpus.env, timeout=LIMIT,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True)
                if value == "99999999999999999999" and program == "gpu_sentinel":  # a whole number to argparse
                    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
                    continue
                if value == "99999999999999999999" and program == "gpuselect":  # Python's integers have no end
                    assert done.returncode == (1 if option in ("-c", "-d") else 0), done.stderr
                    continue
                if value == "1e-400" and program == "gpu_idle_timeout" and option in ("-t", "-s"):  # 0 to Python: too low
                    assert done.returncode == 1 and "must be greater than 0" in done.stderr, done.stderr
                    continue
                assert done.returncode == 2, (program, option, value, done.returncode, done.stderr)
                assert "argument" in done.stderr.splitlines()[-1], done.stderr
