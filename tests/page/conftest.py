"""Pages are looked at as every test looks: without the machine's settings."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import hermetic  # noqa: E402, F401
