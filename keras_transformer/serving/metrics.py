"""Counters of a server, in the format of Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

PREFIX = "keras_transformer"
SIZES = [2**n for n in range(11)]
SECONDS = [0.005 * 2**n for n in range(14)]


class Metrics:
    """Counters of one server; two servers in a process do not share them."""

    def __init__(self):
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        def make(kind, name, text, labels, **options):
            return kind(f"{PREFIX}_{name}", text, labels, registry=self.registry, **options)

        of_request, of_model = ["route", "method"], ["model"]
        self.requests = make(Counter, "requests", "Requests.", [*of_request, "status"])
        self.latency = make(
            Histogram, "request_seconds", "Time of a request.", of_request, buckets=SECONDS
        )
        self.waiting = make(Gauge, "waiting_texts", "Texts that wait for a model.", of_model)
        self.streams = make(Gauge, "streams", "Answers that are streamed.", of_model)
        self.batches = make(
            Histogram, "batch_texts", "Texts answered together.", of_model, buckets=SIZES
        )
        self.computing = make(
            Histogram, "batch_seconds", "Time of a batch.", of_model, buckets=SECONDS
        )
        self.tokens = make(Counter, "tokens", "Tokens read.", of_model)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a request; status 0: its client left."""
        method = method if method in ("GET", "POST", "OPTIONS", "HEAD") else "other"
        self.requests.labels(route, method, status).inc()
        self.latency.labels(route, method).observe(seconds)

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)
