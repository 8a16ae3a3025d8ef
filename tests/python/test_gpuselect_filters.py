"""gpuselect's pure parts: GpuInfo in all the forms that scripts make it in, and the filters."""
import copy
import inspect
import pickle

import pytest

import gpuselect as package
from gpuselect import GpuInfo, __filter_gpus as filter_gpus, gpuselect, gpustatus

FIELDS = ("device", "name", "util", "mem_util", "mem_free", "mem_used", "mem_total", "processes", "fan_speed",
          "effective_power_limt", "performance_state", "power_usage", "temperature", "is_throttling")


def gpus(*utils, name="NVIDIA GeForce RTX 3090", **more):
    return [GpuInfo(device=device, name=name, util=util, mem_util=0, processes=0)._replace(**more)
            for device, util in enumerate(utils)]


def matching(infos, count=1, devices=(), name=None, util=0, mem_util=0, processes=0, selector=None):
    return filter_gpus(infos, count, list(devices), name, util, mem_util, processes, selector)


# ---- GpuInfo

def test_fields_in_their_order():
    assert GpuInfo._fields == FIELDS
    info = GpuInfo(*range(14))
    assert tuple(info) == tuple(range(14)) and info == tuple(range(14)) and len(info) == 14
    assert [getattr(info, name) for name in FIELDS] == list(range(14))
    assert repr(info).startswith("GpuInfo(device=0, name=1, util=2, ")


def test_made_from_five_names_as_in_the_readme():
    info = GpuInfo(device=1, name="T4", util=2, mem_util=3, processes=4)
    assert (info.device, info.name, info.util, info.mem_util, info.processes) == (1, "T4", 2, 3, 4)
    assert info.mem_used is None and info.is_throttling is None


def test_made_from_what_older_versions_had():
    assert GpuInfo(1, "T4", 2, 3, 4) == GpuInfo(device=1, name="T4", util=2, mem_util=3, processes=4)
    info = GpuInfo(1, "T4", 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert (info.processes, info.fan_speed, info.effective_power_limt, info.is_throttling) == (4, 5, 6, 10)
    assert (info.mem_free, info.mem_used, info.mem_total) == (None, None, None)


@pytest.mark.parametrize("values, named, said", [
    (range(15), {}, "14 fields, 15 were given"),
    ([0, "T4"], {"utl": 1}, "no field 'utl'"),
    ([0, "T4"], {"name": "T4"}, "two values for 'name'"),
    ([], {"device": 0}, "a value for 'name'")])
def test_mistakes_in_making_one(values, named, said):
    with pytest.raises(TypeError, match=said):
        GpuInfo(*values, **named)


def test_is_a_dict_of_the_readme_too():
    info = GpuInfo(*range(14))
    assert (info["utilization"], info["mem_utilization"], info["power_usage"]) == (2, 3, 11)
    assert dict(info)["utilization"] == 2 and set(FIELDS) < set(dict(info))
    assert "utilization" in info and "utilisation" not in info and info.get("utilisation", 5) == 5
    assert dict(info.items()) == dict(zip(info.keys(), info.values()))
    with pytest.raises(KeyError, match="utilisation"):
        info["utilisation"]


def test_stays_a_tuple():
    info = GpuInfo(*range(14))
    assert info[0] == 0 and info[-1] == 13 and info[2:4] == (2, 3) and 7 in info and 99 not in info
    assert pickle.loads(pickle.dumps(info)) == copy.deepcopy(info) == info
    assert type(info._replace(util=9)) is GpuInfo and info._replace(util=9).util == 9
    assert {info: 1}[info] == 1 and info._asdict() == dict(zip(FIELDS, range(14)))


def test_a_little_work_is_never_nothing():
    """lull knows fractions of a percent; here they are whole numbers."""
    from types import SimpleNamespace
    fields = ("mem_free", "mem_used", "mem_total", "procs", "fan", "power_limit", "pstate", "power", "temp", "throttle_reasons")
    gpu = SimpleNamespace(index=0, name="T4", util=0.2, mem_util=0.01, **dict.fromkeys(fields))
    info = package.nvmlgpuselect._info_of(gpu)
    assert (info.util, info.mem_util, info.power_usage) == (1, 1, None)
    assert package.nvmlgpuselect._info_of(SimpleNamespace(**{**vars(gpu), "util": 0.0})).util == 0


# ---- the filters

def test_one_of_those_that_do_nothing():
    assert {matching(gpus(0, 5, 0))[0].device for _ in range(60)} == {0, 2}


def test_as_many_as_asked_for_or_all_that_there_are():
    assert len(matching(gpus(0, 0, 0, 0), count=3)) == 3
    assert [info.device for info in matching(gpus(0, 5, 0), count=3)] == [0, 2]
    assert matching(gpus(5, 5)) == [] and matching([]) == []


def test_in_random_order():
    orders = {tuple(info.device for info in matching(gpus(0, 0, 0), count=3)) for _ in range(200)}
    assert len(orders) == 6


def test_names_are_case_sensitive_parts():
    assert matching(gpus(0), name="3090") and matching(gpus(0), name="NVIDIA GeForce RTX 3090")
    assert not matching(gpus(0), name="rtx") and not matching(gpus(0), name="A6000")


def test_only_the_given_devices_are_taken():
    assert {info.device for info in matching(gpus(0, 0, 0, 0), count=2, devices=[1, 3])} == {1, 3}
    assert [info.device for info in matching(gpus(0, 9, 0), count=2, devices=[1, 2])] == [2]


@pytest.mark.parametrize("field", ["util", "mem_util", "processes"])
def test_thresholds_are_inclusive_and_unknown_is_not_below_any(field):
    for value, most, fits in ((5, 4, False), (5, 5, True), (0, 0, True), (None, 100, False)):
        assert bool(matching(gpus(0, **{field: value}), **{field: most})) == fits, (value, most)


def test_a_selector_replaces_every_filter_but_the_count():
    infos = gpus(50, 60, 70, processes=3)
    chosen = matching(infos, count=1, name="no such", devices=[0], selector=lambda gpu: gpu.util >= 60)
    assert len(chosen) == 1 and chosen[0].util >= 60
    assert len(matching(infos, count=3, selector=lambda gpu: gpu.util >= 60)) == 2


def test_a_selector_that_needs_what_is_unknown_has_not_said_yes():
    infos = [*gpus(0, fan_speed=None), *gpus(0, 0, fan_speed=20)[1:]]
    assert [gpu.device for gpu in matching(infos, count=2, selector=lambda gpu: gpu.fan_speed < 50)] == [1]


def test_a_selectors_own_mistake_is_not_swallowed():
    with pytest.raises(TypeError):
        matching([GpuInfo(*range(14))], selector=lambda gpu: gpu.util + "1")
    with pytest.raises(ZeroDivisionError):
        matching(gpus(0), selector=lambda gpu: 1 / 0)


# ---- the surface

def test_signatures_are_those_of_the_original():
    parameters = inspect.signature(gpuselect).parameters
    assert [(name, p.default) for name, p in parameters.items()] == [
        ("count", 1), ("devices", None), ("name", None), ("util", 0), ("mem_util", 0), ("processes", 0),
        ("selector", None), ("silent", False), ("set_cvd", True)]
    assert [(name, p.default) for name, p in inspect.signature(gpustatus).parameters.items()] == [("only_cvd", True)]
    assert list(inspect.signature(filter_gpus).parameters) == [
        "gpu_info", "count", "devices", "name", "util", "mem_util", "processes", "selector"]
    assert callable(package.nvmlgpuselect.main) and callable(package.nvmlgpuselect.pynvml_get_gpu_state)


@pytest.mark.parametrize("given, said", [
    (dict(count=0), "GPU count must be >= 1"),
    (dict(devices=0, name="T4"), "Use only one of 'devices' and 'name' parameters"),
    (dict(devices=(0, 1), name="T4"), "Use only one of 'devices' and 'name' parameters"),
    (dict(util=-1), "Utilization/process count thresholds must be >= 0"),
    (dict(mem_util=-1), "Utilization/process count thresholds must be >= 0"),
    (dict(processes=-1), "Utilization/process count thresholds must be >= 0")])
def test_senseless_arguments_are_refused_also_when_silent(given, said):
    for silent in (False, True):
        with pytest.raises(Exception) as caught:
            gpuselect(**given, silent=silent)
        assert type(caught.value) is Exception and str(caught.value) == said
