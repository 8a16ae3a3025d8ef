"""A machine of simulated GPUs on which a test runs scripts, each in a Python of its own.

    from machine import machine

    def test_something(machine):
        gpus = machine("2xT4")
        done = gpus.python("from gpuselect import gpuselect; print(gpuselect())")
"""
import json
import os
import subprocess
import sys

import pytest
from conftest import BUILD, LIMIT
from waiting import read_until  # noqa: F401

import lull


class Machine(lull.Simulation):
    def __enter__(self):
        super().__enter__()
        self.started = []
        return self

    def close(self):
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        self.started = []
        super().close()

    def _options(self, options):
        env = {**os.environ, "PYTHONPATH": str(BUILD / "python"), **options.pop("env", {})}
        return {"env": env, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}

    def run(self, *command, **options):
        return subprocess.run([str(word) for word in command], timeout=LIMIT,
                              **self._options({"stdin": subprocess.DEVNULL, **options}))

    def python(self, *words, **options):
        """`python3 -c TEXT`, or `python3 WORDS` where there are several."""
        return self.run(sys.executable, *(["-c", *words] if len(words) == 1 else words), **options)

    def lull(self, *words):
        return self.run(BUILD / "lull", *words)

    def start(self, *words, **options):
        """The same as python(), but it runs on; its stdin is a pipe."""
        command = [sys.executable, *(["-c", *words] if len(words) == 1 else map(str, words))]
        self.started.append(subprocess.Popen(command, **self._options({"stdin": subprocess.PIPE, **options})))
        return self.started[-1]

    def show(self):
        return json.loads(self.lull("sim", "show", "--json").stdout)


@pytest.fixture
def machine():
    """Makes them: machine(4), machine("2x3090,1xT4"), machine(scenario=FILE). They are gone after the test."""
    running = []

    def make(gpus=None, **options):
        running.append(Machine(gpus, **options).__enter__())
        return running[-1]

    yield make
    for one in reversed(running):
        one.close()
