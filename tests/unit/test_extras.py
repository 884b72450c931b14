"""What is said of how to install an extra works where this copy of Stepwell came from."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from stepwell import extras

ROOT = Path(__file__).parents[2]


def test_in_a_copy_of_the_repository_dev_py_installs_it():
    said = extras.installing("models")
    assert said == f"python3 {ROOT / 'dev.py'} extras models"
    told = subprocess.run([sys.executable, *shlex.split(said)[1:3]], check=False, capture_output=True, text=True)
    assert (told.returncode, "extras NAME" in told.stderr) == (1, True)


def test_elsewhere_pip_does(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "_CHECKOUT", tmp_path)
    assert extras.installing("models") == "pip install 'stepwell[models]'"
