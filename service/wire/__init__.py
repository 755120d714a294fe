"""One codec a format: bytes to jobs, evaluations to bytes."""
