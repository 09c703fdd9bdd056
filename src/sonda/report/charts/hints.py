"""What readers are told of the marks of a figure."""

from __future__ import annotations

from dataclasses import dataclass, field

from sonda.report.labels import markup


@dataclass
class Hints:
    """What readers are told of marks, each text once. `titles` puts it into the marks themselves."""

    titles: bool = False
    numbers: dict[str, int] = field(default_factory=dict)

    def attribute(self, text: str) -> str:
        """What makes a mark tell this."""
        if not text or self.titles:
            return ""
        return f' data-h="{self.numbers.setdefault(text, len(self.numbers))}"'

    def inside(self, text: str) -> str:
        """What stands inside of the mark."""
        return f"<title>{markup_lines(text)}</title>" if text and self.titles else ""


def markup_lines(text: str) -> str:
    """The text escaped, its line ends kept."""
    return "\n".join(markup(line) for line in text.split("\n"))
