"""The documents of the predecessors, command by command: each is run as it is written, with shorter times.

COMMANDS says for every command of the five documents which test runs it, or why nobody does. PROMISES does so for what
the documents say besides. docs/drop-ins.md lists what is different on purpose.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import LIMIT, ROOT, alive, build_dir, lines_in, read_until, wait_until
from test_fill import gone, holding
from test_gpu_idle_timeout import STAMP, det, stamp_of, uuids  # noqa: F401
from test_gpu_mon import LINE

PYTHON = "/usr/bin/python3"  # what the documents call python

# (document, command): the test, or why there is none.
COMMANDS = {
    ("gpu_idle_timeout, launching", "python gpu_idle_timeout.py --help"): "test_help_of_the_launching_form",
    ("gpu_idle_timeout, launching", "python gpu_idle_timeout.py -t 50 -s 6 -n 5 -d 3 -x grep foo"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "wget …, tar zxvf …, cp …, diff …"): "other programs",
    ("gpu_idle_timeout, launching", "entrypoint: python3 ./gpu_idle_timeout.py -t 20 -s 3 -n 7 -d 1 -x python3 -m "
     "determined.launch.torch_distributed python3 train.py"): "test_entrypoint_of_determined",
    ("gpu_idle_timeout, launching", "det e create …, det e logs …"): "other programs",
    ("gpu_idle_timeout, in a task", "python gpu_idle_timeout.py --help"): "test_help_of_the_task_form",
    ("gpu_idle_timeout, in a task", "startup_hook: python /path/to/sharedfs/gpu_idle_timeout.py -t 50 -s 30 -n 6 -d 2 "
     "-a any -x &"): "test_startup_hook",
    ("gpu_mon", "./gpu_mon.py, the first configuration"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "./gpu_mon.py, the second configuration"): "test_gpu_mon_a_program_for_each_gpu",
    ("gpu_sentinel", "pip install gpu_sentinel"): "it would install the original; docs/install.md has ours",
    ("gpu_sentinel", "gpu_sentinel --help"): "test_help_of_gpu_sentinel",
    ("gpu_sentinel", "the options"): "test_options_of_gpu_sentinel",
    ("gpu_sentinel", "the API example"): "tests/python/test_predecessor_documents.py",
    ("gpuselect", "pip install -r requirements.txt"): "tests/python/test_wheel.py",
    ("gpuselect", "the Python examples"): "tests/python/test_predecessor_documents.py",
    ("gpuselect", "gpuselect -- python3 my_scripy.py arg1 arg2"): "test_gpuselect_runs_commands",
    ("gpuselect", "gpuselect --count 1 --name 3090"): "test_gpuselect_prints_the_value",
    ("gpuselect", "gpuselect -- python foo.py"): "test_gpuselect_runs_commands",
    ("gpuselect", "gpuselect --count 2 -- python foo.py"): "test_gpuselect_runs_commands",
    ("gpuselect", "gpuselect --name A6000 -- python foo.py"): "test_gpuselect_runs_commands",
    ("gpuselect", "gpuselect --util 5 --mem_util 10 -- python foo.py"): "test_gpuselect_runs_commands",
    ("gpuselect", 'docker run --gpus \\"device=$(gpuselect --count 2 --name 3090)\\" …'): "test_gpuselect_in_a_docker_line",
}
# (document, sentence): the test, or the row of docs/drop-ins.md that says what is different. In the order of the documents:
# every sentence that says what the tool does, needs or returns.
PROMISES = {
    ("gpu_idle_timeout, launching", "drops below a threshhold for specified time window, the process will be killed"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "requires 'nvidia-smi' binary to be accessible in PATH"): "| nvidia-smi | must be in PATH | not needed |",
    ("gpu_idle_timeout, launching", "Must be greater than 0"): "tests/e2e/test_gpu_idle_timeout.py::test_bad_values_print_the_help_and_the_originals_error",
    ("gpu_idle_timeout, launching", "(default: 1), (default: 5), (default: 60), (default: 12), (default: False)"): "test_defaults_of_gpu_idle_timeout",
    ("gpu_idle_timeout, launching", "We launch the exec_command_and_args in a subprocess"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "wait SAMPLE_FREQ * DELAY_SAMPLES seconds before starting to monitor"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "record the GPU usage for all GPUs on the system"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "do not do any evaluation until NUM_SAMPLES samples have been collected"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "below THRESHHOLD_PERCENTAGE on *all* samples"): "test_one_sample_at_the_threshold_is_enough",
    ("gpu_idle_timeout, launching", "If so, we exit"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "grep foo, which will just hang indefinitely"): "test_grep_foo",
    ("gpu_idle_timeout, launching", "process still alive, maybe hung, killing."): "| the document's last line, `process still alive, maybe hung, killing.` |",
    ("gpu_idle_timeout, launching", "Copy your gpu_idle_timeout.py into your context directory"): "test_entrypoint_of_determined",
    ("gpu_idle_timeout, launching", "container failed with non-zero exit code: 1"): "test_entrypoint_of_determined",
    ("gpu_idle_timeout, in a task", "drops below a threshhold for specified time window, the task will be killed"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "Must be either all or any (default: all)"): "tests/e2e/test_gpu_idle_timeout.py::test_bad_values_print_the_help_and_the_originals_error",
    ("gpu_idle_timeout, in a task", "We launch the watcher process to start monitoring GPU usage"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "wait SAMPLE_FREQ * DELAY_SAMPLES seconds before starting to monitor"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "until NUM_SAMPLES samples have been collected"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "below THRESHHOLD_PERCENTAGE on *any* or *all* GPUs. If so, the task is terminated"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "on *all* GPUs"): "tests/e2e/test_gpu_idle_timeout.py::test_task_with_all_waits_for_all",
    ("gpu_idle_timeout, in a task", "automatically launched by any determined task (notebook/shell)"): "test_startup_hook",
    ("gpu_idle_timeout, in a task", "save this script in a path that's accessible by the master and agent instances"): "test_startup_hook",
    ("gpu_mon", "Every N seconds it checks /dev/nvidiaX device file (using fuser tool)"): "| another process opens a GPU | noticed at the next interval with `fuser`",
    ("gpu_mon", "If GPU becomes idle, gpu_mon starts external program"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "stopped when device file will be accessed by other process"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "stop it's processes to avoid influence with somebody's work"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "Monitoring and reporting of gpu usage"): "tests/e2e/test_gpu_mon.py::test_what_is_told_at_every_interval",
    ("gpu_mon", "Don't have external libraries requirements"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "script need either run as root or fuser tool need to have suid bit"): "| not root | ",
    ("gpu_mon", "configuration file in ~/.config/gpu_mon.conf"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "from provided template in conf dir"): "| the template in its `conf` folder |",
    ("gpu_mon", "interval_seconds: how frequently perform GPU and tty checks"): "tests/e2e/test_gpu_mon.py::test_what_is_told_at_every_interval",
    ("gpu_mon", "It could be several such sections with 'gpu-' prefix"): "test_gpu_mon_several_gpu_sections",
    ("gpu_mon", "list of comma-separated gpu indices or ALL"): "test_gpu_mon_several_gpu_sections",
    ("gpu_mon", "list of programs which can access gpu and should be ignored"): "test_gpu_mon_several_gpu_sections",
    ("gpu_mon", "nvidia-smi command is ignored"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "log: If not specified, show on console"): "test_gpu_mon_without_a_log_shows_on_the_console",
    ("gpu_mon", "log: if specified to file, data will be appended"): "test_gpu_mon_a_program_for_each_gpu",
    ("gpu_mon", "if enabled and user is active and not in whitelist, all processes will be stopped"): "test_gpu_mon_whose_terminals_count",
    ("gpu_mon", "how long user should be inactive in tty to be ignored by checker"): "test_gpu_mon_whose_terminals_count",
    ("gpu_mon", "miner-run, which should occupy all GPUs"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "open any of GPUs, miner will be terminated"): "test_gpu_mon_one_program_for_all_gpus",
    ("gpu_mon", "allows you to preempt miners or individual GPUs"): "test_gpu_mon_a_program_for_each_gpu",
    ("gpu_mon", "proper CUDA_VISIBLE_DEVICE variable set"): "test_gpu_mon_a_program_for_each_gpu",
    ("gpu_sentinel", "trigger when GPU utilization drops below a certain amount for a period of time"): "test_options_of_gpu_sentinel",
    ("gpu_sentinel", "automatically shutdown or reboot the instance"): "tests/e2e/test_gpu_sentinel.py::test_shutdown_once",
    ("gpu_sentinel", "end its own process so you can do an action yourself"): "test_options_of_gpu_sentinel",
    ("gpu_sentinel", "two states, IDLE and ARMED"): "| the state before `ARMED` |",
    ("gpu_sentinel", "wait for the GPU to be above a certain utilization for a set amount of time"): "test_options_of_gpu_sentinel",
    ("gpu_sentinel", "it will only trigger once the GPU has been running for a while"): "tests/python/test_gpu_sentinel_states.py::test_idleness_before_it_was_armed_means_nothing",
    ("gpu_sentinel", "Once this condition is met, the kill_action will occur immediately"): "test_options_of_gpu_sentinel",
    ("gpu_sentinel", "Which GPU devices to average (empty for all)"): "tests/e2e/test_gpu_sentinel.py::test_mean_over_the_devices_named",
    ("gpu_sentinel", "the averaged GPU usage of the devices"): "tests/python/test_gpu_sentinel_package.py::test_mean_load_from_0_to_1",
    ("gpu_sentinel", "The sentinel operates on ticks, not seconds"): "tests/python/test_gpu_sentinel_states.py::test_arms_after_so_many_ticks_in_a_row_and_no_fewer",
    ("gpu_sentinel", "requires sudo permissions or sudo-less shutdown"): "tests/e2e/test_gpu_sentinel.py::test_right_to_power_off_is_checked_at_the_start",
    ("gpu_sentinel", "Currently only working on Linux"): "the same",
    ("gpuselect", "pick idle GPU(s) each time you run a script, updating the value of CUDA_VISIBLE_DEVICES"): "tests/python/test_predecessor_documents.py::test_examples_of_gpuselect",
    ("gpuselect", "enumerate all GPUs in the system through the NVML API"): "test_gpuselect_prints_the_value",
    ("gpuselect", "exclude any GPU with nonzero device or memory utilization"): "tests/python/test_predecessor_documents.py::test_what_gpuselect_excludes_by_default",
    ("gpuselect", "exclude any GPU with a nonzero process count"): "tests/python/test_predecessor_documents.py::test_what_gpuselect_excludes_by_default",
    ("gpuselect", "pick a single GPU at random from the remaining list"): "test_gpuselect_prints_the_value",
    ("gpuselect", "set CUDA_VISIBLE_DEVICES=n where n is the selected GPU's device ID"): "tests/python/test_predecessor_documents.py::test_examples_of_gpuselect",
    ("gpuselect", "then runs the command as a subprocess (i.e. in the same environment)"): "| the command | output passed on line by line",
    ("gpuselect", "This will install: a Python module, a CLI tool"): "tests/python/test_wheel.py",
    ("gpuselect", "The method also returns its new value"): "tests/python/test_predecessor_documents.py::test_examples_of_gpuselect",
    ("gpuselect", "updating it afterwards has no effect"): "| CUDA is already initialised |",
    ("gpuselect", "name: match partial or complete device names, others will be excluded"): "tests/python/test_predecessor_documents.py::test_examples_of_gpuselect",
    ("gpuselect", "3 utilization threshold filters that are all set to zero by default"): "tests/python/test_predecessor_documents.py::test_what_gpuselect_excludes_by_default",
    ("gpuselect", "If you want to relax any of these thresholds, you can pass a new value"): "tests/python/test_gpuselect_package.py::test_a_threshold_is_the_most_that_is_taken",
    ("gpuselect", "select devices 0,1 if possible (this still applies the usual utilization filters)"): "tests/python/test_predecessor_documents.py::test_what_gpuselect_excludes_by_default",
    ("gpuselect", "selector: return True to include the GPU or False to exclude it"): "tests/python/test_predecessor_documents.py::test_examples_of_gpuselect",
    ("gpuselect", "a GpuInfo object has fields: device, name, util, mem_util, processes"): "tests/python/test_gpuselect_filters.py::test_made_from_five_names_as_in_the_readme",
    ("gpuselect", "effectively overrides all other filtering parameters except for count"): "tests/python/test_gpuselect_filters.py::test_a_selector_replaces_every_filter_but_the_count",
    ("gpuselect", "throw an exception if the requested number of GPUs can't be found; silent=True"): "tests/python/test_predecessor_documents.py::test_handling_errors_of_gpuselect",
    ("gpuselect", "Debug logging"): "tests/python/test_predecessor_documents.py::test_debug_logging_of_gpuselect",
    ("gpuselect", "The function returns a list of dicts, one for each GPU, with these keys"): "tests/python/test_predecessor_documents.py::test_state_of_gpuselect",
    ("gpuselect", "only report on the GPUs visible according to CUDA_VISIBLE_DEVICES"): "tests/python/test_predecessor_documents.py::test_state_of_gpuselect",
    ("gpuselect", "Update CUDA_VISIBLE_DEVICES in your current shell"): '| "Update CUDA_VISIBLE_DEVICES in your current shell" |',
    ("gpuselect", "update CUDA_VISIBLE_DEVICES before the new process starts"): "test_gpuselect_runs_commands",
    ("gpuselect", "running shell commands where you need a list of CUDA device IDs"): "test_gpuselect_in_a_docker_line",
}


def test_every_command_and_promise_names_a_test():
    """A test here, FILE::TEST, or the row of docs/drop-ins.md with the difference."""
    own = pathlib.Path(__file__).read_text()
    listed = (ROOT / "docs/drop-ins.md").read_text()
    for (document, what), where in {**COMMANDS, **PROMISES}.items():
        file, _, test = where.partition("::")
        if where.startswith("test_"):
            assert f"def {where}(" in own, (document, what)
        elif where.startswith("tests/"):
            assert f"def {test}(" in (ROOT / file).read_text() if test else (ROOT / file).exists(), (document, what)
        elif where.startswith("| "):
            assert where in listed, (document, what)
        else:
            assert where in ("other programs", "the same") or "docs/" in where, (document, what)
    assert "test_predecessor_documents.py" in listed
    assert {document for document, _ in COMMANDS} == {document for document, _ in PROMISES}


def file_of(name):
    path = build_dir() / f"{name}.py"
    if not path.exists():
        pytest.skip("the tested build is a copy without it")
    return path


# ---- gpu_idle_timeout ----------------------------------------------------------------------------

OPTIONS = ["-h, --help", "-t THRESHHOLD_PERCENTAGE, --threshhold-percentage THRESHHOLD_PERCENTAGE", "Must be greater than 0. (default: 1)",
           "-s SAMPLE_FREQ, --sample-freq SAMPLE_FREQ", "How frequently, in seconds, to sample the GPU usage. Must be greater than 0. (default: 5)",
           "-n NUM_SAMPLES, --num-samples NUM_SAMPLES", "Number of samples in window used to evaluate GPU usage. Must be greater than 0. (default: 60)",
           "-d DELAY_SAMPLES, --delay-samples DELAY_SAMPLES", "Number of samples to delay before evaluating GPU usage. (default: 12)",
           "-x, --debug", "Enable debug logging (reports GPU readings each sample period). (default: False)"]


def test_help_of_the_launching_form(sim):
    with sim(1) as gpus:
        done = gpus.run(PYTHON, file_of("gpu_idle_timeout"), "--help")
        assert done.returncode == 0 and done.stdout.startswith(
            "usage: gpu_idle_timeout [-h] [-t THRESHHOLD_PERCENTAGE] [-s SAMPLE_FREQ] [-n NUM_SAMPLES] [-d DELAY_SAMPLES] ")
        for text in (*OPTIONS, "exec_command_and_args", "Command and arguments to execute", "which triggers a failure"):
            assert text in done.stdout, text


def test_help_of_the_task_form(sim, det):  # noqa: F811
    with sim(1) as gpus:
        done = gpus.run(PYTHON, file_of("gpu_idle_timeout"), "--help", env=det[0])
        assert done.returncode == 0 and done.stdout.startswith(
            "usage: gpu_idle_timeout [-h] [-t THRESHHOLD_PERCENTAGE] [-s SAMPLE_FREQ] [-n NUM_SAMPLES] [-d DELAY_SAMPLES] "
            "[-a ALL_OR_ANY] [-x] ...\n")
        for text in (*OPTIONS, "-a ALL_OR_ANY, --all_or_any ALL_OR_ANY", "Must be either all or any (default: all)",
                     "which triggers a task termination"):
            assert text in done.stdout, text


def test_defaults_of_gpu_idle_timeout(sim):
    with sim(1) as gpus:
        job = gpus.start(PYTHON, file_of("gpu_idle_timeout"), "sleep", "1000")
        read_until(job.stderr, "threshhold_percentage=1%, sample_freq=5, num_samples=60, delay_samples=12, window_size=300")
        assert job.poll() is None


@pytest.mark.parametrize("survives", [False, True])
def test_grep_foo(sim, survives):
    """Its example, line for line. It hangs before it uses a GPU: all GPUs of the machine count."""
    with sim(2) as gpus:
        words = ["-t", "50", "-s", "1", "-n", "5", "-d", "3", "-x", "grep", "foo"]
        ignoring = (lambda: __import__("signal").signal(3, 1)) if survives else None  # SIGQUIT, as after a script's &
        job = gpus.start(PYTHON, file_of("gpu_idle_timeout"), *words, stdin=subprocess.PIPE, preexec_fn=ignoring)
        assert job.wait(timeout=LIMIT) == 1
        text = job.stderr.read()
        assert all(re.match(STAMP + "(INFO|DEBUG|ERROR): gpu_idle_timeout: ", line) for line in text.splitlines()), text
        said = [re.sub(STAMP, "", line).replace("gpu_idle_timeout: ", "") for line in text.splitlines()]
        a, b = uuids(gpus)
        assert said[:14] == [
            "INFO: Starting GPU idle watcher: threshhold_percentage=50%, sample_freq=1, num_samples=5, delay_samples=3, "
            "window_size=5",
            "INFO: waiting for delay samples. 2 seconds left",
            "INFO: waiting for delay samples. 1 seconds left",
            *[f"DEBUG: {uuid} usage 0%" for _ in range(5) for uuid in (a, b)],
            f"ERROR: usage for all GPUs: ['{a}', '{b}'] was below threshhold 50% for last 5 seconds. Killing process."]
        # The document is older than the signal before the kill: its last line is there if the process survives that.
        assert re.fullmatch(r"INFO: Sending signal 3 to process \d+", said[14])
        assert said[15:] == ["ERROR: process still alive, maybe hung, killing."] * survives
        assert stamp_of("below threshhold", text) - stamp_of("Starting GPU", text) > 6.5  # (3 + 5 - 1) * 1 s


def test_one_sample_at_the_threshold_is_enough(sim):
    with sim(1) as gpus:
        gpus.set(0, util=50)
        job = gpus.start(build_dir() / "gpu_idle_timeout", "-t", "50", "-s", "0.3", "-n", "3", "-d", "1", "-x", "sleep", "1000")
        read_until(job.stderr, " usage 50%", times=8)
        assert job.poll() is None
        gpus.set(0, util=49)
        assert job.wait(timeout=LIMIT) == 1


TRAIN = """
import subprocess, sys, time
loads = [subprocess.Popen([sys.argv[1], "sim", "load", "--gpu", str(gpu), "--util", "70", "--for", "3s", "--then", "util=0"])
         for gpu in (0, 1)]
time.sleep(3)
print("batch limit hit, simulating hang", flush=True)
time.sleep(300)
"""


def test_entrypoint_of_determined(sim, tmp_path):
    """The wrapper is copied into the context folder; a launcher of Determined's starts the training."""
    with sim(2) as gpus:
        shutil.copy(file_of("gpu_idle_timeout"), tmp_path)
        launcher = tmp_path / "modules/determined/launch"
        launcher.mkdir(parents=True)
        (launcher / "torch_distributed.py").write_text("import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n")
        (tmp_path / "train.py").write_text(TRAIN)
        env = {"PATH": f"{build_dir()}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "modules")}
        line = ["-t", "20", "-s", "0.5", "-n", "7", "-d", "1", "-x", "python3", "-m", "determined.launch.torch_distributed",
                "python3", "train.py", gpus.binary]
        done = gpus.run(PYTHON, "./gpu_idle_timeout.py", *line, env=env, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        a, b = uuids(gpus)
        assert done.stdout.count("simulating hang") == 1
        assert re.search(r"usage [1-9]\d%", done.stderr) and f"usage for all GPUs: ['{a}', '{b}'] was below threshhold 20%" in done.stderr
        assert stamp_of("below threshhold", done.stderr) - stamp_of("Starting GPU", done.stderr) > 5.5


def test_startup_hook(sim, tmp_path, det):  # noqa: F811
    env, log = det
    with sim(2) as gpus:
        shutil.copy(file_of("gpu_idle_timeout"), tmp_path)
        gpus.set(1, util=95)
        line = f"{PYTHON} {tmp_path}/gpu_idle_timeout.py -t 50 -s 0.3 -n 6 -d 2 -a any -x & echo started; wait $!; echo $?"
        done = gpus.run("sh", "-c", line, env={**env, "PATH": f"{build_dir()}:{env['PATH']}"})
        assert done.stdout == "started\n1\n" and log.read_text() == "shell kill 17-uuid\n"
        assert "INFO: gpu_idle_timeout: waiting for delay samples. 0.3 seconds left" in done.stderr
        assert "usage for any GPUs: [" in done.stderr and done.stderr.count(" usage 95%") >= 6


# ---- gpu_mon -------------------------------------------------------------------------------------

HEAD = """[defaults]
; how frequently perform GPU and tty checks
interval_seconds=1

; configuration of GPUs to monitor for external program access. It could be several such sections with 'gpu-' prefix
[gpu-all]
; list of comma-separated gpu indices or ALL to handle all available gpus
gpus=ALL
; comma-separated list of programs which can access gpu and should be ignored
ignore_programs=nvidia-smi

"""
PROCESS = """; program which will be started on gpu during idle time
[process-{0}]
dir=/tmp
cmd=miner-run
; list of gpu indices or ALL to handle all available gpus
gpus={1}
; log for processes. If not specified, show on console, if specified to file, data will be appended
log={2}

"""
TTY = """; configuration of tty monitoring if enabled and user is active and not in whitelist, all processes will be stopped
[tty]
enabled=True
whitelist=user1,user2
; how long user should be inactive in tty to be ignored by checker
idle_seconds=300
"""
MINER = """#!/usr/bin/python3 -S
import os, time
held = [open(os.environ["LULL_DEV"] + "/nvidia" + gpu) for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")]
with open("{folder}/pids", "a") as pids: pids.write(f"{{os.getpid()}}\\n")
print(os.getcwd(), os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
time.sleep(1000)
"""


class Miner:
    """gpu_mon.py with ~/.config/gpu_mon.conf, in a folder where ./gpu_mon.py is it, on two GPUs; and a miner-run in PATH."""

    def __init__(self, gpus, folder, *processes, change=lambda text: text, **options):
        self.folder, self.log = folder, folder / "log"
        (folder / ".config").mkdir()
        (folder / ".config/gpu_mon.conf").write_text(
            change(HEAD + "".join(PROCESS.format(name, which, folder / "out") for name, which in processes) + TTY))
        (folder / "miner-run").write_text(MINER.format(folder=folder))
        (folder / "miner-run").chmod(0o755)
        shutil.copy(file_of("gpu_mon"), folder)
        self.terminals = gpus.folder / "dev/pts"
        self.terminals.mkdir(exist_ok=True)
        self.process = gpus.start("./gpu_mon.py", stderr=self.log.open("ab"), cwd=folder, **options, env={
            "HOME": str(folder), "LULL_CONTROL": str(folder), "PATH": f"{folder}:{build_dir()}:/usr/bin:/bin"})

    def lines(self):
        return [LINE.match(line)[3] for line in lines_in(self.log)]

    def wait_for(self, text, count=1):
        wait_until(lambda: sum(text in line for line in self.lines()) >= count, what=text)

    def pids(self):
        return [int(line) for line in lines_in(self.folder / "pids")]


def test_gpu_mon_one_program_for_all_gpus(sim, tmp_path):
    with sim(2) as gpus:
        mon = Miner(gpus, tmp_path, ("all", "ALL"))
        mon.wait_for("Starting: miner-run on all GPUs")
        wait_until(lambda: len(mon.pids()) == 1, what="the miner")
        mon.wait_for(f"Our own pid in proc: ProcInfo(file_name='/dev/nvidia1', gpu_id=1, pid={mon.pids()[0]}, name='miner-run')")
        smi = tmp_path / "nvidia-smi"
        smi.write_text("#!/usr/bin/python3 -S\nimport sys, time\nheld = open(sys.argv[1])\ntime.sleep(1000)\n")
        smi.chmod(0o755)
        looks = gpus.start(smi, gpus.folder / "dev/nvidia0")
        mon.wait_for(f"Whitelisted proc: ProcInfo(file_name='/dev/nvidia0', gpu_id=0, pid={looks.pid}, name='nvidia-smi')", 2)
        looks.kill()
        looks.wait()
        assert alive(mon.pids()[0])
        with holding(gpus.folder / "dev/nvidia1") as job:
            mon.wait_for("Stop 1 processes preempted by proc ProcInfo(file_name='/dev/nvidia1', gpu_id=1, "
                         f"pid={job.pid}, name='{job_name(job)}')")
            wait_until(lambda: gone(mon.pids()), what="the miner's end")
        mon.wait_for("Starting: miner-run on all GPUs", 2)
        wait_until(lambda: len(mon.pids()) == 2, what="the miner")
        (mon.terminals / "0").touch()
        name = __import__("pwd").getpwuid(os.getuid()).pw_name
        mon.wait_for(f"Users ['{name}'] become active, stop 1 processes")
        mon.wait_for("Stopping proc for all GPUs")
        wait_until(lambda: gone(mon.pids()), what="the miner's end")
        (mon.terminals / "0").unlink()
        mon.wait_for("Starting: miner-run on all GPUs", 3)


def job_name(process):
    return pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip()


def test_gpu_mon_a_program_for_each_gpu(sim, tmp_path):
    (tmp_path / "out").write_text("before\n")
    with sim(2) as gpus:
        mon = Miner(gpus, tmp_path, (0, 0), (1, 1))
        wait_until(lambda: sorted(lines_in(tmp_path / "out")) == ["/tmp 0", "/tmp 1", "before"], what="both miners")
        first, second = mon.pids()
        with holding(gpus.folder / "dev/nvidia0"):
            mon.wait_for("Stop 1 processes preempted by proc ProcInfo(file_name='/dev/nvidia0', gpu_id=0, ")
            wait_until(lambda: gone([first]) or gone([second]), what="one miner's end")
        mon.wait_for("Starting: miner-run on GPUs 0", 2)
        assert alive(first) or alive(second)
        assert sum("Starting: miner-run on GPUs 1" in line for line in mon.lines()) == 1


def test_gpu_mon_without_a_log_shows_on_the_console(sim, tmp_path):
    with sim(2) as gpus:
        Miner(gpus, tmp_path, (0, 0), (1, 1), change=lambda text: re.sub("\nlog=.*", "", text), stdout=(tmp_path / "console").open("wb"))
        wait_until(lambda: sorted(lines_in(tmp_path / "console")) == ["/tmp 0", "/tmp 1"], what="the output of both on the console")
        assert not (tmp_path / "out").exists()


def test_gpu_mon_several_gpu_sections(sim, tmp_path):
    """What may use GPU 0 may not use GPU 1."""
    sections = "[gpu-first]\ngpus=0\nignore_programs=nvidia-smi,looker\n[gpu-others]\ngpus=1\nignore_programs=nvidia-smi\n"
    looker = tmp_path / "looker"
    looker.write_text("#!/usr/bin/python3 -S\nimport sys, time\nheld = open(sys.argv[1])\ntime.sleep(1000)\n")
    looker.chmod(0o755)
    with sim(2) as gpus:
        mon = Miner(gpus, tmp_path, (0, 0), (1, 1), change=lambda text: re.sub(r"\[gpu-all\][^\[]*", sections, text))
        mon.wait_for("Starting: miner-run on GPUs ", 2)
        wait_until(lambda: len(mon.pids()) == 2, what="both miners")
        allowed = gpus.start(looker, gpus.folder / "dev/nvidia0")
        mon.wait_for(f"Whitelisted proc: ProcInfo(file_name='/dev/nvidia0', gpu_id=0, pid={allowed.pid}, name='looker')")
        other = gpus.start(looker, gpus.folder / "dev/nvidia1")
        mon.wait_for("Stop 1 processes preempted by proc ProcInfo(file_name='/dev/nvidia1', gpu_id=1, "
                     f"pid={other.pid}, name='looker')")
        assert sum("preempted by" in line for line in mon.lines()) == 1


@pytest.mark.parametrize("stops", ["somebody", "whitelist", "idle_seconds"])
def test_gpu_mon_whose_terminals_count(sim, tmp_path, stops):
    """Those of users who are not in the whitelist, and were active within idle_seconds."""
    name = __import__("pwd").getpwuid(os.getuid()).pw_name
    change = (lambda text: text.replace("user1,user2", f"user1,{name}")) if stops == "whitelist" else lambda text: text
    with sim(2) as gpus:
        terminal = gpus.folder / "dev/pts/0"
        terminal.parent.mkdir()
        terminal.touch()
        if stops == "idle_seconds":
            then = terminal.stat().st_mtime - 400
            os.utime(terminal, (then, then))
        mon = Miner(gpus, tmp_path, ("all", "ALL"), change=change)
        if stops != "somebody":
            mon.wait_for("Starting: miner-run on all GPUs")
            return
        mon.wait_for("GPUs detected")
        terminal.unlink()
        mon.wait_for("Starting: miner-run on all GPUs")
        terminal.touch()
        mon.wait_for(f"Users ['{name}'] become active, stop 1 processes")


# ---- gpu_sentinel --------------------------------------------------------------------------------

def test_help_of_gpu_sentinel(sim):
    with sim(1) as gpus:
        done = gpus.run(build_dir() / "gpu_sentinel", "--help")
        assert done.returncode == 0
        for text in ("arm_duration", "How many seconds of activity to wait before arming the sentinel.", "arm_threshold",
                     "What level of utilization is considered activity", "kill_duration",
                     "How many seconds of inactivity to wait before running the kill function.", "kill_threshold",
                     "What level of utilization is considered inactivity", "{end_process,shutdown,reboot}",
                     "What to do when the kill trigger is hit", "Which GPU devices to average (empty for all)"):
            assert text in done.stdout, text


def test_options_of_gpu_sentinel(sim):
    """All of them. Idle and busy for too short a time do nothing; the line after it in a script is run when it ends."""
    with sim(2) as gpus:
        words = "--arm_duration 2 --arm_threshold 0.7 --kill_duration 2 --kill_threshold 0.6 --kill_action end_process --gpu_devices 0"
        job = gpus.start("sh", "-c", f"{build_dir()}/gpu_sentinel {words}; echo an action")
        read_until(job.stdout, "Press ctrl+C to exit")
        gpus.set(0, util=90)
        read_until(job.stdout, "GPU Sentinel is armed, will 'end_process' when values drop below 60% for 2 seconds")
        assert job.poll() is None
        gpus.set(0, util=10)
        assert job.wait(timeout=LIMIT) == 0 and job.stdout.read() == "an action\n"


# ---- gpuselect -----------------------------------------------------------------------------------

def test_gpuselect_runs_commands(sim, tmp_path):
    for name in ("my_scripy.py", "foo.py"):
        (tmp_path / name).write_text("import os, sys\nprint(os.environ['CUDA_VISIBLE_DEVICES'], *sys.argv[1:])\n")
    (tmp_path / "python").symlink_to(PYTHON)
    a6000 = '[[gpu]]\nmodel = "RTX3090"\nname = "NVIDIA RTX A6000"\n'
    with sim(text=2 * a6000 + '[[gpu]]\nmodel = "T4"\n') as gpus:
        gpus.set(2, util=5, mem_util=10)
        for line, wanted in (("gpuselect -- python3 my_scripy.py arg1 arg2", "[01] arg1 arg2"),
                             ("gpuselect -- python foo.py", "[01]"),
                             ("gpuselect --count 2 -- python foo.py", "0,1|1,0"),
                             ("gpuselect --name A6000 -- python foo.py", "[01]"),
                             ("gpuselect --util 5 --mem_util 10 -- python foo.py", "[012]")):
            done = gpus.run("sh", "-c", line, cwd=tmp_path, env={"PATH": f"{tmp_path}:{build_dir()}:/usr/bin:/bin"})
            assert done.returncode == 0, done.stderr
            assert re.fullmatch(wanted, done.stdout.splitlines()[-1]), line


def test_gpuselect_prints_the_value(sim):
    """A program cannot change its parent's environment: in a shell it is export CUDA_VISIBLE_DEVICES=$(gpuselect …)."""
    with sim("4x3090,1xT4") as gpus:
        chosen = {gpus.run(build_dir() / "gpuselect", "--count", "1", "--name", "3090").stdout for _ in range(40)}
        assert chosen <= {"0\n", "1\n", "2\n", "3\n"} and len(chosen) > 1
        orders = {gpus.run(build_dir() / "gpuselect", "--count", "4", "--name", "3090").stdout for _ in range(10)}
        assert len(orders) > 1 and {tuple(sorted(order.strip().split(","))) for order in orders} == {("0", "1", "2", "3")}


def test_gpuselect_in_a_docker_line(sim, tmp_path):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    with sim("2x3090") as gpus:
        line = 'docker run --gpus \\"device=$(gpuselect --count 2 --name 3090)\\" --rm -it gpu_container nvidia-smi'
        done = gpus.run("bash", "-c", line, env={"PATH": f"{tmp_path}:{build_dir()}:/usr/bin:/bin"})
        assert done.stdout.splitlines()[2] in ('"device=0,1"', '"device=1,0"')
