"""What the real clients write, replayed as it is: each value must be the one that was set."""
import json

from lull_e2e import wait_until


def stretch(here, log, rule, *more):
    """What replay found, and for each GPU in how many stretches the rule held: of samples that are all alike, one or none."""
    done = here.gpus.lull("replay", log, "--idle", rule, "--json", "--verbose", *more)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bad_rows"] == 0
    return found, [gpu["stretches"] for gpu in found["per_gpu"]]


def two_cards(clients):
    here = clients("2xT4")
    here.gpus.set(0, util=45, power=50, mem_used="2GiB", temp=61)
    here.gpus.set(1, util=0, power=12, mem_used="0", temp=33)
    return here


EXACT = "util >= 45 and util <= 45 and power >= 50 and power <= 50 and temp >= 61 and temp <= 61"


def test_dmon_with_and_without_times(clients, tmp_path):
    here = two_cards(clients)
    for name, options, every in (("dt", ["-o", "DT"], []), ("t", ["-o", "T"], []), ("plain", [], ["--every", "1s"])):
        log = tmp_path / name
        log.write_text(here.smi("dmon", "-s", "pucm", "-c", "2", *options))
        found, stretches = stretch(here, log, EXACT + " and mem_used >= 2GiB and mem_used <= 2GiB", *every)
        assert (found["samples"], stretches) == (4, [1, 0]), name


def test_the_plain_table_appended(clients, tmp_path):
    here = two_cards(clients)
    log = tmp_path / "log"
    first = here.smi()
    log.write_text(first)
    # Its time has whole seconds: a table of the same second would be the same sample twice.
    wait_until(lambda: (again := here.smi()).splitlines()[0] != first.splitlines()[0] and log.write_text(first + again),
               what="the next second")
    found, stretches = stretch(here, log, EXACT)
    assert (found["samples"], stretches) == (4, [1, 0])


def test_the_query_without_an_index(clients, tmp_path):
    here = two_cards(clients)
    following = here.follow("--query-gpu=timestamp,utilization.gpu,power.draw,temperature.gpu", "--format=csv", "-lms", "200")
    lines = [following.stdout.readline() for _ in range(1 + 2 * 4)]
    following.terminate()
    following.wait(20)
    log = tmp_path / "log"
    log.write_text("".join(lines))
    found, stretches = stretch(here, log, EXACT)
    assert (found["gpus"], found["samples"], stretches) == (2, 8, [1, 0])


def test_pmon(clients, tmp_path):
    here = two_cards(clients)
    here.gpus.load(0, 45, "2GiB")
    log = tmp_path / "log"
    log.write_text(here.smi("pmon", "-s", "um", "-c", "1", "-o", "DT"))
    found, stretches = stretch(here, log, "procs >= 1 and mem_used >= 2GiB and mem_used <= 2GiB")
    assert (found["samples"], stretches) == (2, [1, 0])
    assert stretch(here, log, "procs < 1")[1] == [0, 1]
    assert stretch(here, log, "util < 5")[1] == [0, 0], "what pmon does not show is not idle"


def test_gpustat_appended(clients, tmp_path):
    here = two_cards(clients)
    log = tmp_path / "log"
    log.write_text(here.gpustat("--json") + here.gpustat("--json"))
    found, stretches = stretch(here, log, EXACT)
    assert (found["gpus"], found["samples"], stretches) == (2, 4, [1, 0])
