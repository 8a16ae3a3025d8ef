"""A real Prometheus on loopback, in a folder of its own, filled with the past by promtool."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from waiting import LIMIT, wait_until

SETTLED = 4 * 3600  # what is older than this is in no block that a running Prometheus still writes


def why_not():
    """Why none can be started here; None: it can."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)}" if missing else None


def openmetrics(path, metrics):
    """{name: [(labels, [(time, value), …]), …]}: the samples of a metric together, as promtool wants them."""
    with open(path, "w") as out:
        for name, series in metrics.items():
            out.write(f"# TYPE {name} gauge\n")
            for labels, samples in series:
                names = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
                out.writelines(f"{name}{{{names}}} {value} {at:.3f}\n" for at, value in samples)
        out.write("# EOF\n")


class Prometheus:
    def __init__(self, metrics, options=(), config="global: {scrape_interval: 1h}\n"):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-prometheus-"))
        self.process = None
        try:
            if metrics:
                text = self.folder / "metrics.om"
                openmetrics(text, metrics)
                subprocess.run(["promtool", "tsdb", "create-blocks-from", "--max-block-duration=168h", "openmetrics", text,
                                self.folder / "data"], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT * 5)
                text.unlink()
            (self.folder / "prometheus.yml").write_text(config)
            self._start(options)
        except BaseException:
            self.close()
            raise

    def _start(self, options):
        for _ in range(5):  # another process may take the port between the look and the start
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
                 "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
                 *options], stdout=subprocess.DEVNULL, stderr=open(self.folder / "log", "w"))
            if wait_until(lambda: self.process.poll() is not None or self._ready(), what="a Prometheus") and \
                    self.process.poll() is None:
                return
        raise AssertionError((self.folder / "log").read_text())

    def _ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=LIMIT) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        """What the API answers; a refusal is said with its reason."""
        body = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", body, timeout=LIMIT * 5) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait(timeout=LIMIT)
        shutil.rmtree(self.folder, ignore_errors=True)
