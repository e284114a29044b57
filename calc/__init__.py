"""The calculator: formulas, models, machines, answers, and the command line.

`from rooflm.calc import sweep` and the other names of `__all__` are its Python interface, worked
through in docs/python.md. These names are stable; the modules behind them are not. Where a module
has the name of a function (`sweep` is one), the attribute of the package is the function, and
`from rooflm.calc.sweep import ...` reaches the module.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .api import (
        Case,
        Machine,
        Model,
        RooflmError,
        calibrate,
        case,
        columns,
        compare,
        explain,
        explain_log,
        fit,
        formulas,
        grid,
        hardware,
        levers,
        machine,
        model,
        models,
        plan,
        quantize,
        roofline,
        serve,
        show,
        solve,
        speculate,
        study,
        sweep,
    )

__all__ = [
    "Case", "Machine", "Model", "RooflmError", "calibrate", "case", "columns",
    "compare", "explain", "explain_log", "fit", "formulas", "grid", "hardware", "levers",
    "machine", "model", "models", "plan", "quantize", "roofline", "serve", "show", "solve",
    "speculate", "study", "sweep",
]  # fmt: skip


class _Package(ModuleType):
    """The package, whose names are those of `api`, imported when the first is asked for."""

    def __getattr__(self, name: str) -> object:
        """Find a public name; a command imports none of them."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import api

        return getattr(api, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Keep public names free of modules: the import of one would set it."""
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
