"""Marks for tests that need a C compiler."""

import shutil

import pytest

from robopolicy.runtime.compiler import find_compiler

NO_COMPILER = "no C compiler is installed"
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason=NO_COMPILER)
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
