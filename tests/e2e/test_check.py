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


def test_a_time_is_the_default_rule_for_so_long(lull):
    assert check(lull, "2h").stdout.startswith("rule   util < 1 for 2h\n")


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


# -- as a query of Prometheus -------------------------------------------------------------------------
def test_a_rule_is_printed_as_a_query(lull):
    done = check(lull, "util < 1 for 30m", "--promql")
    assert done.returncode == 0 and done.stderr == ""
    assert "last_over_time(DCGM_FI_DEV_GPU_UTIL[80s])" in done.stdout and "[1855s:10s]" in done.stdout
    own = check(lull, "util < 1 for 30m", "--promql", "--metrics", "lull", "--interval", "15s", "--per", "host")
    assert "by (instance)" in own.stdout and "lull_gpu_utilization_ratio[40s]" in own.stdout
    pods = check(lull, "util < 1 for 30m", "--promql", "--per", "job", "--labels", "job=namespace+pod")
    assert '{namespace!="",pod!=""}' in pods.stdout
    named = check(lull, "idle", "--promql", "--alert", "GpuIdle")
    assert named.returncode == 0 and "- alert: 'GpuIdle'" in named.stdout


def test_what_is_no_query_is_refused_in_one_line(lull):
    for words, reason in [
            (["util < 1", "--promql"], "a rule without 'for' cannot be translated"),
            (["cpu < 2 for 5m", "--promql"], "'cpu' cannot be translated"),
            (["util < 1 for 5m", "--promql", "--per", "user"], "--per: 'user': gpu, job or host would be right"),
            (["util < 1 for 5m", "--promql", "--metrics", "smi"], "--metrics: 'smi': dcgm or lull would be right"),
            (["util < 1 for 5m", "--promql", "--interval", "0s"], "--interval"),
            (["util < 1 for 5m", "--promql", "--interval", "2h"], "1s to 1h would be right"),
            (["util < 1 for 5m", "--promql", "--per", "job", "--labels", "job=a-b"], "'a-b' is not the name of a label"),
            (["util < 1 for 5m", "--promql", "--per", "job", "--labels", "user=u"], "only job=LABEL"),
            (["util < 1 for 5m", "--promql", "--alert", ""], "--alert"),
            (["util < 1 for 5m", "--per", "job"], "go with --promql")]:
        done = check(lull, *words)
        assert done.returncode == 2 and done.stdout == "", words
        assert reason in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
