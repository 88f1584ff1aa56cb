"""The pages of the journal explorer: their widgets, and how each is emptied. `explorer` fills them,
and lists classes.

A page whose act failed is empty: what stood there was the answer to another question.
"""

from __future__ import annotations

from typing import Any

from ipywidgets import (
    HTML,
    Dropdown,
    HBox,
    IntSlider,
    SelectMultiple,
    Text,
    Textarea,
    ToggleButtons,
    VBox,
)

from labkit.journal.frames import Verdicts
from labkit.lab.panels.parts import AS_WIDE_AS_IT_IS, Chooser, Tabs, button, row, table

__all__ = [
    "ALL", "CSS", "EventsPage", "LawsPage", "PicturePage", "ReplayPage", "SqlPage", "count",
    "frame_table", "menu", "text", "typed",
]  # fmt: skip

ALL = object()  # what a menu has chosen where nothing is: None is a widget's word for no option


# The style is loaded again wherever JupyterLab puts the panel anew: one listener is enough. It
# hears the key before the box does, which lets no key out.
CSS = """<style onload="
const panel = this.closest('.labkit-explorer');
if (panel && !panel.hearsCtrlEnter) {
  panel.hearsCtrlEnter = true;
  panel.addEventListener('keydown', (event) => {
    const isAsked = event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.repeat;
    if (isAsked && event.target.closest('.labkit-explorer-sql'))
      panel.querySelector('.labkit-explorer-ask')?.click();
  }, true);
}
">
.labkit-explorer .labkit-columns { align-items: flex-start; gap: 10px; }
.labkit-explorer .labkit-explorer-left { flex: 0 0 12em; }
.labkit-explorer .labkit-explorer-middle { flex: 1 1 50%; min-width: 0; }
.labkit-explorer .labkit-explorer-right { flex: 1 1 36%; min-width: 0; }
.labkit-explorer .labkit-explorer-standing { flex: 0 0 auto; max-width: 42%; }
.labkit-explorer .labkit-explorer-replayed { flex: 1 1 50%; min-width: 0; }
.labkit-explorer .labkit-explorer-timeline { max-height: 26em; overflow: auto; }
.labkit-explorer .widget-toggle-buttons { display: flex; align-items: center; }
.labkit-explorer .labkit-explorer-kinds, .labkit-explorer .labkit-rows,
.labkit-explorer .labkit-explorer-sql { flex-direction: column; height: auto; }
.labkit-explorer .labkit-explorer-kinds .widget-label, .labkit-explorer .labkit-rows .widget-label,
.labkit-explorer .labkit-explorer-sql .widget-label { text-align: left; align-self: flex-start; }
.labkit-explorer .labkit-explorer-kinds select, .labkit-explorer .labkit-rows select,
.labkit-explorer .labkit-explorer-sql textarea { box-sizing: border-box; width: 100%; margin: 0;
  flex: 0 0 auto; height: 250px; }
.labkit-explorer .labkit-explorer-detail { width: 100%; }
.labkit-explorer .labkit-explorer-detail button { padding: 0 5px; }
.labkit-explorer .labkit-explorer-findings select { height: 96px; }
.labkit-explorer .labkit-explorer-sql textarea { height: 110px; }
.labkit-explorer .labkit-explorer-right .labkit-table { max-height: 270px; }
.labkit-explorer .labkit-explorer-right pre.labkit-block { max-height: 250px; }
.labkit-explorer .labkit-explorer-right td, .labkit-explorer-verdicts td:last-child {
  white-space: normal; overflow-wrap: anywhere; }
.labkit-explorer .labkit-explorer-right td:first-child { white-space: nowrap; }
.labkit-explorer .labkit-explorer-kinds { margin: 0; }
.labkit-explorer .widget-toggle-buttons .widget-label { margin-right: 6px; flex: none; }
.labkit-explorer .labkit-explorer-verdicts .labkit-table { max-height: 250px; }
</style>"""


class EventsPage:
    """The list, the kinds that it is limited to, and what is known of the chosen event."""

    def __init__(self) -> None:
        self.kinds = SelectMultiple(
            description="Kinds", rows=9, tooltip="Limits the list to these kinds; none chosen: all",
            layout={"width": "100%"},
        ).add_class("labkit-explorer-kinds")  # fmt: skip
        self.chooser = Chooser("Events", "labkit-explorer-events", rows=13)
        names = ("row", "json", "neighbours", "law")
        self.row, self.json, self.neighbours, self.law = (
            HTML().add_class(f"labkit-explorer-{name}") for name in names
        )
        pages = {
            "Row": self.row, "JSON": self.json, "Neighbours": self.neighbours, "Law": self.law,
        }  # fmt: skip
        self.detail = Tabs("Of it", pages, "labkit-explorer-detail")
        kinds = VBox([self.kinds]).add_class("labkit-explorer-left")
        self.chooser.root.add_class("labkit-explorer-middle")
        self.detail.root.add_class("labkit-explorer-right")
        columns = [kinds, self.chooser.root, self.detail.root]
        self.root = HBox(columns, layout={"width": "100%"}).add_class("labkit-columns")

    def clear(self, said: str = "") -> None:
        for shown in (self.row, self.json, self.neighbours, self.law):
            shown.value = said


class PicturePage:
    def __init__(self) -> None:
        self.by = ToggleButtons(
            options=["order", "time"], description="By", tooltip="What goes from left to right",
            style={"button_width": "auto", **AS_WIDE_AS_IT_IS},
        ).add_class("labkit-explorer-by")  # fmt: skip
        self.shown = HTML().add_class("labkit-explorer-timeline")
        self.root = VBox([self.by, self.shown])

    def clear(self) -> None:
        self.shown.value = ""


class ReplayPage:
    def __init__(self) -> None:
        # Not while it is dragged: each place costs a picture.
        self.slider = IntSlider(
            description="Event", tooltip="After which event", min=1, max=1,
            continuous_update=False, style=AS_WIDE_AS_IT_IS, layout={"width": "60%"},
        ).add_class("labkit-explorer-slider")  # fmt: skip
        self.back = button("Back", "One event back", "labkit-explorer-back")
        self.forth = button("On", "One event on", "labkit-explorer-on")
        self.where = HTML().add_class("labkit-explorer-where")
        self.standing = HTML().add_class("labkit-explorer-standing")
        self.shown = HTML().add_class("labkit-explorer-replayed")
        side = HBox([self.standing, self.shown]).add_class("labkit-columns")
        self.root = VBox([row(self.slider, self.back, self.forth), self.where, side])

    def clear(self) -> None:
        self.where.value = self.standing.value = self.shown.value = ""

    @staticmethod
    def style(style: str) -> str:
        """That of a picture which stands beside tables."""
        return "panel" if style == "notebook" else f"{style} panel"


class LawsPage:
    def __init__(self) -> None:
        self.verdicts = HTML().add_class("labkit-explorer-verdicts")
        self.findings = Chooser("Findings", "labkit-explorer-findings", 5, "finding")
        self.root = VBox([self.verdicts, self.findings.root])

    def show(self, verdicts: Verdicts) -> int:
        """How many findings there are."""
        self.verdicts.value = frame_table(verdicts.frame().reset_index(), "the laws")
        found = verdicts.findings()
        texts = [
            f"law {law}: {what}" for law, what in zip(found["law"], found["what"], strict=True)
        ]
        self.findings.fill(range(len(texts)), lambda keys: [texts[key] for key in keys])
        return len(texts)

    def clear(self) -> None:
        self.verdicts.value = ""
        self.findings.fill((), lambda keys: [])


class SqlPage:
    def __init__(self) -> None:
        self.starter = menu("Question", "starter", "Asks one of five questions to begin with")
        tooltip = "Runs the query, for reading only; in the box Ctrl+Enter does the same"
        self.ask = button("Ask", tooltip, "labkit-explorer-ask")
        self.box = Textarea(
            description="SQL", tooltip="A query, for reading only", rows=5,
            style=AS_WIDE_AS_IT_IS, layout={"width": "auto"},
            placeholder="SELECT kind, count(*) FROM journal GROUP BY kind",
        ).add_class("labkit-explorer-sql")  # fmt: skip
        self.answer = HTML().add_class("labkit-explorer-answer")
        first = row(self.starter, self.ask)
        self.root = VBox([first, self.box, self.answer], layout={"width": "100%"})

    def clear(self) -> None:
        self.answer.value = ""


def menu(description: str, name: str, tooltip: str) -> Any:
    return Dropdown(
        description=description, options=[("all", ALL)], tooltip=tooltip, style=AS_WIDE_AS_IT_IS,
        layout={"width": "auto", "max_width": "40em"},
    ).add_class(f"labkit-explorer-{name}")  # fmt: skip


def text(description: str, name: str, tooltip: str, width: str, placeholder: str = "") -> Any:
    return Text(
        description=description, tooltip=tooltip, continuous_update=False, placeholder=placeholder,
        style=AS_WIDE_AS_IT_IS, layout={"width": width},
    ).add_class(f"labkit-explorer-{name}")  # fmt: skip


def count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def typed(text: str) -> str:
    """As somebody types it in a cell, over several lines where that says the same."""
    is_plain = text.isprintable() or text.replace("\n", "").isprintable()
    return f'"""{text}"""' if is_plain and not {*'\\"'} & {*text} else repr(text)


def frame_table(frame: Any, label: str, total: int = 0, *, has_more: bool = False) -> str:
    found = frame.itertuples(index=False, name=None)
    return table(list(frame.columns), found, label, total=total, has_more=has_more)
