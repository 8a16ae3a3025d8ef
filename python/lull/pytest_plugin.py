"""The pytest fixture `lull_gpus`: simulated GPUs for one test.

    pytest_plugins = ["lull.pytest_plugin"]      # in conftest.py, where lull was not installed by pip

    @pytest.mark.lull_gpus("4xA100")             # two A100s where nothing is said
    def test_of_mine(lull_gpus):
        lull_gpus.set(0, util=90)
"""
import pytest

import lull


def pytest_configure(config):
    config.addinivalue_line("markers", "lull_gpus(gpus, scenario=, speed=): which GPUs the fixture lull_gpus simulates")


@pytest.fixture
def lull_gpus(request):
    """Simulated GPUs, gone after the test: a lull.Simulation."""
    marker = request.node.get_closest_marker("lull_gpus")
    arguments, options = (marker.args, marker.kwargs) if marker else (("2xA100",), {})
    with lull.simulate(*arguments, **options) as simulation:
        yield simulation
