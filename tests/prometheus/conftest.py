"""What the tests on a real Prometheus share."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
from simulated import e2e  # noqa: E402

lull = e2e.lull
run_lull = e2e.run_lull
never_for_ever = e2e.never_for_ever
pytest_configure = e2e.pytest_configure
pytest_unconfigure = e2e.pytest_unconfigure

from server import Prometheus, why_not  # noqa: E402


def pytest_collection_modifyitems(items):
    if why := why_not():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"no Prometheus can run here: {why}"))


@pytest.fixture
def prometheus():
    """prometheus(metrics): a server with these samples (server.openmetrics)."""
    started = []

    def start(metrics, *options):
        started.append(Prometheus(metrics, options))
        return started[-1]

    yield start
    for one in started:
        one.close()
