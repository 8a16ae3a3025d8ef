"""Days as `lull record --history` leaves them, made up: what tests of the history share."""
import datetime
import random
import subprocess

HEADER = "time,gpu,uuid,util_percent,mem_used_bytes,power_watts,power_limit_watts,procs,host,users,pids,command,lease,job\n"
PEOPLE = {"alice": "python3 train.py --config large.yaml", "bob": "python3 finetune.py", "carol": "jupyter-lab",
          "dave": "vllm serve", "erin": "python3 sweep.py"}


def write_days(folder, days=30, gpus=8, every=60, people=None, until=None, seed=1):
    """GPUs that people use for some hours, then hold idle or give back; one that is not seen for a day. The rows end now."""
    people = people or PEOPLE
    dice = random.Random(seed)
    until = until or datetime.datetime.now(datetime.timezone.utc)
    folder.mkdir(parents=True, exist_ok=True)
    state = [{"left": 0} for _ in range(gpus)]
    names = list(people)
    for day in range(days - 1, -1, -1):
        date = (until - datetime.timedelta(days=day)).date()
        start = datetime.datetime(date.year, date.month, date.day, tzinfo=datetime.timezone.utc)
        rows = [HEADER]
        for second in range(0, 86400, every):
            at = start + datetime.timedelta(seconds=second)
            if at > until:
                break
            time = at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            for gpu, one in enumerate(state):
                one["left"] -= every
                if one["left"] <= 0:
                    kind = dice.choices(["busy", "idle", "free"], [5, 2, 3 if at.weekday() < 5 else 8])[0]
                    if kind == "free":
                        one.update(user=None)
                    elif not one.get("user") or (kind == "busy" and dice.random() < 0.6):  # else the same job works again
                        one.update(user=dice.choice(names[:1 + gpu % len(names)]), pid=dice.randrange(1000, 30000))
                    one.update(kind=kind, left=dice.expovariate(1 / (30000 if kind == "busy" else 20000)))
                if gpu == 1 and day == 12:
                    continue
                user = one["user"]
                util = dice.randrange(70, 100) if user and one["kind"] == "busy" else 0
                who = f"{user},{one['pid']},{csv_cell(people[user])},," if user else "none,none,,,"
                rows.append(f"{time},{gpu},GPU-{gpu:08}-0000-0000-0000-000000000000,{util},{60000000000 if user else 4000000},"
                            f"{65 + util * 5},700,{int(bool(user))},node1,{who}\n")
        packed = subprocess.run(["zstd", "-qc"], input="".join(rows).encode(), capture_output=True, check=True).stdout
        (folder / f"{date}.csv.zst").write_bytes(packed)
    return folder


def csv_cell(text):
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
