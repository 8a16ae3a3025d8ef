"""What watchers wrote into their logs: when each job's step fired and was done."""
import datetime
import json


def of(logs, node="*"):
    """Each line of all logs in the folder, or of one node's, in the order of time; "at" is in seconds."""
    found = []
    for path in logs.glob(node):
        for line in path.read_text().rpartition("\n")[0].splitlines():
            one = json.loads(line)
            one["at"] = datetime.datetime.fromisoformat(one["time"].replace("Z", "+00:00")).timestamp()
            one["node"] = path.name
            found.append(one)
    return sorted(found, key=lambda one: one["at"])


def says_no(logs, leader, node):
    """The leader has asked, and this node has said no."""
    return any(f"{node} says no" in one["message"] for one in of(logs, leader))


def acts(logs, node="*"):
    """(job, when it fired, when it was done) of each step that was done."""
    fired, done = {}, []
    for one in of(logs, node):
        job = int(one.get("job", "slurm:0").partition(":")[2] or 0)
        if one["event"] == "fire":
            fired[job] = one["at"]
        if one["event"] == "done" and one["message"].endswith(": done"):
            done.append((job, fired[job], one["at"]))
    return done


def troubles(logs):
    """What failed or was given up, which is not what was put off."""
    return [one["message"] for one in of(logs) if one["event"] == "failed" or "not all of it was done" in one["message"]]
