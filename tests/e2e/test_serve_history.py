"""`lull serve --history`: what was recorded, over HTTP, without a request or a sample that waits for it."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import LIMIT, read_until, wait_until
from test_serve import Served, serve  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded_days import write_days  # noqa: E402

UTC = {"TZ": "UTC"}


def made(server, path):
    """What the server makes in another process, once it is there."""
    def look():
        status, _, body = server.get(path)
        return (status, json.loads(body)) if status != 202 else None
    return wait_until(look, what=path)


def test_the_history_is_that_of_lull_report(sim, serve, tmp_path):  # noqa: F811
    folder = write_days(tmp_path / "history", days=5, gpus=3, every=300)
    with sim(1) as gpus:
        server = serve(gpus, "--history", folder, env=UTC)
        status, body = made(server, "/api/history")
        assert status == 200
        report = json.loads(gpus.lull("report", str(folder), "--last", "30d", "--by-hour", "--json", env={**gpus.env, **UTC}).stdout)
        assert body["report"] == report
        hours = report["by_hour"]
        assert len(hours["gpus"]) == 3 and all(len(gpu["busy_percent"]) == hours["hours"] for gpu in hours["gpus"])
        totals = report["totals"]
        for name in ("busy", "idle", "free"):
            sum_of = sum(v or 0 for gpu in hours["gpus"] for v in gpu[f"{name}_percent"]) / 100
            judged = totals[f"{name}_hours"] + (totals["not_judged_hours"] if name == "busy" else 0)
            assert sum_of == pytest.approx(judged, abs=0.006 * 3 * hours["hours"])
        longest = report["longest_idle"]
        assert longest and all(a["seconds"] >= b["seconds"] for a, b in zip(longest, longest[1:]))
        assert {one["user"] for one in longest} <= set(hours["people"])


def test_the_policy_is_that_of_lull_replay(sim, serve, tmp_path):  # noqa: F811
    folder = write_days(tmp_path / "history", days=5, gpus=3, every=300)
    with sim(1) as gpus:
        server = serve(gpus, "--history", folder, env=UTC)
        status, body = made(server, "/api/policy")
        assert status == 200
        values = body["axes"][0]["values"]
        result = json.loads(gpus.lull("replay", str(folder), "--last", "30d", "--per", body["replay"]["per"], "--sweep", "for=" + ",".join(values),
                                      "--json", env={**gpus.env, **UTC}).stdout)
        assert body["replay"]["sweep"] == result["sweep"]
        assert body["replay"]["answer"] == result["answer"]


def test_without_a_folder_that_is_said(sim, serve, tmp_path):  # noqa: F811
    with sim(1) as gpus:
        server = serve(gpus)
        for path in ("/api/history", "/api/policy", "/api/recording"):
            status, _, body = server.get(path)
            assert status == 404 and "--history" in json.loads(body)["error"]


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "garbage"])
def test_a_folder_without_a_history_is_said_and_the_rest_goes_on(sim, serve, tmp_path, kind):  # noqa: F811
    folder = tmp_path / "history"
    if kind in ("empty", "garbage"):
        folder.mkdir()
    if kind == "file":
        folder.write_text("no folder")
    if kind == "garbage":
        (folder / "2026-11-01.csv.zst").write_bytes(os.urandom(10000))
        os.utime(folder / "2026-11-01.csv.zst", (1.79e9, 1.79e9))
    with sim(1) as gpus:
        server = serve(gpus, "--history", folder).up()
        for path in ("/api/history", "/api/policy"):
            status, body = made(server, path)
            assert status == 503 and body["error"], path
        assert made(server, "/api/recording")[1]["trouble"]
        assert server.json("/api/status")["gpus"]


def test_a_recorder_that_fails_is_said_in_the_log_and_over_http(sim, serve, tmp_path):  # noqa: F811
    folder = tmp_path / "history"
    with sim(1) as gpus:
        assert gpus.lull("record", "--history", str(folder), "--every", "50ms", "--for", "200ms").returncode == 0
        server = serve(gpus, "--history", folder)
        assert made(server, "/api/recording")[1]["trouble"] is None
        (folder / ".lock").write_text("failed\n1790000000000000000\n5000000000\nwrite x: No space left on device\n")
        said = read_until(server.process.stderr, "No space left on device")
        assert "recording failed 2026-09-21T14:13:20Z: " in said
        seen = wait_until(lambda: server.json("/api/recording") if server.json("/api/recording")["trouble"] else None)
        assert "No space left on device" in seen["trouble"] and seen["state"] == "failed"


def mounted(gpus, mount, *commands):
    """The commands beside each other in a mount namespace of their own. Skipped where that is not allowed."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    script = f"{mount} || exit 99; " + "".join(f"{command} & " for command in commands) + "wait"
    return gpus.start("unshare", "-m", "sh", "-c", script, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_is_said_in_both_logs_and_over_http(sim, tmp_path):
    """On a file system of 64 KiB, filled by the recorder itself."""
    folder = tmp_path / "history"
    folder.mkdir()
    with sim(4) as gpus:
        both = mounted(gpus, f"mount -t tmpfs -o size=64k none {folder}", f"{gpus.binary} record --history {folder} --every 20ms",
                       f"{gpus.binary} serve --listen unix:{tmp_path}/serve.sock --history {folder}")
        said = read_until(both.stderr, "No space left on device", times=2)
        assert "what was written before is whole" in said and "serve: history: recording failed" in said
        server = Served(both, f"unix:{tmp_path}/serve.sock")
        assert "No space left on device" in server.json("/api/recording")["trouble"]
        assert made(server, "/api/history")[0] == 200, "what was written can be read"


def age(folder):
    """The days there were written an hour ago."""
    for path in folder.glob("*.zst"):
        os.utime(path, (time.time() - 3600, time.time() - 3600))


def read_only(folder):
    return f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"


def test_a_read_only_folder_is_said_in_both_logs_and_over_http(sim, tmp_path):
    folder = write_days(tmp_path / "history", days=1, gpus=1, every=600)
    age(folder)
    with sim(1) as gpus:
        both = mounted(gpus, read_only(folder), f"{gpus.binary} record --history {folder}",
                       f"{gpus.binary} serve --listen unix:{tmp_path}/serve.sock --history {folder}")
        said = read_until(both.stderr, "ead-only file system", times=2)
        assert "nothing has been recorded since" in said
        seen = Served(both, f"unix:{tmp_path}/serve.sock").json("/api/recording")
        assert seen["read_only"] and seen["trouble"].endswith(": the folder is on a read-only file system")


def test_a_folder_that_only_the_server_may_not_write_to_is_no_trouble(sim, tmp_path):
    """As in a unit with ProtectSystem=strict: the recorder works elsewhere."""
    folder = tmp_path / "history"
    with sim(1) as gpus:
        recorder = gpus.start_lull("record", "--history", folder, "--every", "100ms")
        wait_until(lambda: list(folder.glob("*.zst")), what="the first row")
        other = mounted(gpus, read_only(folder), f"exec {gpus.binary} serve --listen unix:{tmp_path}/serve.sock --history {folder}")
        read_until(other.stderr, "serving on")
        seen = made(Served(other, f"unix:{tmp_path}/serve.sock"), "/api/recording")[1]
        assert recorder.poll() is None
        assert seen["read_only"] and seen["state"] == "recording" and seen["trouble"] is None


# As systemd's MemoryDenyWriteExecute=, by the kernel's own means.
NO_NEW_CODE = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0 or sys.exit(77); os.execv(sys.argv[1], sys.argv[1:])"


def test_recorder_and_server_run_without_memory_that_is_written_and_executed(sim, tmp_path):
    folder = tmp_path / "history"
    with sim(1) as gpus:
        def start(*words):
            return gpus.start(sys.executable, "-c", NO_NEW_CODE, gpus.binary, *words)
        recorder = start("record", "--history", folder, "--every", "100ms", "--for", "500ms")
        _, said = recorder.communicate(timeout=LIMIT)
        if recorder.returncode == 77:
            pytest.skip("this kernel does not deny it")
        assert recorder.returncode == 0 and " rows of 1 GPU in " in said, said
        server = start("serve", "--listen", f"unix:{tmp_path}/serve.sock", "--every", "100ms", "--history", folder)
        read_until(server.stderr, "serving on")
        served = Served(server, f"unix:{tmp_path}/serve.sock").up()
        assert made(served, "/api/history")[0] == 200


def test_a_day_without_rows_is_said(sim, serve, tmp_path):  # noqa: F811
    folder = tmp_path / "history"
    with sim(1) as gpus:
        assert gpus.lull("record", "--history", str(folder), "--every", "50ms", "--for", "200ms").returncode == 0
        age(folder)
        server = serve(gpus, "--history", folder)
        assert "nothing has been recorded since" in made(server, "/api/recording")[1]["trouble"]


def test_reading_the_history_delays_no_sample(sim, serve, tmp_path):  # noqa: F811
    """Asked for again and again while a month is read: the samples follow their grid, however long that takes."""
    folder = write_days(tmp_path / "history", days=20, gpus=8, every=60)
    with sim(2) as gpus:
        server = serve(gpus, "--history", folder, every="100ms").up()
        before = server.metrics()["lull_samples_total"]
        began = time.monotonic()
        assert server.get("/api/history")[0] == 202, "the first who asks does not wait"
        worst = 0
        while server.get("/api/history")[0] == 202:
            start = time.monotonic()
            assert server.get("/metrics")[0] == 200
            worst = max(worst, time.monotonic() - start)
            assert time.monotonic() - began < 4 * LIMIT  # it is read at the lowest priority
        took = time.monotonic() - began
        assert worst < max(1.0, took / 2), (worst, took)
        # What comes too late is what a machine with more to do than it can loses.
        assert server.metrics()["lull_samples_total"] - before >= int(0.7 * took / 0.1)


def test_the_reader_ends_with_the_server(sim, serve, tmp_path):  # noqa: F811
    folder = write_days(tmp_path / "history", days=20, gpus=8, every=60)
    with sim(1) as gpus:
        server = serve(gpus, "--history", folder)
        assert server.get("/api/history")[0] == 202
        server.process.kill()
        server.process.wait(LIMIT)

        def readers():
            found = []
            for process in pathlib.Path("/proc").iterdir():
                try:
                    if process.name.isdigit() and str(folder).encode() in (process / "cmdline").read_bytes() \
                            and (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                        found.append(process.name)
                except OSError:
                    pass
            return found
        wait_until(lambda: not readers(), what="the end of the reader")
