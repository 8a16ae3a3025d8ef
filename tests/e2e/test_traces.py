"""What people have lying about, given to `lull replay` as it is. Every value of each format is checked by the fixtures'
own test (src/trace/fixtures_test.cc); here is what a user sees."""
import bz2
import json
import lzma
import subprocess

import pytest

from conftest import LIMIT, ROOT, build_dir, clean_environment

LULL = str(build_dir() / "lull")
TRACES = ROOT / "tests" / "fixtures" / "traces"


def lull(*arguments, **options):
    return subprocess.run([LULL, *map(str, arguments)], capture_output=True, timeout=LIMIT, env=clean_environment(),
                          **options)


def replay(*arguments, **options):
    return lull("replay", *arguments, "--idle", "util < 5 for 5s", "--json", "--verbose", **options)


def figures(*arguments, **options):
    done = replay(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    del found["bytes"]  # of the file, packed or not
    return found


def test_samples_without_times_are_as_far_apart_as_every_says():
    found = figures(TRACES / "dmon.txt", "--every", "5s")
    assert (found["from"], found["to"], found["gpus"], found["samples"]) == ("0s", "15s", 2, 7)
    assert found["per_gpu"][1]["idle_hours"] * 3600 == pytest.approx(10)
    refused = replay(TRACES / "dmon.txt")
    assert refused.returncode == 125 and refused.stdout == b""
    assert b"nvidia-smi dmon without times" in refused.stderr and b"--every 1s" in refused.stderr
    assert refused.stderr.count(b"\n") == 1


@pytest.mark.parametrize("packer, ending", [(lzma, "xz"), (bz2, "bz2")])
def test_packed_is_the_same(tmp_path, packer, ending):
    plain = (TRACES / "grafana-wide.csv").read_bytes()
    first, rest = plain[:100], plain[100:]
    packed = tmp_path / f"night.csv.{ending}"
    packed.write_bytes(packer.compress(first) + packer.compress(rest))  # two streams are one file
    assert figures(packed) == figures(TRACES / "grafana-wide.csv")
    assert figures("-", input=packed.read_bytes()) == figures(TRACES / "grafana-wide.csv")
    (tmp_path / "cut").write_bytes(packer.compress(plain * 2000)[:-20])
    cut = replay(tmp_path / "cut")
    assert b"breaks off" in cut.stderr or b"damaged" in cut.stderr
    (tmp_path / "rot").write_bytes(packed.read_bytes()[:40] + b"\0" * 40 + packed.read_bytes()[80:])
    assert replay(tmp_path / "rot").returncode in (0, 125)


def test_recording_to_what_is_only_read_is_refused(tmp_path):
    done = lull("record", "--for", "1s", "-o", tmp_path / "night.csv.xz")
    assert done.returncode == 2
    assert b".gz or .zst" in done.stderr
    assert not (tmp_path / "night.csv.xz").exists()


@pytest.mark.parametrize("start, says", [
    (b"PK\x03\x04junk", b"Excel"), (b"PAR1junk", b"duckdb"), (b"\x7fELF\x02", b"a program"), (b"\0\1\2\3", b"binary"),
    (b'[{"time": 1}]', b"jq -c"), (b"<html><body>", b"an HTML page"),
    (b"==============NVSMI LOG==============\n", b"--query-gpu"), (b"\xff\xfet\0i\0", b"iconv"),
    (b"NVIDIA-SMI has failed because it couldn't communicate\n", b"an error of nvidia-smi"),
    (b"hello world\nhow are you\n", b"no column is the time")])
def test_what_cannot_be_read_is_named_in_one_line(start, says):
    done = replay("-", input=start)
    assert done.returncode == 125 and done.stdout == b""
    assert says in done.stderr, done.stderr
    assert done.stderr.startswith(b"lull: standard input: ") and done.stderr.count(b"\n") == 1


def test_columns_for_a_format_that_has_its_own_are_refused():
    done = replay(TRACES / "dmon.txt", "--every", "1s", "--columns", "util=sm")
    assert done.returncode == 125
    assert b"this is nvidia-smi dmon, whose columns are known" in done.stderr


def test_gpus_by_their_place_and_that_it_is_said():
    done = replay(TRACES / "by-place.csv")
    assert json.loads(done.stdout)["gpus"] == 3
    assert b"each tick has 3 rows, taken as GPUs 0 to 2" in done.stderr
    assert b"5 ticks had other than 3 rows" in done.stderr
    together = replay(TRACES / "by-place.csv", "--per", "all")
    assert together.returncode == 0, together.stderr


def test_the_zone_is_kept():
    done = lull("replay", TRACES / "grafana-rows.csv", "--idle", "util < 5", "--json")
    assert json.loads(done.stdout)["from"] == "2018-12-12T12:00:00.000+11:00"


def test_its_own_status_appended(sim, tmp_path):
    """One document on many lines, and then those of --watch, on one each."""
    here = sim("2xT4")
    here.set(0, util=45, power=50)
    log = tmp_path / "status.json"
    log.write_text(here.lull("status", "--json").stdout)
    watching = here.start_lull("status", "--watch", "100ms", "--json")
    lines = [watching.stdout.readline() for _ in range(3)]
    watching.terminate()
    watching.wait(LIMIT)
    with open(log, "a") as out:
        out.writelines(lines)
    found = figures(log)
    assert (found["gpus"], found["samples"], found["bad_rows"]) == (2, 8, 0)
    assert found["per_gpu"][0]["idle_hours"] == 0
