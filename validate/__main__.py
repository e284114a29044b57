"""`python -m rooflm.validate [cpu|cuda]`: measure the device and print one JSON object."""

from __future__ import annotations

import json
import sys


def main(words: list[str]) -> int:
    """Measure and print; exit 3 where torch or the device is missing."""
    device = words[0] if words else "cpu"
    if device not in ("cpu", "cuda") or len(words) > 1:
        sys.stderr.write("rooflm: error: name one device, cpu or cuda.\n")
        return 2
    try:
        import torch
    except ImportError:
        fix = "pip install 'rooflm[validate]'"
        sys.stderr.write(f"rooflm: error: measuring needs torch. Install it: {fix}\n")
        return 3
    if device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("rooflm: error: torch sees no CUDA device. Measure the cpu instead.\n")
        return 3
    from .bandwidth import read_bandwidth

    print(json.dumps({"schema": "rooflm.bandwidth/1"} | read_bandwidth(device), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
