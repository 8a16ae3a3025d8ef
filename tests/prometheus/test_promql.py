"""`lull check --promql` on a real Prometheus: never yes before lull says so, and at most three intervals later.

Random rules, random series with scrape phases, jitter and lost scrapes. LULL_CASES says how many rules a test tries,
LULL_TEST_SEED which ones (printed by a failure).
"""
import csv
import json
import os
import random
import subprocess
import time

import pytest

from learner import Learner
from server import SETTLED
from waiting import LIMIT

CASES = int(os.environ.get("LULL_CASES", "6"))
SEED = int(os.environ.get("LULL_TEST_SEED", "1"))
HOURS = 4
DCGM = {"util_percent": ("DCGM_FI_DEV_GPU_UTIL", 1), "power_watts": ("DCGM_FI_DEV_POWER_USAGE", 1),
        "power_limit_watts": ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1),
        "mem_used_bytes": ("DCGM_FI_DEV_FB_USED", 1 / 1048576)}
LULL = {"util_percent": ("lull_gpu_utilization_ratio", 0.01), "power_watts": ("lull_gpu_power_watts", 1),
        "power_limit_watts": ("lull_gpu_power_limit_watts", 1), "mem_used_bytes": ("lull_gpu_memory_used_bytes", 1),
        "effort": ("lull_gpu_effort_ratio", 0.01), "learned": ("lull_gpu_learned_seconds", 1),
        "idle_power": ("lull_gpu_idle_power_watts", 1)}


class Fleet:
    """Samples of GPUs: rows for lull, series for Prometheus. `hostile`: with all that exporters get wrong."""

    def __init__(self, seed, interval, hostile, jobs):
        self.random = random.Random(seed)
        self.interval, self.hostile, self.jobs = interval, hostile, jobs
        self.end = int(time.time()) - SETTLED
        self.start = self.end - HOURS * 3600
        self.rows = []  # host, gpu, job, user, time, {field: value}
        gpus = 4
        self.phases = {"n1": self.random.uniform(0, interval), "n2": self.random.uniform(0, interval)}
        for host in self.phases:
            times = self.scrapes(host)
            for gpu in range(gpus):
                for at, values, job in self.gpu(times, host, gpu):
                    self.rows.append((host, gpu, job, f"u{gpu % 2}" if job else "", at, values))
        self.rows.sort(key=lambda row: row[4])

    def scrapes(self, host):
        """When the exporter of a host was read."""
        at, times = self.start + self.phases[host], []
        while at < self.end:
            draw = self.random.random()
            if draw < 0.01:
                at += self.interval  # one is lost
            elif draw < 0.016:
                at += self.interval * self.random.randint(2, 12)
            jitter = max(-1, min(1, self.random.gauss(0, 0.2))) * self.interval / 30
            times.append(round(at + jitter, 3))
            if self.hostile and draw > 0.995:
                times.append(round(at + self.random.uniform(1.5, 12) * self.interval / 30, 3))
            at += self.interval
        return sorted(set(times))

    def gpu(self, times, host, gpu):
        """Stretches of work and of none, a stretch of jobs after the other."""
        idle, left, job, until = True, 0, "", 0
        for number, at in enumerate(times):
            if left == 0:
                idle, left = not idle, self.random.choice([1, 2, 5, 12, 30, 45])
            left -= 1
            if self.jobs and number >= until:
                # Two GPUs of each host have one job; what follows is another.
                job = f"{host}{10 * (1 + number // 160) + gpu // 2}" if self.jobs == "shared" else f"{host}{gpu}at{number}"
                until = number + (160 if self.jobs == "shared" else self.random.randint(60, 200))
            hurried = number + 1 < len(times) and times[number + 1] - at < self.interval / 2
            flicker = self.random.random() < (0.5 if hurried else 0.003)  # a step must not hide what the next one covers
            works = idle == flicker
            util = self.random.choice([3, 40, 80, 97, 100]) if works else self.random.choice([0, 0, 0, 0.5])
            power = self.random.choice([70, 130, 300]) if works else self.random.choice([55, 60, 65])
            values = {"util_percent": util, "power_watts": power, "power_limit_watts": 400,
                      "mem_used_bytes": 1048576 * self.random.choice([512, 20000])}
            if self.hostile:
                draw = self.random.random()
                if draw < 0.004:
                    values["util_percent"] = self.random.choice(["NaN", -1, 250])
                elif draw < 0.008:
                    del values[self.random.choice(list(values))]
                elif draw < 0.012:
                    continue
            yield at, values, job

    def troubles(self):
        """{host: spans of time in which a query may say no where lull says yes}: two or three scrapes in a row are lost (more of
        them break a streak for both), two are at almost one time, or a GPU has no sample or a wrong one at the others' time."""
        samples = {}
        for host, gpu, _, _, at, values in self.rows:
            whole = set(values) == set(DCGM) and values["util_percent"] not in ("NaN", -1, 250)
            samples.setdefault(host, {}).setdefault(at, []).append(whole)
        spans = {}
        for host, by_time in samples.items():
            times = sorted(by_time)
            apart = [(a, b, (b - a) / self.interval) for a, b in zip(times, times[1:])]
            spans[host] = [(a, b) for a, b, intervals in apart if intervals < 0.5 or 2.2 < intervals < 4.8]
            spans[host] += [(at, at) for at in times if len(by_time[at]) < max(map(len, by_time.values())) or not all(by_time[at])]
        return spans

    def write(self, folder):
        """A file for each host: in one file lull gives the samples of all hosts common times."""
        return [self.write_host(folder / f"{host}.csv", host) for host in self.phases]

    def write_host(self, path, only):
        with open(path, "w", newline="") as out:
            write = csv.writer(out)
            write.writerow(["time", "host", "gpu", "uuid", *(["job", "users"] if self.jobs else []), *DCGM])
            for host, gpu, job, user, at, values in (row for row in self.rows if row[0] == only):
                write.writerow([f"{at:.3f}", host, gpu, f"GPU-{host}-{gpu}", *([job, user] if self.jobs else []),
                                *(values.get(field, "") for field in DCGM)])
        return path

    def metrics(self, names):
        series, learners = {}, {}
        for host, gpu, job, user, at, values in self.rows:
            if names is LULL:  # what `lull serve` would say by what it has seen
                seen = (float(values.get(field, "nan")) for field in ("util_percent", "power_watts", "power_limit_watts"))
                values = {**values, **learners.setdefault((host, gpu), Learner()).sample(at, *seen)}
            dcgm = {"Hostname": host, "gpu": str(gpu), "UUID": f"GPU-{host}-{gpu}"}
            labels = {**dcgm, **({"hpc_job": job, "user": user} if job else {})}
            if names is LULL:
                labels = {"instance": f"{host}:9836", "gpu": str(gpu), "uuid": f"GPU-{host}-{gpu}"}
                if job:
                    key = ("lull_gpu_job_info", tuple({**labels, "job_id": job, "user": user}.items()))
                    series.setdefault(key, []).append((at, 1))
            for field, value in values.items():
                name, scale = names[field]
                series.setdefault((name, tuple(labels.items())), []).append(
                    (at, value if value == "NaN" else value * scale))
        made = {}
        for (name, labels), samples in series.items():
            made.setdefault(name, []).append((dict(labels), samples))
        return made


class Rules:
    """Random rules that can be translated."""

    def __init__(self, seed, several, learned):
        self.random = random.Random(seed)
        self.several, self.learned = several, learned

    def comparison(self, over):
        if self.learned and self.random.random() < 0.4:
            signal, limit = self.random.choice([("effort", "45"), ("effort", "95"), ("learned", "10m"), ("idle_power", "58W"),
                                                ("power", "idle+3W"), ("power", "idle+20W")])
            choice = self.random.choice(["", "any", "all"]) if over else ""
            compare = self.random.choice(["<", "<", "<=", ">", ">="])
            return f"{choice}({signal}) {compare} {limit}" if choice else f"{signal} {compare} {limit}"
        signal, limit = self.random.choice([("util", "1"), ("util", "60"), ("power", "68W"), ("power", "20%"),
                                            ("power", "50%"), ("mem_used", "1GiB"), ("util", "0")])
        compare = self.random.choice(["<", "<", "<", "<=", ">", ">=", *(["==", "!="] if limit == "0" else [])])
        choice = self.random.choice(["", "", "any", "mean", "max", "min", "all"]) if over else ""
        return f"{choice}({signal}) {compare} {limit}" if choice else f"{signal} {compare} {limit}"

    def condition(self, depth, over):
        draw = self.random.random()
        if depth == 0 or draw < 0.35:
            return self.comparison(over)
        if draw < 0.45:
            return f"not ({self.condition(depth - 1, over)})"
        if draw < 0.55 and over:
            return f"{self.random.choice(['any', 'all'])}({self.condition(depth - 1, False)} or {self.comparison(False)})"
        word = self.random.choice(["and", "or"])
        return f"({self.condition(depth - 1, over)}) {word} ({self.condition(depth - 1, over)})"

    def one(self, interval):
        seconds = self.random.choice([4, 8, 10, 17, 20]) * interval + self.random.choice([0, 0, 0, 7])
        return f"({self.condition(2, self.several)}) for {seconds}s"


def firings(lull, paths, rule, per):
    """{who: (from, until) of each streak that lull fires for}."""
    found = {}
    for path in paths:
        done = subprocess.run([lull, "replay", path, "--per", per, "--idle", rule, "--json", "--verbose"],
                              capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        for event in json.loads(done.stdout)["events"]:
            who = event["gpu"].split("/")[-1] if per == "job" else event["gpu"]
            found.setdefault(who, []).append((event["at_seconds"], event["at_seconds"] + event["after_seconds"]))
    return found


def answers(server, lull, fleet, rule, per, names):
    """{who: the moments at which the query is true}, every half an interval."""
    command = [lull, "check", rule, "--promql", "--per", per, "--interval", f"{fleet.interval}s", "--metrics",
               "dcgm" if names is DCGM else "lull"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    offset = fleet.random.uniform(0, fleet.interval)
    found = {}
    answer = server.ask("query_range", query=done.stdout, start=fleet.start + offset, end=fleet.end,
                        step=fleet.interval / 2)
    for series in answer["result"]:
        labels = series["metric"]
        host = labels.get("Hostname") or labels.get("instance", "").split(":")[0]
        who = labels.get("hpc_job") or labels.get("job_id") if per == "job" else host
        who = f"{who}/{labels['gpu']}" if per == "gpu" else who
        found.setdefault(who, []).extend(float(at) for at, _ in series["values"])
    return found, done.stdout


def compare(server, lull, fleet, paths, per, names, count, seed):
    """How many firings there were, how many of them were timed, how many answers, and the latest; each claim is checked.
    Of at least so many rules, and of more while none has fired."""
    rules, fired, timed, met, late = Rules(seed, per != "gpu", names is LULL), 0, 0, 0, 0.0
    troubles = fleet.troubles()
    for tried in range(max(count, 20)):
        if tried >= count and timed and met:
            break
        rule = rules.one(fleet.interval)
        length = int(rule.rpartition(" ")[2].removesuffix("s"))
        lulls = firings(lull, paths, rule, per)
        proms, query = answers(server, lull, fleet, rule, per, names)
        told = f"seed {seed}, {rule}, per {per}:\n{query}"
        # Never early: at each yes, lull has fired for a streak that goes on to the newest sample.
        for who, moments in proms.items():
            for at in moments:
                assert any(begin <= at <= end + 1.6 * fleet.interval for begin, end in lulls.get(who, [])), (
                    f"early at {at} for {who}: {lulls.get(who)}; {told}")
        met += sum(map(len, proms.values()))
        fired += sum(map(len, lulls.values()))
        for who, streaks in lulls.items():
            for begin, end in streaks:
                if end - begin < 3.2 * fleet.interval or begin + 4 * fleet.interval > fleet.end:
                    continue
                first, last = begin - length - 4 * fleet.interval, begin + 4 * fleet.interval
                if any(a <= last and b >= first for a, b in troubles[who[:2]]):
                    continue
                timed += 1
                after = [at - begin for at in proms.get(who, []) if at >= begin]
                assert after and min(after) <= 3.05 * fleet.interval, f"late for {who} at {begin}: {after[:1]}; {told}"
                late = max(late, min(after))
    return fired, timed, met, late


@pytest.mark.parametrize("per, names, jobs, hostile", [
    ("gpu", DCGM, None, False), ("gpu", DCGM, None, True), ("gpu", LULL, None, False),
    ("host", DCGM, None, False), ("host", LULL, None, True),
    ("job", DCGM, "own", False), ("job", DCGM, "own", True), ("job", LULL, "own", False), ("job", DCGM, "shared", False),
    ("job", DCGM, "shared", True), ("job", LULL, "shared", True),
])
def test_a_query_is_never_early_and_hardly_late(prometheus, lull, tmp_path, per, names, jobs, hostile):
    fleet = Fleet(SEED, 30 if SEED % 2 else 15, hostile, jobs)
    server = prometheus(fleet.metrics(names))
    fired, timed, met, late = compare(server, lull, fleet, fleet.write(tmp_path), per, names, CASES, SEED)
    assert timed > 0 and met > 0, "nothing was compared"
    print(f"{per}: {fired} firings, {timed} of them timed, {met} answers, at most {late:.0f} s late")


@pytest.mark.parametrize("naive", ["max_over_time(DCGM_FI_DEV_GPU_UTIL[10m]) < 1"])
def test_the_usual_query_is_early(prometheus, lull, tmp_path, naive):
    """What the comparison is worth: it finds the faults of what people write."""
    fleet = Fleet(SEED, 30, False, None)
    server = prometheus(fleet.metrics(DCGM))
    lulls = firings(lull, fleet.write(tmp_path), "util < 1 for 10m", "gpu")
    early = 0
    for series in server.ask("query_range", query=naive, start=fleet.start, end=fleet.end, step=30)["result"]:
        who = f"{series['metric']['Hostname']}/{series['metric']['gpu']}"
        early += sum(not any(begin <= float(at) <= end + 48 for begin, end in lulls.get(who, []))
                     for at, _ in series["values"])
    assert early > 10
