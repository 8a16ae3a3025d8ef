"""Where the program `lull` is: it asks the driver for this module, holds leases and runs simulations."""
import os
import sys

_found: dict[str, str] = {}


def places():
    """Where it is looked for, in this order; then on PATH. First what was made together with this module."""
    module = os.path.dirname(os.path.realpath(sys.modules["lull._core"].__file__))
    above = [module]
    while len(above) < 5:
        above.append(os.path.dirname(above[-1]))
    yield os.path.join(above[2], "lull")         # BUILD/python/lull: the build
    yield os.path.join(above[4], "bin", "lull")  # PREFIX/lib/python3.N/site-packages/lull: an environment, --user
    yield os.path.join(above[1], "bin", "lull")  # FOLDER/lull: pip install --target
    yield os.path.join(sys.prefix, "bin", "lull")


def find():
    """The path of the program; $LULL_PROGRAM wins."""
    named = os.environ.get("LULL_PROGRAM")
    if named:
        return named
    key = os.environ.get("PATH", os.defpath)
    path = _found.get(key)
    if path is None:
        on_path = (os.path.join(folder, "lull") for folder in key.split(os.pathsep) if folder)
        for one in (*places(), *on_path):
            if os.path.isfile(one) and os.access(one, os.X_OK):
                path = _found[key] = one
                break
        else:
            from . import Error
            raise Error("the program lull is neither next to this module nor in PATH; set LULL_PROGRAM to its path")
    return path
