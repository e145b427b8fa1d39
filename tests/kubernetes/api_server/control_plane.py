"""etcd, API server, controllers and scheduler of a real Kubernetes, without kubelets.

All of it listens on 127.0.0.1, keeps its data in a folder of the test run, and ends with it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kubernetes.api_server.client import Api
from tests.kubernetes.api_server.programs import Programs
from tests.support.etcd import etcd_command
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

READY_TIMEOUT_S = 120.0
"""The API server makes its built-in objects at the first start."""
CONTROLLERS_OFF = ("node-lifecycle-controller", "node-ipam-controller", "service-lb-controller")
"""What would find out that the nodes of the tests do not beat, and what needs a cloud."""


@contextlib.contextmanager
def running_control_plane(programs: Programs, folder: Path) -> Iterator[Api]:
    """A cluster without nodes; gives the API of an administrator."""
    etcd_port, peer_port, api_port = free_ports(3)
    token = secrets.token_hex(16)
    key = folder / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    kubeconfig = _kubeconfig(folder, api_port, token)
    with contextlib.ExitStack() as stack:
        _start(
            stack, folder, etcd_command(folder / "etcd", etcd_port, peer_port, "--unsafe-no-fsync")
        )
        _start(stack, folder, _api_server(programs, folder, key, etcd_port, api_port))
        certificate = folder / "certificates" / "apiserver.crt"
        wait_until(certificate.exists, "the API server's certificate", timeout_s=READY_TIMEOUT_S)
        api = Api(f"127.0.0.1:{api_port}", token, certificate)
        wait_until(lambda: _is_ready(api), "the API server is ready", timeout_s=READY_TIMEOUT_S)
        _start(stack, folder, _controller_manager(programs, key, kubeconfig))
        _start(stack, folder, [programs.scheduler, *_common(kubeconfig)])
        yield api


def _is_ready(api: Api) -> bool:
    try:
        return bool(api.get("/readyz")["text"] == "ok")
    except Exception:
        return False


def _api_server(
    programs: Programs, folder: Path, key: Path, etcd_port: int, port: int
) -> list[str | Path]:
    return [
        programs.api_server,
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--disable-admission-plugins=TaintNodesByCondition",
        "--endpoint-reconciler-type=none",
    ]


def _controller_manager(programs: Programs, key: Path, kubeconfig: Path) -> list[str | Path]:
    return [
        programs.controller_manager,
        *_common(kubeconfig),
        f"--service-account-private-key-file={key}",
        f"--controllers=*,{','.join(f'-{name}' for name in CONTROLLERS_OFF)}",
    ]


def _common(kubeconfig: Path) -> list[str]:
    return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]


def _kubeconfig(folder: Path, api_port: int, token: str) -> Path:
    path = folder / "kubeconfig.json"
    server = {"server": f"https://127.0.0.1:{api_port}", "insecure-skip-tls-verify": True}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": server}],
                "users": [{"name": "admin", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                "current-context": "test",
            }
        )
    )
    return path


def _start(stack: contextlib.ExitStack, folder: Path, command: Sequence[str | Path]) -> None:
    """One program whose output goes to a file of its name; it ends with `stack`."""
    log = stack.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
