"""Metrics of a running server, for Prometheus to collect."""

from collections.abc import Callable, Iterator

import torch
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.engine.admission import Admission
from service.engine.batch import Batch
from service.engine.engine import Engine
from service.errors import STATUS
from service.version import release

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Bounds of the histograms of durations (seconds)."""

ROWS = tuple(float(1 << power) for power in range(0, 17, 2))
"""Bounds of the histogram of rows (a count)."""

ELEMENTS = tuple(float(1 << power) for power in range(6, 27, 2))
"""Bounds of the histogram of elements (a count)."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
OTHER = "other"
"""Stands for every method, and every path, that is none of ours."""


class Metrics:
    """What is counted as it happens; every label has few values, whatever callers send."""

    def __init__(self) -> None:
        # When each series began doubles their number, and nothing that reads them needs it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self.registry = registry
        self.requests = Histogram(
            "probmap_request_duration_seconds",
            "Requests, from arrival to the end of the answer.",
            ("route", "method", "code"),
            buckets=SECONDS,
            registry=registry,
        )
        self.queue = Histogram(
            "probmap_queue_duration_seconds",
            "How long a request waited to be computed.",
            ("mapping",),
            buckets=SECONDS,
            registry=registry,
        )
        self.compute = Histogram(
            "probmap_compute_duration_seconds",
            "How long a batch was computed.",
            ("mapping",),
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_requests = Histogram(
            "probmap_batch_requests",
            "Requests that were computed together.",
            buckets=ROWS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "probmap_batch_rows",
            "Rows that were computed together.",
            buckets=ROWS,
            registry=registry,
        )
        self.batch_elements = Histogram(
            "probmap_batch_elements",
            "Logits that were computed together.",
            buckets=ELEMENTS,
            registry=registry,
        )
        self.failed = Counter(
            "probmap_failed",
            "Requests answered with an error, by its code.",
            ("reason",),
            registry=registry,
        )
        self.cancelled = Counter(
            "probmap_cancelled",
            "Requests whose caller left (disconnected) or whose time was up (deadline).",
            ("reason",),
            registry=registry,
        )
        self.streamed = Counter(
            "probmap_streamed_requests",
            "Requests that came in streams and on WebSockets.",
            registry=registry,
        )
        # From the start: what begins at 1 has never risen, and no alarm would sound.
        for reason in ("disconnected", "deadline"):
            self.cancelled.labels(reason)
        for code in STATUS:
            self.failed.labels(code)

    def watch(self, engine: Engine, admission: Admission) -> None:
        """Reads the state of these whenever the metrics are collected."""
        self.registry.register(State(engine, admission))

    def observe_request(self, route: str | None, method: str, code: int, seconds: float) -> None:
        """Notes a request that was answered.

        Args:
            route: the template of its path; None: there is no such route.
            method: of HTTP.
            code: the status; 499 when the client left.
            seconds: from arrival to the end of the answer.
        """
        known = method if method in METHODS else OTHER
        self.requests.labels(route or OTHER, known, str(code)).observe(seconds)

    def observe_batch(self, batch: Batch) -> None:
        """Notes a batch that was computed."""
        mapping = batch.entries[0].job.request.mapping.name
        self.compute.labels(mapping).observe(batch.seconds)
        self.batch_requests.observe(len(batch.entries))
        self.batch_rows.observe(batch.rows)
        self.batch_elements.observe(batch.elements)

    def observe_wait(self, mapping: str, seconds: float) -> None:
        """Notes how long a request waited to be computed (seconds)."""
        self.queue.labels(mapping).observe(seconds)

    def count_failure(self, code: str) -> None:
        """Notes a request that was answered with an error of this code."""
        self.failed.labels(code).inc()
        if code == "deadline_exceeded":
            self.cancelled.labels("deadline").inc()

    def count_departure(self) -> None:
        """Notes a request whose caller left before its answer."""
        self.cancelled.labels("disconnected").inc()

    def count_streamed(self) -> None:
        """Notes a request that came in a stream or on a WebSocket."""
        self.streamed.inc()


class State(Collector):
    """What the engine and the admission hold at the moment they are asked."""

    def __init__(self, engine: Engine, admission: Admission) -> None:
        self._engine = engine
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        """One family of metrics after the other."""
        engine, admission = self._engine, self._admission
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "probmap_queue_rows": ("Rows that wait to be computed.", lambda: engine.queue.rows),
            "probmap_queue_requests": (
                "Requests and unfinished batches that wait to be computed.",
                lambda: len(engine.queue),
            ),
            "probmap_inflight_requests": (
                "Requests that were let in and are not answered yet.",
                lambda: admission.permits,
            ),
            "probmap_inflight_rows": (
                "Rows that wait or are being computed.",
                lambda: admission.held_rows,
            ),
            "probmap_inflight_bytes": (
                "Bodies, logits and answers that requests hold.",
                lambda: admission.held_bytes,
            ),
            "probmap_inflight_limit_rows": (
                "The most rows that may wait or be computed.",
                lambda: admission.limits["rows"],
            ),
            "probmap_inflight_limit_bytes": (
                "The most that bodies, logits and answers may take.",
                lambda: admission.limits["bytes"],
            ),
            "probmap_ready": ("Whether the server is ready.", lambda: engine.is_ready),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=float(value()))
        rejected = CounterMetricFamily(
            "probmap_rejected", "Requests that were not let in.", labels=("reason",)
        )
        for reason in ("bytes", "rows", "draining"):
            rejected.add_metric((reason,), admission.refused[reason])
        yield rejected
        yield CounterMetricFamily(
            "probmap_worker_restarts", "Workers that were replaced.", value=engine.restarts
        )
        up = GaugeMetricFamily("probmap_worker_up", "Whether a worker moves.", labels=("device",))
        for worker in engine.workers:
            up.add_metric((str(worker.device),), float(worker.is_moving))
        yield up
        yield from self._memory()
        build = GaugeMetricFamily(
            "probmap_build_info", "Which probmap and torch run.", labels=("version", "torch")
        )
        build.add_metric((release(), torch.__version__), 1.0)
        yield build

    def _memory(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "probmap_device_memory_bytes",
            "Memory of a CUDA device: allocated and reserved by this process, and total.",
            labels=("device", "kind"),
        )
        # Asked before the workers have, torch would set CUDA up, which takes seconds.
        if torch.cuda.is_initialized():
            for worker in self._engine.workers:
                if worker.device.type == "cuda":
                    device = str(worker.device)
                    total = torch.cuda.get_device_properties(device).total_memory
                    family.add_metric((device, "allocated"), torch.cuda.memory_allocated(device))
                    family.add_metric((device, "reserved"), torch.cuda.memory_reserved(device))
                    family.add_metric((device, "total"), total)
        yield family
