"""The examples in the docstrings do what they show."""
import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["_core", "_pick", "_replay", "_simulate", "_watch"])
def test_examples_in_docstrings(name):
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    done = doctest.testmod(importlib.import_module(f"lull.{name}"), optionflags=flags)
    assert done.attempted > 0 and done.failed == 0
