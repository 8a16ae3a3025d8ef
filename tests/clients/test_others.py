"""gpustat, pynvml and nvtop, unmodified."""
import json
import re


def test_gpustat(clients):
    here = clients("1xRTX4090,1xT4")
    here.gpus.set(0, util=42, temp=61, mem_used="3GiB", power=200, fan=45)
    load = here.gpus.load(1, 70, "2GiB")
    found = json.loads(here.gpustat("--json"))["gpus"]
    first, second = found
    assert (first["name"], first["utilization.gpu"], first["temperature.gpu"]) == ("NVIDIA GeForce RTX 4090", 42, 61)
    assert (first["memory.used"], first["memory.total"]) == (3072 + 354, 24564)
    assert (first["power.draw"], first["enforced.power.limit"], first["fan.speed"]) == (200, 450, 45)
    assert (second["utilization.gpu"], second["fan.speed"]) == (70, None)
    assert [(p["pid"], p["gpu_memory_usage"]) for p in second["processes"]] == [(load.pid, 2048)]


def test_gpustat_gives_up_on_a_lost_gpu_and_comes_back(clients):
    here = clients("3xA100")
    here.gpus.fault(1, "lost")
    failed = here.gpustat("--json", status=1)  # so it does on a real one
    assert failed == ""
    here.gpus.clear()
    assert len(json.loads(here.gpustat("--json"))["gpus"]) == 3


def test_pynvml(clients):
    here = clients("2xH100")
    here.gpus.set(0, util=33, power=250, mem_used="7GiB")
    load = here.gpus.load(1, 60, "5GiB", None, "--both")
    out = json.loads(here.python("""
import json, pynvml as n
n.nvmlInit()
def of(i):
    h = n.nvmlDeviceGetHandleByIndex(i)
    lists = [n.nvmlDeviceGetComputeRunningProcesses(h), n.nvmlDeviceGetGraphicsRunningProcesses(h)]
    return {"util": n.nvmlDeviceGetUtilizationRates(h).gpu, "power": n.nvmlDeviceGetPowerUsage(h),
            "limit": n.nvmlDeviceGetEnforcedPowerLimit(h), "memory": n.nvmlDeviceGetMemoryInfo(h).used,
            "memory2": n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used,
            "uuid": n.nvmlDeviceGetUUID(h), "throttle": n.nvmlDeviceGetCurrentClocksThrottleReasons(h),
            "processes": [[(p.pid, p.usedGpuMemory) for p in each] for each in lists],
            "energy": n.nvmlDeviceGetTotalEnergyConsumption(h)}
print(json.dumps([of(0), of(1)]))
n.nvmlShutdown()
"""))
    assert (out[0]["util"], out[0]["power"], out[0]["limit"]) == (33, 250000, 700000)
    assert out[0]["memory2"] == 7 << 30
    assert out[0]["memory"] == (7 << 30) + (516 << 20)  # the first version counts what the driver reserves
    assert out[0]["processes"] == [[], []]
    assert out[1]["processes"] == [[[load.pid, 5 << 30]]] * 2
    assert (out[1]["util"], out[1]["throttle"]) == (60, 0)
    assert out[0]["uuid"].startswith("GPU-") and out[0]["uuid"] != out[1]["uuid"]


def test_pynvml_reads_the_sample_buffer(clients):
    here = clients("1xA100")
    here.gpus.set(0, util=40)
    means = json.loads(here.python("""
import json, time, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
end = time.time() + 20
while True:
    try:
        samples = n.nvmlDeviceGetSamples(h, n.NVML_GPU_UTILIZATION_SAMPLES, 0)[1]
    except n.NVMLError_NotFound:
        samples = []
    if len(samples) > 4 or time.time() > end: break
    time.sleep(.05)
newer = n.nvmlDeviceGetSamples(h, n.NVML_GPU_UTILIZATION_SAMPLES, samples[1].timeStamp)[1]
print(json.dumps([[s.sampleValue.uiVal for s in samples], len(samples) - len(newer)]))
"""))
    assert means[0][1:5] == [40, 40, 40, 40]
    assert means[1] in (1, 2)  # a new one may have come between the two looks


def test_pynvml_reads_the_chips_counters(clients):
    here = clients("1xH100,1xA100")
    here.gpus.load(0, 50, None, None, "--tensor", "7")
    found = json.loads(here.python("""
import json, time, pynvml as n
n.nvmlInit()
first, other = (n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))
supported = [n.nvmlGpmQueryDeviceSupport(h).isSupportedDevice for h in (first, other)]
samples = [n.nvmlGpmSampleAlloc() for _ in range(2)]
for sample in samples:
    n.nvmlGpmSampleGet(first, sample)
    time.sleep(.15)
get = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=4, sample1=samples[0], sample2=samples[1])
for place, metric in enumerate((1, 2, 5, 10)):
    get.metrics[place].metricId = metric
n.nvmlGpmMetricsGet(get)
for sample in samples:
    n.nvmlGpmSampleFree(sample)
print(json.dumps([supported, [round(get.metrics[i].value, 2) for i in range(4)],
                  [get.metrics[i].nvmlReturn for i in range(4)]]))
"""))
    assert found == [[1, 0], [50, 40, 7, 20], [0, 0, 0, 0]]


def test_pynvml_errors_have_their_names(clients):
    here = clients("2xT4")
    here.gpus.fault(0, "lost")
    here.gpus.fault(1, "no-util")
    out = here.python("""
import pynvml as n
n.nvmlInit()
for call in (lambda: n.nvmlDeviceGetHandleByIndex(0),
             lambda: n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(1)),
             lambda: n.nvmlDeviceGetFanSpeed(n.nvmlDeviceGetHandleByIndex(1)),
             lambda: n.nvmlDeviceGetHandleByIndex(2)):
    try: call(); print("no error")
    except n.NVMLError as error: print(type(error).__name__)
""")
    assert out.split() == ["NVMLError_GpuIsLost", "NVMLError_NotSupported", "NVMLError_NotSupported", "NVMLError_InvalidArgument"]


def test_nvtop(clients):
    here = clients("1xRTX4090,1xH100")
    here.gpus.set(0, util=57, temp=63, mem_used="6GiB", power=210)
    load = here.gpus.load(1, 80, "4GiB")
    screen = here.nvtop_screen(str(load.pid))
    assert "NVIDIA GeForce RTX 4090" in screen and "NVIDIA H100 80GB HBM3" in screen, screen
    assert re.search(r"TEMP\s+63.?C", screen), screen
    assert re.search(r"POW\s+210 / 450 W", screen), screen
    assert re.search(r"GPU\[\|+\s+57%\]", screen), screen
    assert re.search(r"MEM\[\|+\s+6\.346Gi/23\.988Gi\]", screen), screen  # 354MiB are reserved
    row = next(line for line in screen.splitlines() if str(load.pid) in line)
    assert "Compute" in row and "4096MiB" in row, screen
