"""`lull replay prometheus:URL` and a server that fails: every day is asked for again, what is missing is said."""
import contextlib
import http.server
import json
import os
import pty
import subprocess
import threading
import time
import urllib.parse

import pytest

from conftest import clean_environment

DAY = 86400
START = 1790000000  # 2026-09-21 14:13:20 UTC


def answer(series):
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}},
                      separators=(",", ":")).encode()


def day_of(end):
    """A GPU with a job, idle for the second half of the day that ends then."""
    labels = {"Hostname": "n1", "gpu": "0", "UUID": "GPU-0", "hpc_job": "17", "user": "ada"}
    times = range(round(end) - DAY, round(end), 60)
    values = [[at, "0" if at > end - DAY / 2 else "90"] for at in times]
    return [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels}, "values": values}]


class StandIn(http.server.ThreadingHTTPServer):
    """Answers as Prometheus does; `fail(number, parameters)` may say how a request is refused: (status, body)."""
    daemon_threads = True

    def __init__(self, fail=lambda number, asked: None, body=day_of, behind=0):
        """`behind`: so many seconds is its clock behind."""
        self.asked, self.fail, self.body, self.headers_seen, self.behind = [], fail, body, [], behind
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"prometheus:http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = {key: value[0] for key, value in urllib.parse.parse_qs(text).items()}
        self.server.asked.append(asked)
        self.server.headers_seen.append(dict(self.headers))
        refused = self.server.fail(len(self.server.asked), asked)
        status, body = refused or (200, answer(self.server.body(float(asked.get("time", time.time())))))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp=None):
        return super().date_time_string(timestamp or time.time() - self.server.behind)

    def log_message(self, *_):
        pass


RANGE = ["--from", "2026-09-21T14:13:20Z", "--to", "2026-09-24T14:13:20Z"]


def test_days_are_asked_for_one_by_one_with_what_the_rule_needs(run_lull):
    with StandIn() as server:
        done = run_lull("replay", server.url, *RANGE, "--per", "job", "--idle", "util < 1 for 1h", "--json",
                        "--match", 'Hostname=~"n.*"')
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert [float(asked["time"]) for asked in server.asked] == [START + DAY * n - 0.001 for n in (1, 2, 3)]
        query = server.asked[0]["query"]
        assert query.endswith(',Hostname=~"n.*"}[86400000ms]')
        assert "dcgm_fi_dev_gpu_util|" in query and "power" not in query and "lull_gpu_job_info" in query
        assert all(headers.get("Accept-Encoding") == "identity" for headers in server.headers_seen)
        found = json.loads(done.stdout)
        assert [(end["job"], end["user"]) for end in found["ends"]] == [("17", "ada")]
        assert found["samples"] == 3 * DAY / 60


def test_a_day_that_fails_once_is_asked_for_again(run_lull):
    with StandIn(lambda number, asked: (503, b"busy") if number == 2 else None) as server:
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json")
        assert done.returncode == 0 and done.stderr == ""
        assert len(server.asked) == 4 and server.asked[1] == server.asked[2]
        assert json.loads(done.stdout)["samples"] == 3 * DAY / 60


def test_a_day_that_fails_for_good_is_a_gap_that_is_said(run_lull, tmp_path):
    second = START + 2 * DAY
    with StandIn(lambda _, asked: (500, b"broken disk") if float(asked["time"]) // 1 == second - 1 else None) as server:
        saved = tmp_path / "answers.json"
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json", "--save", saved)
        assert done.returncode == 0
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and "2026-09-22 14:13 to 2026-09-23 14:13 UTC, which is a gap: it answers broken disk" in lines[0]
        assert json.loads(done.stdout)["samples"] == 2 * DAY / 60
        assert len(saved.read_text().splitlines()) == 2  # nothing of the refusals
        again = run_lull("replay", saved, "--idle", "util < 1 for 1h", "--json")
        assert {**json.loads(again.stdout), "trace": 0} == {**json.loads(done.stdout), "trace": 0}
        assert saved.stat().st_mode & 0o077 == 0


def test_a_server_that_answers_no_day_is_a_failure(run_lull):
    refusal = b'{"status":"error","errorType":"bad_data","error":"parse error"}'
    with StandIn(lambda *_: (400, refusal)) as server:
        done = run_lull("report", server.url, "--last", "2d")
        assert done.returncode == 125 and done.stdout == ""
        assert "parse error" in done.stderr.splitlines()[-1]
    gone = run_lull("report", server.url, "--last", "1d")
    assert gone.returncode == 125 and "onnect" in gone.stderr.splitlines()[-1]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_is_refused_for_good_is_asked_once(run_lull, status):
    with StandIn(lambda *_: (status, b"no")) as server:
        done = run_lull("report", server.url, "--last", "30d")
        assert done.returncode == 125 and len(server.asked) == 1, done.stderr


def test_a_refusal_on_the_way_leaves_a_gap_up_to_the_end_that_is_said(run_lull):
    with StandIn(lambda number, asked: (401, b"expired") if number >= 2 else None) as server:
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json")
        assert done.returncode == 0 and len(server.asked) == 2
        assert "nothing from 2026-09-22 14:13 to 2026-09-24 14:13 UTC, which is a gap: it answers expired" in done.stderr


@pytest.mark.parametrize("broken", [429, 500, 502, 503])
def test_what_may_work_later_is_asked_again(run_lull, broken):
    with StandIn(lambda number, asked: (broken, b"busy") if number == 1 else None) as server:
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json")
        assert done.returncode == 0 and len(server.asked) == 4


@pytest.mark.parametrize("extra", [b',"warnings":["2 store APIs did not answer"]', b',"isPartial":true'])
def test_an_answer_that_is_not_whole_is_said(run_lull, extra):
    """Thanos says at the end, VictoriaMetrics at the beginning that it could not ask everybody."""
    def part(_, asked):
        whole = answer(day_of(float(asked["time"])))
        if b"isPartial" in extra:
            return 200, whole.replace(b'"status":"success"', b'"status":"success"' + extra)
        return 200, whole.removesuffix(b"}") + extra + b"}"
    with StandIn(part) as server:
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["samples"] == 3 * DAY / 60
        assert done.stderr.count("it does not have all of 2026-09-21 14:13 to 2026-09-22 14:13 UTC") == 1
        assert len(done.stderr.splitlines()) == 1


def test_a_server_with_a_limit_of_samples_is_asked_for_hours(run_lull):
    def limit(_, asked):
        length = int(asked["query"].rsplit("[", 1)[1].removesuffix("ms]"))
        if length > 3600_000:
            return 422, b'{"status":"error","error":"query processing would load too many samples into memory"}'

    def hour_of(end):
        series = day_of(START + DAY)[0]
        series["values"] = [point for point in series["values"] if end - 3600 <= point[0] <= end]
        return [series]

    with StandIn(limit, hour_of) as server:
        done = run_lull("replay", server.url, "--from", "2026-09-21T14:13:20Z", "--to", "2026-09-22T14:13:20Z", "--idle",
                        "util < 1 for 1h", "--json")
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert json.loads(done.stdout)["samples"] == DAY / 60 and len(server.asked) == 25


def test_an_answer_that_breaks_off_is_no_answer(run_lull):
    def cut(number, asked):
        return (200, b'{"status":"succ') if number == 1 else None
    with StandIn(cut) as server:
        done = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["samples"] == 3 * DAY / 60


def test_a_token_is_sent_and_shown_nowhere(run_lull, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with StandIn(lambda *_: (401, b"no")) as server:
        done = run_lull("replay", server.url.replace("http://", "http://me:hidden@"), *RANGE, "--token-file", token)
        assert done.returncode == 125
        assert "s3cret" not in done.stderr and "hidden" not in done.stderr
        assert server.headers_seen[0]["Authorization"] == "Bearer s3cret"
    token.write_text("two\nlines\n")
    bad = run_lull("replay", server.url, *RANGE, "--token-file", token)
    assert bad.returncode == 125 and "one line with the token would be right" in bad.stderr


def test_a_server_without_such_metrics_says_so(run_lull):
    with StandIn(body=lambda _: []) as server:
        done = run_lull("replay", server.url, *RANGE)
        assert done.returncode == 125
        assert "it has none of the metrics of GPUs that lull knows between 2026-09-21 14:13" in done.stderr


def test_labels_choose_the_job_or_are_refused(run_lull):
    with StandIn() as server:
        chosen = run_lull("replay", server.url, *RANGE, "--per", "job", "--idle", "util < 1 for 1h", "--json",
                          "--labels", "job=user")
        assert [end["job"] for end in json.loads(chosen.stdout)["ends"]] == ["ada"]
        wrong = run_lull("replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--labels", "job=hpc_jop")
        assert wrong.returncode == 125 and "--labels job=hpc_jop: no series has that label; did you mean 'hpc_job'?" in wrong.stderr


def test_a_pull_shows_how_far_it_is_on_a_terminal_only(lull):
    with StandIn(lambda *_: time.sleep(1)) as server:  # a short run draws none
        controller, terminal = pty.openpty()
        done = subprocess.run([lull, "replay", server.url, *RANGE, "--idle", "util < 1 for 1h", "--json"], stdout=subprocess.PIPE,
                              stderr=terminal, timeout=60, env=clean_environment())
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):
            while more := os.read(controller, 65536):
                shown += more
        os.close(controller)
        assert done.returncode == 0 and b"%" in shown and json.loads(done.stdout)["samples"] == 3 * DAY / 60
        assert shown.endswith(b"\r\x1b[K") or b"\x1b[K" in shown[-20:], shown[-100:]


def test_no_curl_is_said(run_lull, lull, tmp_path):
    with StandIn() as server:
        done = run_lull("replay", server.url, *RANGE, env={**os.environ, "PATH": str(tmp_path)})
        assert done.returncode == 125 and "this needs curl, which is not in PATH" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("words, reason", [
    (["prometheus:localhost:9090", "--last", "1d"], "prometheus:http://HOST:9090 would be right"),
    (["prometheus:http://x"], "--last 30d, or --from"),
    (["prometheus:http://x", "--to", "2026-11-01"], "--last 30d, or --from"),
    (["prometheus:http://x", "--last", "1d", "--to", "2026-11-01"], "--last"),
    (["prometheus:http://x", "--from", "yesterday"], "--from"),
    (["prometheus:http://x", "other.csv", "--last", "1d"], "by itself"),
    (["other.csv", "prometheus:http://x", "--last", "1d"], "by itself"),
    (["night.csv", "--match", "a=1"], "--match is for prometheus:URL"),
    (["night.csv", "--save", "x"], "--save is for prometheus:URL"),
])
def test_bad_words_are_refused_in_one_line(run_lull, words, reason):
    for command in ("replay", "report"):
        done = run_lull(command, *words)
        assert done.returncode == 2 and done.stdout == ""
        assert reason in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
