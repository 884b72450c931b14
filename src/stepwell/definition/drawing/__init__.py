"""Pictures of workflows: what is to be drawn, and drawing it as text for mermaid or as SVG."""

from __future__ import annotations

from stepwell.definition.drawing.mermaid import mermaid
from stepwell.definition.drawing.picture import Drawn, Edge, Part, Picture, picture_of
from stepwell.definition.drawing.svg import TooLarge, svg

__all__ = ["Drawn", "Edge", "Part", "Picture", "TooLarge", "mermaid", "picture_of", "svg"]
