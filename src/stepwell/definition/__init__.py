"""What to do: workflows and recipes as data, loaded with positions and checked before they run."""

from __future__ import annotations

from stepwell.definition.load import (
    LoadedWorkflow,
    from_data,
    load_file,
    load_recipe_file,
    load_recipe_text,
    load_text,
)

__all__ = [
    "LoadedWorkflow",
    "from_data",
    "load_file",
    "load_recipe_file",
    "load_recipe_text",
    "load_text",
]
