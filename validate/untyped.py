"""torch without its types, which leave most of what it returns unknown."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch as typed_torch

torch: Any = typed_torch
functional: Any = typed_torch.nn.functional
Tensor: TypeAlias = Any
