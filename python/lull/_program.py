"""Where the program `lull` is: it asks the driver for this module, holds leases and runs simulations."""
import os
import sys

_found: dict[str, str] = {}


def places():
    """Where it is looked for, in this order; then on PATH."""
    here = os.path.dirname(os.path.realpath(__file__))
    module = os.path.dirname(os.path.realpath(sys.modules["lull._core"].__file__))
    yield os.path.join(here, "bin", "lull")                                # a wheel
    yield os.path.join(os.path.dirname(os.path.dirname(module)), "lull")   # a build: python/lull/ beside it
    for prefix in (sys.prefix, os.path.abspath(os.path.join(module, *[os.pardir] * 4))):
        yield os.path.join(prefix, "bin", "lull")                          # installed under the same prefix


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
            raise Error("the program lull is neither beside this module nor on PATH; LULL_PROGRAM can name it")
    return path
