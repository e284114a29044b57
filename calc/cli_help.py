"""Help in sections: commands by what they are for, options by what they are about."""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from .errors import say

PURPOSES = {
    "What there is": ("models", "hardware", "show"),
    "Does it fit, how fast is it": ("fit", "sweep", "compare", "roofline"),
    "Where a number comes from, what meets a target": ("explain", "solve", "quantize"),
    "What would help": ("levers", "speculate", "plan"),
    "Servers": ("serve", "explain-log"),
    "Decisions as files, pages and figures": ("study", "report", "plot"),
    "How far off it is": ("accuracy", "calibrate", "validate"),
}
"""Commands by the question that leads to them, in the order of the help."""


class Purposes(TyperGroup):
    """The commands of `rooflm --help` by purpose, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section a purpose."""
        for purpose, names in PURPOSES.items():
            rows = [(n, self.commands[n].get_short_help_str(200)) for n in names]
            with formatter.section(purpose):
                formatter.write_dl(rows, col_max=13)


class Sections(TyperCommand):
    """A command whose options stand under headings once there are many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Tell of an option that is said twice: the last one counts, as in a line typed again."""
        typed = [word.partition("=")[0] for word in args if word.startswith("--")]
        for parameter in self.get_params(ctx):
            once = parameter.param_type_name == "option" and not getattr(
                parameter, "multiple", True
            )
            if once and sum(typed.count(name) for name in parameter.opts) > 1:
                say(f"rooflm: note: {parameter.opts[0]} is said more than once; the last counts")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options of the command itself, then each group of options."""
        groups = _groups(str(ctx.info_name))
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                own = "Arguments" if parameter.param_type_name == "argument" else "Options"
                name = parameter.name or ""
                heading = next((h for h, group in groups.items() if name in group), own)
                rows.setdefault(heading, []).append(row)
        for heading in ("Arguments", "Options", *groups):
            if heading in rows:
                with formatter.section(heading):
                    formatter.write_dl(rows[heading])


def _groups(command: str) -> dict[str, Iterable[str]]:
    """Give the names of options under each heading; some words mean something else elsewhere."""
    from . import options, options_memory, options_serve

    own: dict[str, dict[str, Iterable[str]]] = {
        "fit": {"Memory of an engine": options_memory.MEMORY},
        "serve": {
            "Traffic": options_serve.TRAFFIC,
            "The engine that serves": options_serve.ENGINE,
            "What is promised": options_serve.PROMISED,
        },
    }
    return own.get(command, {}) | {
        "Drafts": options.DRAFTED,
        "Devices and layout": options.LAYOUT,
        "Shared prefixes, adapters, prompts elsewhere": options.TERMS | options.HANDOFF,
        "How it is counted": ("set", "accounting", *options.COUNTED, *options.ESTIMATED),
        "Cost": options.COSTED,
        "Files of your own": options.FILES,
        "Figures": options.PLOTTED,
        "Output": (*options.PRINTED, "help"),
    }
