"""Many picks at once beside many watchers: what of it is lost, who is kept waiting, how long it takes.

Every job locks a file for each GPU it was given, so two jobs on one GPU are seen by the kernel, and says so when it was
given more or fewer than it asked for. All of it is bounded: so many processes, and so many seconds.
"""
import contextlib
import os
import random
import signal
import statistics
import subprocess
import time

MARK = "LULL_TEST_STORM"  # in the environment of picks: whatever has it was started by one

# $1: folder, $2: number, $3: seconds, $4: GPUs
JOB = r"""
IFS=,; n=3
for gpu in $CUDA_VISIBLE_DEVICES; do
  eval "exec $n>>$1/gpu.$gpu"; flock -n $n || echo "$2 $gpu" >>$1/clashes
  n=$((n + 1))
done
[ $n = $(($4 + 3)) ] || echo "$2 $CUDA_VISIBLE_DEVICES" >>$1/wrong
IFS=' ' read up idle </proc/uptime
echo $2 $up >>$1/served
exec sleep $3
"""


class Storm:
    def __init__(self, lull, env, folder, seed, limit):
        self.lull, self.env, self.folder = lull, env, str(folder)
        self.random = random.Random(seed)
        self.end = time.monotonic() + limit
        self.watchers, self.judges, self.recorders, self.picks = [], [], [], []
        self.place_of = {}  # by pid
        self.began = []  # by number: seconds since the machine was started, as the jobs say when they are served
        self.available = []  # memory, in GiB, while we wait

    def left(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the storm did not end in time")
        return left

    def start(self, *command, **more):
        return subprocess.Popen([str(word) for word in command], env={**self.env, **more}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def watch(self, count):
        """A quarter each waits for a GPU that gets hot, judges each GPU, judges each job, and writes down what it sees."""
        for number in range(count):
            if number % 4 == 0:
                self.watchers.append(self.start(self.lull, "watch", "--every", "1s", "--idle", "any(temp) > 85 for 2 samples",
                                                "--do", "exit=7"))
            elif number % 4 == 1:
                self.recorders.append(self.start(self.lull, "record", "--every", "1s", "-o", self.trace(len(self.recorders))))
            else:
                self.judges.append(self.start(self.lull, "watch", "--per", ("gpu", "job")[number % 2], "--every", "1s", "--idle",
                                              "util < 5 for 1h", "--do", "end"))

    def trace(self, number):
        return f"{self.folder}/trace{number}.csv"

    def traces(self):
        return all(os.path.exists(self.trace(number)) for number in range(len(self.recorders)))

    def pick(self, count, sizes=(1,), longest=0.02, command=None):
        """Starts them one after the other without waiting for any; `command` stands for `lull pick`, for a rival."""
        self.available.append(memory_available())
        for number in range(count):
            size = 0 if command else self.random.choice(sizes)
            how = command(number) if command else [self.lull, "pick", "--wait", "-q", "-n", size, "--"]
            seconds = f"{self.random.uniform(0, longest):.4f}"
            self.began.append(time.clock_gettime(time.CLOCK_BOOTTIME))
            self.picks.append(self.start(*how, "sh", "-c", JOB, "job", self.folder, number, seconds, size,
                                         **{MARK: self.folder}))

    def kill_some(self, share):
        """Wherever they are: on their way, in line, or at work. Which ones."""
        killed = set()
        for number, process in enumerate(self.picks):
            if self.random.random() < share and process.poll() is None:
                process.send_signal(signal.SIGKILL)
                killed.add(number)
        return killed

    def wait(self):
        """The picks that failed, with what they said. Who came into the line after whom is noted meanwhile."""
        while any(process.poll() is None for process in self.picks):
            self.note_places()
            self.available.append(memory_available())
            time.sleep(min(0.02, self.left()))
        failed = {}
        for number, process in enumerate(self.picks):
            said = process.communicate(timeout=self.left())[1]
            if process.returncode != 0:
                failed[number] = (process.returncode, said.decode(errors="replace"))
        return failed

    def note_places(self):
        """A ticket is named ticket.UID.PID.numberN, and the number grows with each that comes."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.env["LULL_LEASES"]):
                if name.startswith("ticket."):
                    _, _, pid, number, *_ = name.split(".")
                    self.place_of[int(pid)] = int(number.removeprefix("number"))

    def lines(self, name):
        with contextlib.suppress(FileNotFoundError), open(f"{self.folder}/{name}") as file:
            return file.read().splitlines()
        return []

    def served(self):
        return [int(line.split()[0]) for line in self.lines("served")]

    def waits(self):
        """The longest and the median, in seconds: from the start of a pick to that of its job."""
        times = [float(up) - self.began[int(number)] for number, up in map(str.split, self.lines("served"))]
        return max(times, default=0), statistics.median(times or [0])

    def memory(self):
        """GiB that all of it took at most, and whoever else works on this machine."""
        return max(0, self.available[0] - min(self.available))

    def left_behind(self, patience=10):
        """Files in the lease folder, and whatever a pick has started. A lease holder tidies up in a moment."""
        end = time.monotonic() + patience
        while True:
            left = os.listdir(self.env["LULL_LEASES"]) + processes_of(f"{MARK}={self.folder}")
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def places_lost(self):
        """How many who came into the line after it were served before the unluckiest, as a share of all."""
        places = [self.place_of[self.picks[number].pid] for number in self.served()
                  if self.picks[number].pid in self.place_of]
        overtaken = (sum(earlier > place for earlier in places[:turn]) for turn, place in enumerate(places))
        return max(overtaken, default=0) / max(1, len(self.picks))

    def longest_gap(self):
        """Seconds between two samples of a recorder."""
        longest = 0
        for number in range(len(self.recorders)):
            times = sorted({line.split(",")[0] for line in self.lines(f"trace{number}.csv")[1:]})
            seconds = [seconds_of(one) for one in times]
            longest = max([longest, *(b - a for a, b in zip(seconds, seconds[1:]))])
        return longest

    def fired(self):
        """Each watcher's status, after the GPUs got hot; the others are ended."""
        for process in self.judges + self.recorders:
            process.terminate()
        return [process.wait(timeout=self.left()) for process in self.watching()]

    def watching(self):
        return self.watchers + self.judges + self.recorders

    def close(self):
        for process in self.picks + self.watching():
            if process.poll() is None:
                process.kill()
            process.communicate()


def memory_available():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 2**20


def processes_of(variable):
    """Those with this in their environment, with their names; the dead have none."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file, open(f"/proc/{pid}/comm") as name:
            if variable.encode() in file.read().split(b"\0"):
                found.append(f"{name.read().strip()} {pid}")
    return found


def seconds_of(stamp):
    """Of a day: 2026-11-17T21:23:29.145Z."""
    hours, minutes, seconds = stamp[11:].rstrip("Z").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
