"""`lull replay` and `lull report` of a real Prometheus: the same figures as of the file that it saves, and as of a CSV
that holds the same samples."""
import csv
import datetime
import json
import random
import time

import pytest

from server import SETTLED

DAYS, GPUS, INTERVAL = 3, 8, 30
NAMES = {
    "dcgm": {"util_percent": ("DCGM_FI_DEV_GPU_UTIL", 1), "power_watts": ("DCGM_FI_DEV_POWER_USAGE", 1)},
    "nvidia_gpu_exporter": {"util_percent": ("nvidia_smi_utilization_gpu_ratio", 0.01),
                            "power_watts": ("nvidia_smi_power_draw_watts", 1)},
    "jobstats": {"util_percent": ("nvidia_gpu_duty_cycle", 1), "power_watts": ("nvidia_gpu_power_usage_milliwatts", 1000)},
    "lull": {"util_percent": ("lull_gpu_utilization_ratio", 0.01), "power_watts": ("lull_gpu_power_watts", 1)},
}
LABELS = {
    "dcgm": lambda gpu, job, user: {"Hostname": "n1", "gpu": gpu, "UUID": f"GPU-{gpu}", "hpc_job": job, "user": user},
    "nvidia_gpu_exporter": lambda gpu, job, user: {"instance": "n1", "uuid": f"GPU-{gpu}", "namespace": user, "pod": job},
    "jobstats": lambda gpu, job, user: {"instance": "n1", "minor_number": gpu, "uuid": f"GPU-{gpu}"},
    "lull": lambda gpu, job, user: {"instance": "n1", "gpu": gpu, "uuid": f"GPU-{gpu}"},
}


def samples(days):
    """(time, gpu, job, user, util, power): jobs one after the other, with idle ends and lost scrapes."""
    draw = random.Random(3)
    end = int(time.time()) - SETTLED
    start = end - days * 86400
    for gpu in range(GPUS):
        job, user, left, idle = 0, "", 0, 0
        for at in range(start, end, INTERVAL):
            if left == 0:
                job, user, left, idle = job + 1, draw.choice(["ada", "bob"]), draw.choice([200, 700, 1500]), draw.choice([0, 90, 400])
            left -= 1
            if draw.random() < 0.002:
                continue
            works = left >= idle
            yield at, str(gpu), f"{gpu}{job:03}", user, draw.choice([40, 90]) if works else 0, 300 if works else 60


def fill(kind, rows):
    """What the exporter of this kind would have given."""
    series = {}
    for at, gpu, job, user, util, power in rows:
        labels = LABELS[kind](gpu, job, user)
        for field, value in (("util_percent", util), ("power_watts", power)):
            name, scale = NAMES[kind][field]
            series.setdefault((name, tuple(labels.items())), []).append((at, value * scale))
        if kind == "jobstats":
            series.setdefault(("nvidia_gpu_jobId", tuple(labels.items())), []).append((at, int(job)))
        if kind == "lull":
            told = tuple({**labels, "job_id": job, "user": user}.items())
            series.setdefault(("lull_gpu_job_info", told), []).append((at, 1))
    metrics = {}
    for (name, labels), points in series.items():
        metrics.setdefault(name, []).append((dict(labels), points))
    return metrics


def figures(done):
    """Without what differs by nature: the file's name and size, and rows that have half of a sample each."""
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key not in ("trace", "bytes", "duplicates", "out_of_order")}


def moment(at):
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("kind, days", [("dcgm", DAYS), ("nvidia_gpu_exporter", 1), ("jobstats", 1), ("lull", 1)])
def test_history_has_the_figures_of_its_samples(prometheus, run_lull, tmp_path, kind, days):
    rows = list(samples(days))
    server = prometheus(fill(kind, rows))
    table = tmp_path / "samples.csv"
    with open(table, "w", newline="") as out:
        write = csv.writer(out)
        users = kind in ("dcgm", "lull")
        write.writerow(["time", "host", *([] if kind == "nvidia_gpu_exporter" else ["gpu"]), "uuid", "job",
                        *(["users"] if users else []), "util_percent", "power_watts"])
        for at, gpu, job, user, util, power in rows:
            named = f"{user}/{job}" if kind == "nvidia_gpu_exporter" else str(int(job)) if kind == "jobstats" else job
            write.writerow([at, "n1", *([] if kind == "nvidia_gpu_exporter" else [gpu]), f"GPU-{gpu}", named,
                            *([user] if users else []), util, power])
    first, last = min(row[0] for row in rows), max(row[0] for row in rows)
    when = ["--from", moment(first), "--to", moment(last + 60)]
    source = f"prometheus:{server.url}"
    rule = ["--idle", "util < 1 and power < 80W for 30m", "--json"]
    for words in (["replay", *rule, "--per", "job"], ["replay", *rule, "--sweep", "for=10m,1h", "--verbose"],
                  ["report", "--json"]):
        saved = tmp_path / "answers.json"
        asked = run_lull(words[0], source, *when, "--save", saved, *words[1:])
        assert asked.stderr == ""
        assert figures(asked) == figures(run_lull(words[0], saved, *words[1:]))
        assert figures(asked) == figures(run_lull(words[0], table, *words[1:]))
        unsaved = run_lull(words[0], source, *when, *words[1:])
        assert unsaved.stdout == asked.stdout
        assert figures(asked)["ends" if words[0] == "replay" else "uses"]
