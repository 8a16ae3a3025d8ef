#!/usr/bin/env python3
"""Whether a healthy card is ever called idle, and an idle one always found (coverage_bench.cc).

Cards that work a tenth of the time in bursts of any period from 0.1 s to 60 s, sampled every 0.1 s to 60 s,
with a ring of 10 s, none, or one that runs dry; the sensor is late and starved at times. Simulated time.
"""
import os

from figures import BUILD, finish, numbers, report

found = numbers([os.path.join(BUILD, "coverage_bench")])
cases = int(found["cases"])
report("false idles", f"{found['false_idles']:.0f} of {cases}", "0", found["false_idles"] == 0,
       f"{found['unknown_working'] * 100:.2f} % of their samples without util")
report("idle cards that were not found", f"{found['missed_idles']:.0f} of {cases}", "0", found["missed_idles"] == 0,
       f"{found['unknown_idle'] * 100:.2f} % of their samples without util")
finish()
