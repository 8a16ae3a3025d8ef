"""What the tests on a real Prometheus share."""
import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
_spec = importlib.util.spec_from_file_location("lull_e2e", HERE.parent / "e2e" / "conftest.py")
_e2e = importlib.util.module_from_spec(_spec)
sys.modules["lull_e2e"] = _e2e
_spec.loader.exec_module(_e2e)
lull = _e2e.lull
run_lull = _e2e.run_lull
never_for_ever = _e2e.never_for_ever
pytest_configure = _e2e.pytest_configure
pytest_unconfigure = _e2e.pytest_unconfigure

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
