"""Pages are looked at as every test looks: without the machine's settings. And the browser that shows them."""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import hermetic  # noqa: E402, F401
import pytest  # noqa: E402
from browser import Browser  # noqa: E402


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    assert program, "chromium is not installed"
    browser = Browser(program)
    yield browser
    browser.close()
