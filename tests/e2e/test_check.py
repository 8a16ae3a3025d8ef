"""`lull check`: a rule explained, and what the machine gives of it."""
import json
import subprocess

from conftest import LIMIT, clean_environment, wait_until


def check(lull, *args, **env):
    return subprocess.run([lull, "check", *args], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1", **env))


def test_explains_without_a_driver(lull):
    done = check(lull, "util < 5 and mem_used > 1GiB for 30m")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "rule   util < 5 and mem_used > 1GiB for 30m"
    assert "without a break for 30m." in lines[1]
    assert any(line.startswith("here") and "/nonexistent/libnvidia-ml.so.1" in line for line in lines)
    assert not any(line.startswith("now") for line in lines)


def test_a_bad_rule_is_pointed_at(lull):
    done = check(lull, "utli < 5 for 20m")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == ("lull: bad rule, column 1: there is no signal 'utli'; did you mean 'util'?\n"
                           "  utli < 5 for 20m\n"
                           "  ^~~~\n")


def test_no_rule_is_a_usage_error(lull):
    done = check(lull)
    assert done.returncode == 2 and "RULE" in done.stderr and done.stdout == ""


def test_says_what_the_machine_gives(sim):
    with sim("2xH100,1xT4") as gpus:
        gpus.set(0, util=60)
        gpus.fault(1, "no-util")

        def looked():
            done = gpus.lull("check", "util < 5 and fan < 50 and cpu < 2 for 5m", "--json")
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        found = wait_until(lambda: (f := looked())["signals"][0]["gpus"][0]["util_percent"] == 60 and f, what="util 60")
        util, fan, cpu = found["signals"]
        assert [g["readable"] for g in util["gpus"]] == [True, False, True]
        assert util["readable"] is False and util["gpus"][1]["util_percent"] is None
        assert util["gpus"][1]["unknown"] == "not supported"
        assert fan["gpus"][2]["readable"] is False  # a T4 has no fan
        assert cpu["of"] == "job" and cpu["readable"] is None
        assert found["for_seconds"] == 300 and found["for_samples"] is None
        assert found["now"] is False  # GPU 0 works: that is known, whatever GPU 1 does
        text = gpus.lull("check", "util < 5 for 5m").stdout
        assert "2 of 3 GPUs" in text and "not GPU 1 (not supported)" in text
        only = gpus.lull("check", "util < 5", "--gpus", "2").stdout
        assert "1 of 1 GPU" in only and "the condition holds" in only and "no 'for'" in only
        bad = gpus.lull("check", "util < 5", "--gpus", "9")
        assert bad.returncode == 2 and len(bad.stderr.splitlines()) == 1
