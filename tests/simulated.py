"""What the end-to-end tests use (tests/e2e/conftest.py: simulations, the program), for tests in other folders."""
import importlib.util
import pathlib
import sys

_spec = importlib.util.spec_from_file_location("lull_e2e", pathlib.Path(__file__).resolve().parent / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
sys.modules["lull_e2e"] = e2e
_spec.loader.exec_module(e2e)
