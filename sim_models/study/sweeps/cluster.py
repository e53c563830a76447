"""A study's points on an existing Dask cluster, whose workers share the folder of results with this machine."""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from t3sim.base.errors import BadInput, Failure, said_by, shown
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure, outcome_of, work
from t3sim.study.tasks.store import Store
from t3sim.study.tasks.task import Task

_NO_DASK = "a cluster needs Dask: pip install 't3sim[cluster]'"
_CONNECT_SECONDS = 10


def check_address(address: str) -> None:
    """Refuse a cluster that anybody on the network could send code to. Raises BadInput, Failure."""
    try:
        parts = urlsplit(address)
        host, has_port = parts.hostname or "", parts.port is not None
    except ValueError:
        host, has_port = "", False
    if parts.scheme not in ("tcp", "tls") or not host or not has_port:
        raise BadInput(f"scheduler = {shown(address)} is no address such as tcp://127.0.0.1:8786 or tls://HOST:8786")
    if parts.scheme == "tcp" and not _is_loopback(host):
        raise BadInput(f"scheduler = {shown(address)} is another machine without encryption: use "
                       f"tls://{host}:{parts.port}, with certificates in Dask's configuration")
    if parts.scheme == "tls":
        _check_certificates(address)


def _check_certificates(address: str) -> None:
    """Refuse TLS for which Dask's configuration names no certificates that can be read. Raises BadInput, Failure."""
    try:
        from distributed.security import Security
    except ImportError:
        raise Failure(_NO_DASK) from None
    try:
        reason = "" if Security().get_connection_args("client")["ssl_context"] else "it names none"
    except (OSError, ValueError) as error:  # ssl's errors are of the system's
        reason = said_by(error)
    if reason:
        raise BadInput(f"scheduler = {address} needs certificates in Dask's configuration, "
                       f"distributed.comm.tls.client: {reason}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run_on_cluster(tasks: Sequence[Task], store: Store, address: str, monitor: Monitor) -> Outcome:
    """Return the results of all tasks that could be done, like `run_tasks`; what is in the store is not done again.

    Workers write their own results: what is finished is kept if the scheduler, a worker or this process is killed, and
    another worker repeats what a dead one had begun. Raises Failure without an answer of the scheduler.
    """
    try:
        from distributed import Client, as_completed
        from distributed.comm import CommClosedError
    except ImportError:
        raise Failure(_NO_DASK) from None

    with outcome_of(tasks, store) as (outcome, missing):
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise Failure(f"no scheduler answers at {address}: {str(error).splitlines()[0]}") from None
        try:
            for worker, threads in client.nthreads().items():
                if threads > 1:
                    raise BadInput(f"scheduler = {address}: the worker {worker} runs several tasks in one process: "
                                   "start workers with --nthreads 1")
            monitor.start(sum(task.seconds for task in missing), len(missing), len(outcome.stored_keys))
            worker_store = Store(store.folder.resolve(), store.fallback)
            running = {client.submit(_work_once, task, worker_store, key=task.key, pure=False): task
                       for task in missing}
            seconds = 0.0
            for future in as_completed(list(running)):
                if future.status == "cancelled":  # Dask cancels all when it loses the scheduler
                    raise CommClosedError
                task = running.pop(future)
                seconds += task.seconds
                if (problem := _problem(future)) is None:
                    monitor.finished(task.label, len(missing) - len(running), len(missing))
                else:
                    outcome.failures[task.key] = failure = TaskFailure(task.label, *problem)
                    monitor.failed(failure)
                monitor.advance(seconds, [task.label for task in running.values()])
        except CommClosedError:
            raise Failure(f"the scheduler at {address} is gone: finished results are kept") from None
        finally:
            client.close(timeout=2)
    return outcome


def _work_once(task: Task, store: Store) -> tuple[str, str] | None:
    """Work on a task in a worker, unless its result is there.

    What a dead worker had finished a moment before is asked for again, and is there.
    """
    return None if store.load(task) is not None else work(task, store)


def _problem(future) -> tuple[str, str] | None:
    if future.status == "error":  # the worker died again and again, or cannot load this program
        return " ".join(str(future.exception()).split()), ""
    return future.result()
