"""lull pick and status on machines as they are: no memory, no utilisation, containers, desktops, MPS, sleep."""
import json
import re

import pytest
from conftest import wait_until


def judged(gpus, *options):
    """By what the one GPU was found idle, and what was made allowance for."""
    done = gpus.lull("pick", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    gpu, = json.loads(done.stdout)["gpus"]
    return gpu["judged_by"], gpu["note"]


def refused(gpus, *options):
    done = gpus.lull("pick", *options)
    assert done.returncode == 125, (done.stdout, done.stderr)
    return done.stderr


def status(gpus):
    done = gpus.lull("status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["gpus"]


@pytest.mark.parametrize("quirk", ["unified_memory", "memory_total_zero"])
def test_unified_memory(sim, quirk):
    gpus = sim(text=f'[[gpu]]\nmodel = "A100"\n{quirk} = true\n')
    assert judged(gpus) == (["util", "procs"], None)
    row, = status(gpus)
    assert row["memory_estimated"] is True and row["mem_used_bytes"] == 0
    gpus.load(0, util=0, mem="2GiB")
    assert "1 process" in refused(gpus)


def test_a_gpu_under_wsl_needs_a_second_sign_of_rest(sim):
    """Neither utilisation nor process lists: memory alone does not tell, that the card rests is the second witness."""
    gpus = sim(text='wsl = true\n[[gpu]]\nmodel = "3090"\npstate = 8\n')
    assert judged(gpus) == (["mem_used", "pstate"], None)
    gpus.set(0, pstate=2)
    assert "cannot be judged without util (not supported), procs (not supported): mem_used alone does not tell" in \
        refused(gpus)
    assert judged(gpus, "--util", "any", "--mem-util", "any", "--procs", "any") == (["mem_used"], None)


def test_reserved_memory_does_not_count(sim):
    gpus = sim(text='[[gpu]]\nmodel = "A100"\nreserved = "900MiB"\n')
    assert judged(gpus)[0] == ["util", "procs", "mem_used"]


def test_another_container_that_the_driver_does_not_show(sim):
    gpus = sim(text='process_view = "own_namespace"\n[[gpu]]\nmodel = "A100"\n'
                    '[[process]]\ngpu = 0\npid = 4000000\nmem = "600MiB"\nutil = 0\n')
    said = refused(gpus)
    assert "600.0 MiB in use; wanted at most 64.0 MiB in use" in said, said
    refused(gpus, "--mine-ok")


def test_a_desktop_may_draw(sim):
    gpus = sim(text='[[gpu]]\nmodel = "3090"\ndisplay = true\n')
    wait_until(lambda: status(gpus)[0]["processes"], what="the X server")
    assert judged(gpus) == (["util", "procs", "mem_used"], "a desktop draws on it")
    assert status(gpus)[0]["display_active"] is True
    assert "util" in refused(gpus, "--util", "0")
    gpus.load(0, util=50, mem="2GiB")
    assert "(a desktop draws on it)" in refused(gpus)


def test_scrubbing_after_the_card_was_woken_is_looked_at_twice(sim):
    gpus = sim(text='[[gpu]]\nmodel = "A100"\nattach = "50ms"\nscrub = "500ms"\n')
    assert judged(gpus)[0] == ["util", "procs", "mem_used"]


def test_work_after_the_card_was_woken_is_still_work(sim):
    gpus = sim(text='[[gpu]]\nmodel = "A100"\nattach = "50ms"\nscrub = "500ms"\n'
                    '[[gpu.timeline]]\nat = "0s"\nutil = 30\n')
    assert re.search(r"(29\.\d|30(\.\d)?) % util", refused(gpus))  # a mean


def test_an_mps_server_counts_through_its_clients(sim):
    gpus = sim(text='[[gpu]]\nmodel = "A100"\n[[process]]\ngpu = 0\ntype = "mps-server"\n')
    row, = wait_until(lambda: [row for row in status(gpus) if row["processes"]], what="the server")
    assert [process["mps_server"] for process in row["processes"]] == [True]
    assert judged(gpus)[0] == ["util", "procs", "mem_used"]


def test_a_sleeping_card_is_left_asleep_by_status(sim):
    gpus = sim(text='[[gpu]]\nmodel = "4090"\nasleep = true\n[[gpu]]\nmodel = "4090"\n')
    for _ in range(3):
        first, second = status(gpus)
        assert first["asleep"] is True and first["util_percent"] == 0 and first["error"] is None
        assert first["mem_used_bytes"] is None and first["unknown"]["mem_used_bytes"] == "asleep"
        assert second["asleep"] is False
    assert "asleep" in gpus.lull("status").stdout.splitlines()[1]
