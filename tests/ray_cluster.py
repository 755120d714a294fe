"""Runs Ray on this machine, small, alone or with the application on it; a process of its own."""

import sys
from pathlib import Path

import ray
import yaml
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve.schema import ServeDeploySchema

STORE_BYTES = 80 << 20


def main(config: Path | None) -> None:
    """Says where Ray is, deploys what a file says, and stays until the standard input ends."""
    ray.init(
        num_cpus=2, object_store_memory=STORE_BYTES, include_dashboard=False, log_to_driver=False
    )
    try:
        if config is not None:
            schema = ServeDeploySchema.model_validate(yaml.safe_load(config.read_text()))
            client = serve_start(
                http_options=schema.http_options.model_dump(), proxy_location=schema.proxy_location
            )
            client.deploy_apps(schema, _blocking=True)
        sys.stderr.write(f"ready at {ray.get_runtime_context().gcs_address}\n")
        sys.stdin.read()
    finally:
        if config is not None:
            serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
