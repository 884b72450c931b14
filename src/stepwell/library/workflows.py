"""Workflows in files: where a sub-workflow is looked for.

    beside the file that names it:  <folder>/<id>.yaml, <folder>/workflows/<id>.yaml
    then in every folder of the project, in the order of the settings

File names end in .yaml, .yml or .json; `<id>@<version>.yaml` keeps another version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepwell.errors import NotFound
from stepwell.library.recipes import SUFFIXES


def workflow_file(name: str, beside: Path, folders: Sequence[Path] = ()) -> Path:
    """The file of the workflow `id` or `id@version`. Raises NotFound that says where was looked."""
    folder = beside.resolve().parent
    places = tuple(dict.fromkeys((folder, folder / "workflows", *(Path(one).resolve() for one in folders))))
    for place in places:
        for stem in dict.fromkeys((name, name.partition("@")[0])):
            for suffix in SUFFIXES:
                if (file := place / f"{stem}{suffix}").is_file():
                    return file
    looked = ", ".join(str(place) for place in places)
    raise NotFound(f"there is no workflow {name!r}; looked for {name}.yaml, .yml and .json in {looked}")
