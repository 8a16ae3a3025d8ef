"""lull.pick(): leases for this process."""
import json
import os
import signal
import subprocess

import pytest
from conftest import BUILD, LIMIT, wait_until

import lull


def leases(what="leases"):
    out = subprocess.run([BUILD / "lull", "leases", "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(out)[what]


@pytest.mark.lull_gpus("4xA100")
def test_it_sets_the_variables_and_holds_until_released(lull_gpus):
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    try:
        with lull.pick(2, gpus=[1, 2]) as picked:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2" and picked.indices == [1, 2] == list(picked)
            assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and picked.held and len(picked) == 2
            assert [bool(gpu.lease) for gpu in lull.status()] == [False, True, True, False]
            assert lull.status()[1].lease.pid == os.getpid()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3" and "CUDA_DEVICE_ORDER" not in os.environ
        assert not leases() and not picked.held
        picked.release()
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]


def test_many_picks_leave_no_lease_holder_behind(lull_gpus):
    handles = []
    for _ in range(5):
        picked = lull.pick()
        handles.append(os.dup(picked._holder))
        picked.release()
    import select
    for handle in handles:  # readable once its process has ended
        assert select.select([handle], [], [], LIMIT)[0]
        os.close(handle)


def test_two_processes_never_get_the_same_gpu_and_the_end_of_one_frees_it(lull_gpus, script):
    text = "import lull; print(lull.pick().indices[0], flush=True); input()"
    first, second = script(text), script(text)
    assert {first.line(), second.line()} == {"0", "1"}
    with pytest.raises(lull.PickError) as caught:
        lull.pick()
    assert str(caught.value).startswith("no GPU fits") and len(caught.value.reasons) == 2
    assert "leased" in caught.value.reasons[0]
    with pytest.raises(lull.PickTimeout, match="^waited "):
        lull.pick(wait=0.1)
    assert issubclass(lull.PickTimeout, TimeoutError)
    assert {str(one) for one in (lull.PickError, lull.PickTimeout)} == {"<class 'lull.PickError'>", "<class 'lull.PickTimeout'>"}
    first.process.kill()
    with lull.pick(wait=LIMIT) as picked:
        assert len(picked) == 1


def test_waiting_is_said_others_run_meanwhile_and_ctrl_c_leaves_the_queue(lull_gpus, script):
    with lull.pick(2):
        child = script("""
import logging, lull, threading
logging.basicConfig(level=logging.INFO, format="%(message)s")
counted = [0]
def count():
    while True: counted[0] += 1
threading.Thread(target=count, daemon=True).start()
try:
    print("waiting", flush=True)
    lull.pick(wait=True)
except KeyboardInterrupt:
    print(counted[0] > 1000)
""", env={"LULL_LEASE": ""})
        assert child.line() == "waiting"
        assert "waiting for 1 GPU" in child.process.stderr.readline()
        child.process.send_signal(signal.SIGINT)
        assert child.finish()[:2] == (0, "True\n")
        wait_until(lambda: not leases("queue"), what="an empty queue")


def test_who_waits_and_is_killed_leaves_the_queue(lull_gpus, script):
    with lull.pick(2):
        child = script("import lull; lull.pick(wait=True)", env={"LULL_LEASE": ""})
        wait_until(lambda: leases("queue"), what="a waiter")
        child.process.kill()
        wait_until(lambda: not leases("queue"), what="an empty queue")


def test_mistakes_are_told_in_the_words_of_the_command_line(lull_gpus):
    for arguments, words in (({"count": 0}, "--count 0: must be a positive number"),
                             ({"mem_free": "many"}, "--mem-free"), ({"best": "worst"}, "--best"), ({"wait": "soon"}, "--wait"),
                             ({"gpus": "7"}, "no GPU 7"), ({"where": "utl < 1"}, "--where")):
        with pytest.raises(lull.UsageError, match=words):
            lull.pick(**arguments)
    assert not leases()


def test_a_lease_may_be_shared_and_may_be_none(lull_gpus):
    with lull.pick(gpus=0, share=2):
        assert len(leases()) == 1
    with lull.pick(gpus=1, lease=False) as unheld:
        assert not unheld.held and not leases() and os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_forked_child_does_not_release_its_parents_gpus(lull_gpus):
    with lull.pick() as picked:
        pid = os.fork()
        if pid == 0:
            try:
                picked.release()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert len(leases()) == 1 and picked.held


CUDA = """
int initialised;
int cuInit(unsigned flags) { initialised = 1; return (int)flags; }
int cuDeviceGetCount(int *count) { *count = 1; return initialised ? 0 : 3; }
"""


def test_it_refuses_once_cuda_is_initialised(lull_gpus, script, tmp_path):
    (tmp_path / "cuda.c").write_text(CUDA)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, tmp_path / "cuda.c"], check=True)
    child = script("""
import ctypes, lull, os, sys
cuda = ctypes.CDLL(sys.argv[1])
lull.pick().release()                # loaded is not initialised
cuda.cuInit(0)
try:
    lull.pick()
except lull.CudaInitializedError as error:
    print(error, "CUDA_VISIBLE_DEVICES" in os.environ)
""", library)
    status, out, err = child.finish()
    assert status == 0 and out.startswith("CUDA is already initialised in this process") and out.endswith("False\n"), err


def test_sizes_may_be_numbers_of_bytes(lull_gpus):
    with lull.pick(mem_free=2**30, mem_used=0) as picked:
        assert len(picked) == 1
