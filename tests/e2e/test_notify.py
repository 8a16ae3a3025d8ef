"""`notify` as the services take it: local servers that refuse what the real ones refuse, addresses that stay secret."""
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest
from conftest import wait_until

QUICK = ["--every", "50ms", "--idle", "util < 1 for 500ms"]
LOCAL = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def slack(headers, body):
    """https://api.slack.com/messaging/webhooks: JSON with a text; else "invalid_payload" or "no_text"."""
    message = json.loads(body)
    assert headers["Content-Type"].startswith("application/json") and isinstance(message.get("text"), str)
    assert message["text"] and len(message["text"]) <= 40000 and "<!" not in message["text"]
    return 200, message["text"]


def discord(headers, body):
    """Execute Webhook: `content` of 1 to 2000 characters; answers 204 with nothing."""
    message = json.loads(body)
    assert headers["Content-Type"] == "application/json" and 0 < len(message["content"]) <= 2000
    assert set(message) <= {"content", "username", "avatar_url", "tts", "embeds", "allowed_mentions"}
    return 204, message["content"]


def teams(headers, body):
    """A workflow's "When a Teams webhook request is received": a message with adaptive cards; answers 202."""
    message = json.loads(body)
    assert message["type"] == "message" and len(body) < 28 * 1024
    (card,) = message["attachments"]
    assert card["contentType"] == "application/vnd.microsoft.card.adaptive"
    content = card["content"]
    assert content["type"] == "AdaptiveCard" and re.fullmatch(r"1\.\d", content["version"])
    assert content["$schema"] == "http://adaptivecards.io/schemas/adaptive-card.json"
    for block in content["body"]:
        assert block["type"] == "TextBlock" and block["text"]
    return 202, "\n".join(block["text"] for block in content["body"])


def ntfy(headers, body):
    """POST to a topic: the body is the message, at most 4096 bytes; title in a header."""
    assert headers["Title"] and len(body) <= 4096
    return 200, headers["Title"] + "\n" + body.decode()


def webhook(headers, body):
    assert headers["Content-Type"] == "application/json"
    facts = json.loads(body)
    assert facts["host"] == socket.gethostname() and "next" in facts, facts
    # Nobody can be asked for more time here: what helps is said instead.
    assert facts["keep"] is None and "calls off what has not begun; `kill " in facts["more_time"], facts
    return 200, facts["headline"]


class Server:
    """Answers 400 to what `service` does not take, and first with these statuses."""

    def __init__(self, service, first=(), retry_after=None):
        self.heard, self.refused, self.statuses = [], [], list(first)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                early = outer.statuses.pop(0) if outer.statuses else None
                try:
                    status, text = service(self.headers, body)
                    if early is None:
                        outer.heard.append((self.path, text))
                except Exception as error:
                    status = 400
                    outer.refused.append((repr(error), body))
                self.send_response(early or status)
                if early and retry_after is not None:
                    self.send_header("Retry-After", str(retry_after))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/B0/SECRET"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def address_file(tmp_path, url):
    file = tmp_path / "address"
    file.write_text(url + "\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("service", [slack, discord, teams, ntfy, webhook], ids=lambda one: one.__name__)
def test_each_service_takes_it(sim, tmp_path, service):
    with sim(1) as gpus, Server(service) as server:
        file = address_file(tmp_path, server.url)
        done = gpus.lull("watch", *QUICK, "--do", f"notify={service.__name__}:file:{file}", env=LOCAL)
        assert done.returncode == 0 and not server.refused, (done.stderr, server.refused)
        ((path, text),) = server.heard
        assert path.endswith("/SECRET") and "util < 1 for 500ms" in text.replace("&lt;", "<")
        assert service == webhook or "more time: work on the GPUs calls off what has not begun; `kill " in text
        assert "SECRET" not in done.stderr


def test_address_from_settings_and_variable(sim, tmp_path):
    with sim(1) as gpus, Server(slack) as server:
        settings = tmp_path / "lull.toml"
        settings.write_text(f'[notify]\nto = "slack"\naddress_file = "{address_file(tmp_path, server.url)}"\n')
        settings.chmod(0o600)
        done = gpus.lull("watch", *QUICK, "--do", "notify", env={**LOCAL, "LULL_CONFIG": str(settings)})
        assert done.returncode == 0 and len(server.heard) == 1, done.stderr
        env = {**LOCAL, "LULL_NOTIFY_ADDRESS": server.url, "LULL_NOTIFY_TO": "slack"}
        done = gpus.lull("watch", *QUICK, "--do", "notify", env=env)
        assert done.returncode == 0 and len(server.heard) == 2, done.stderr
        done = gpus.lull("watch", *QUICK, "--do", "notify")
        assert done.returncode == 2 and "address_file" in done.stderr


def test_address_is_on_no_command_line_and_in_no_log(sim, tmp_path, programs):
    """What curl was started with, and what lull said while the address was wrong."""
    with sim(1) as gpus:
        seen = tmp_path / "seen"
        programs.add("curl", f"tr '\\0' ' ' < /proc/$$/cmdline > {seen}; env >> {seen}; "
                             "echo 'curl: (6) http://127.0.0.1/SECRET is no good' >&2; exit 6")
        file = address_file(tmp_path, "http://127.0.0.1/SECRET")
        done = gpus.lull("watch", *QUICK, "--do", f"notify=slack:file:{file}", "--log-format", "json",
                         env={"PATH": programs.path})
        assert done.returncode == 125 and "SECRET" not in done.stderr and "is no good" in done.stderr
        assert "SECRET" not in seen.read_text() and "--config -" in seen.read_text()
        done = gpus.lull("watch", *QUICK, "--do", "notify=http://127.0.0.1/SECRET", env={"PATH": programs.path})
        assert "SECRET" not in done.stderr and "every user can read it" in done.stderr


def test_retried_as_asked_and_as_the_server_asks(sim, tmp_path):
    with sim(1) as gpus, Server(webhook, first=[503, 429], retry_after=1) as server:
        file = address_file(tmp_path, server.url)
        done = gpus.lull("watch", *QUICK, "--retry", "2", "--retry-after", "25s", "--do", f"notify=file:{file}", env=LOCAL)
        assert done.returncode == 0 and len(server.heard) == 1, done.stderr
    with sim(1) as gpus, Server(webhook, first=[503, 503]) as server:
        file = address_file(tmp_path, server.url)
        done = gpus.lull("watch", *QUICK, "--retry", "1", "--retry-after", "1s", "--do", f"notify=file:{file}", env=LOCAL)
        assert done.returncode == 125 and not server.heard and "503" in done.stderr and "SECRET" not in done.stderr


def test_a_server_that_says_no_is_told_and_nothing_waits_for_it(sim, tmp_path):
    def never(*_):
        raise ValueError("no")
    with sim(1) as gpus, Server(never) as server:
        log = tmp_path / "log"
        file = address_file(tmp_path, server.url)
        done = gpus.lull("watch", *QUICK, "--do", f"notify=file:{file}", "--do", f"exec=echo x > {log}", env=LOCAL)
        assert done.returncode == 125 and "400" in done.stderr and log.read_text() == "x\n"
        assert len(server.refused) == 1


def test_facts_of_a_large_machine_arrive_whole(sim, tmp_path):
    with sim(64) as gpus, Server(webhook) as server:
        loads = [gpus.start_lull("sim", "load", "--gpu", str(i), "--util", "0") for i in range(4)]
        wait_until(lambda: all(gpus.holds(one.pid) for one in loads))
        file = address_file(tmp_path, server.url)
        done = gpus.lull("watch", *QUICK, "--do", f"notify=file:{file}", env=LOCAL)
        assert done.returncode == 0 and len(server.heard) == 1 and not server.refused, done.stderr
