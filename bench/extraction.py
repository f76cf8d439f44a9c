"""Choose from e-graphs of several shapes and sizes, and write cost, greedy cost, gap and time as JSON.

python -m bench.extraction [--output FILE] [--time-limit S]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highspy

from bench import workloads
from bench.egraphs import EGraphData, random_egraph, saturated
from frittata.extract.egraph_json import extract_egraph, from_dict
from frittata.frontends.torch_export import from_module

RESULTS = Path(__file__).parent / "results"


def _model(workload: workloads.Workload) -> EGraphData:
    return saturated(from_module(*workload).model)


EGRAPHS: dict[str, Callable[[], EGraphData]] = {
    "encoder layer, saturated": lambda: _model(workloads.encoder_layer()),
    "four encoder layers, saturated": lambda: _model(workloads.stacked_encoder(4)),
    "random, little shared": lambda: random_egraph(1, 1000, reach=1.0, back=0.0),
    "random, local": lambda: random_egraph(1, 300, reach=0.05, back=0.0),
    "random, local, cyclic": lambda: random_egraph(1, 300, reach=0.05, back=0.1),
    "random, few choices": lambda: random_egraph(1, 4000, choices=1.3, reach=0.01, back=0.02),
    "random, local, large": lambda: random_egraph(1, 3500, reach=0.01, back=0.0),
    "random, local, cyclic, large": lambda: random_egraph(1, 3500, reach=0.01, back=0.1),
    "random, local, cyclic, 50,000": lambda: random_egraph(1, 17_000, reach=0.002, back=0.02),
    "random, wide, 50 roots, 50,000": lambda: random_egraph(1, 17_000, reach=0.3, back=0.02, roots=50),
}


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.extraction", description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "extraction.json")
    parser.add_argument("--time-limit", type=float, default=20.0)
    arguments = parser.parse_args()
    rows = [_measure(name, make(), arguments.time_limit) for name, make in EGRAPHS.items()]
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    found = {"machine": machine, "highs": highspy.Highs().version(), "time_limit_s": arguments.time_limit, "rows": rows}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {arguments.output.name}")


def _measure(name: str, data: EGraphData, time_limit_s: float) -> dict[str, Any]:
    answer = extract_egraph(from_dict(data), time_limit_s)
    line = f"{name:32} {len(data['nodes']):6} nodes  greedy {answer.greedy_cost:10.1f}"
    print(f"{line}  chosen {answer.dag_cost:10.1f}  gap {answer.gap:7.2%}  {answer.seconds:5.1f} s", flush=True)
    return {
        "name": name,
        "nodes": len(data["nodes"]),
        "greedy_cost": answer.greedy_cost,
        "dag_cost": answer.dag_cost,
        "gap": answer.gap,
        "seconds": answer.seconds,
    }


if __name__ == "__main__":
    main()
