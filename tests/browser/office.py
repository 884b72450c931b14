"""The pages of the example `back-office`, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_FILE = Path(__file__).parents[2] / "examples" / "back-office" / "office.py"
_spec = importlib.util.spec_from_file_location("back_office_example", _FILE)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
Office = _module.Office
USER, PASSWORD = _module.USER, _module.PASSWORD
