"""What Ray's own schema keeps of a configuration of Serve; a process of its own, as Ray warns."""

import json
import sys

from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema


def main() -> None:
    """Reads a configuration as JSON and writes what is left of it.

    Ray drops names that it does not know without a word; a value that it does not take is an error.
    """
    config = json.load(sys.stdin)
    kept = ServeDeploySchema.model_validate(config).model_dump(mode="json", exclude_unset=True)
    for application in kept["applications"]:
        for deployment in application["deployments"]:
            scaling = AutoscalingConfig.model_validate(deployment["autoscaling_config"])
            deployment["autoscaling_config"] = scaling.model_dump(mode="json", exclude_unset=True)
    json.dump(kept, sys.stdout)


if __name__ == "__main__":
    main()
