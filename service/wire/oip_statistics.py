"""What was asked of a mapping, as Triton's statistics extension shows it."""

from dataclasses import asdict

from service.stages import StageName
from service.statistics import Duration, MappingStatistics
from service.wire.oip_encode import VERSION

NAMES: dict[StageName, str] = {
    "queue": "queue",
    "decode": "compute_input",
    "compute": "compute_infer",
    "encode": "compute_output",
}
"""What the extension calls the stages of an answer."""

NONE = asdict(Duration())


def shown_statistics(name: str, counted: MappingStatistics) -> dict[str, object]:
    """One model's entry; batches are not told apart by their reading and writing."""
    stages = {NAMES[stage]: asdict(counted.stages[stage]) for stage in NAMES}
    return {
        "name": name,
        "version": VERSION,
        "last_inference": counted.last_answered,
        "inference_count": counted.rows,
        "execution_count": counted.batches,
        "inference_stats": {
            "success": asdict(counted.success),
            "fail": asdict(counted.fail),
            **stages,
            "cache_hit": NONE,
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": NONE,
                "compute_infer": asdict(spent),
                "compute_output": NONE,
            }
            for rows, spent in sorted(counted.batch_sizes.items())
        ],
    }
