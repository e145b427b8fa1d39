"""One namespace of a running API server, looked at from outside."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kubernetes.api_server.client import Api, Object
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace of the cluster."""

    api: Api
    name: str

    def objects(self, group: str, plural: str) -> list[Object]:
        return self.api.items(f"/{group}/namespaces/{self.name}/{plural}")

    def pods(self) -> list[Object]:
        return self.objects("api/v1", "pods")

    def pods_of(self, owner: str) -> list[Object]:
        """Those that stay: a cron job of a similar name makes others, at its minute."""
        return [pod for pod in self._named(owner) if not is_of_job(pod)]

    def job_pods_of(self, owner: str) -> list[Object]:
        return [pod for pod in self._named(owner) if is_of_job(pod)]

    def _named(self, owner: str) -> list[Object]:
        return [pod for pod in self.pods() if pod["metadata"]["name"].startswith(f"{owner}-")]

    def wait_ready(self, counts: dict[str, int]) -> None:
        """Until each owner has so many pods, and all of them are ready."""

        def all_ready() -> bool:
            return all(
                len(pods := self.pods_of(owner)) == count and all(map(is_ready, pods))
                for owner, count in counts.items()
            )

        try:
            wait_until(all_ready, "every pod is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self._why()}") from None

    def _why(self) -> list[str]:
        unready = [pod["metadata"]["name"] for pod in self.pods() if not is_ready(pod)]
        events = [event["message"] for event in self.objects("api/v1", "events")]
        return [f"not ready: {unready}", *events[-20:]]


def is_ready(pod: Object) -> bool:
    """Whether Kubernetes takes it for ready."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_of_job(pod: Object) -> bool:
    """Whether it ends when its work is done."""
    return any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", ()))
