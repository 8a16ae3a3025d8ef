#!/usr/bin/env python3
"""What must grow with the job and not with the machine: looking at a job, and at who holds a GPU's device file."""
import os
import resource
import statistics

from figures import BUILD, finish, numbers, report

GROWTH = os.path.join(BUILD, "growth_bench")


def look(processes, turns):
    runs = [numbers([GROWTH, "look", str(processes), "300"]) for _ in range(turns)]
    ratio = statistics.median(run["beside_us"] / run["alone_us"] for run in runs)
    alone, beside = (statistics.median(run[name] for run in runs) for name in ("alone_us", "beside_us"))
    report(f"a sample of a job with a rule on cpu, beside {processes} other processes over alone", f"{ratio:.2f} x",
           "at most 2 x", ratio <= 2, f"({beside:.0f} us, {alone:.0f} us)")


def openers(descriptors):
    found = numbers([GROWTH, "openers", str(descriptors)])
    looks = found["first_looks"]
    report(f"who holds a device file, {descriptors} descriptors: known after", f"{looks:.0f} looks of 1 s",
           "at most 2", looks <= 2, f"(CPU of the first pass {found['first_ms']:.0f} ms)")
    later = found["later_ms"]
    report("    and later, while their owners sleep", f"{later:.1f} ms", "at most 50 ms", later <= 50)


def main():
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    for descriptors in (1_000, 20_000, 100_000):  # first: an init takes its time with ten thousand that have ended
        openers(descriptors)
    for processes, turns in ((1_000, 5), (10_000, 3)):
        if most != resource.RLIM_INFINITY and most < 2 * processes:
            print(f"skip    beside {processes} processes: this user may have {most}")
        else:
            look(processes, turns)
    finish()


main()
