"""Runs in a pod, with Python alone: writes to a pool through its gateway, and compares its views with naive Python.
The program comes on standard input.

    python - URL status PATH | ask METHOD PATH BODY | load SEED [ROWS] | watch VIEW | commits

`load` writes until the file /tmp/stop exists, and compares at epochs in between. `watch` reads a view until the file
/tmp/stop-watch exists, and ends badly if it cannot be read once. `commits` writes one row after the other until that
file exists, each when the one before is in every view. The last line of each is a JSON object.
"""

import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
STOP, STOP_WATCH = "/tmp/stop", "/tmp/stop-watch"
PATIENCE_S = 120.0
MOST = 1_000_000


class Refused(Exception):
    """An answer that another try would not change."""


class Gateway:
    def __init__(self, url: str) -> None:
        self._url = url
        self.slowest = 0.0

    def once(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers |= {"Authorization": f"Bearer {TOKEN.read_text()}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            return problem.code, json.loads(problem.read() or b"null")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Repeated while nobody answers, or nobody can: a gateway, or the pool behind it, may be on its way back."""
        begun = time.monotonic()
        while True:
            try:
                status, answer = self.once(method, path, body, **headers)
                if status < 300:
                    self.slowest = max(self.slowest, time.monotonic() - begun)
                    return answer
                if status < 500 and status != 429:
                    raise Refused(f"{method} {path}: {status} {answer}")
                problem: object = answer
            except OSError as error:
                problem = error
            if time.monotonic() - begun > PATIENCE_S:
                sys.exit(f"{method} {path}: nobody answered within {PATIENCE_S:g} s: {problem}")
            time.sleep(0.2)


def compare(gateway: Gateway) -> dict[str, int]:
    """The table and a view over it, at one epoch."""
    reads = {"reads": [{"relation": name, "limit": MOST} for name in ("orders", "spend")]}
    answer = gateway.ask("POST", "/v1/read", reads)
    orders, spend = (result["rows"] for result in answer["results"])
    groups: dict[int, list[Any]] = {}
    for row in orders:
        groups.setdefault(row["customer"], []).append((Decimal(row["total"]), row["placed"]))
    expected = {
        customer: (len(rows), sum(total for total, _ in rows), max(placed for _, placed in rows))
        for customer, rows in groups.items()
    }
    found = {row["customer"]: (row["n"], Decimal(row["total"]), row["latest"]) for row in spend}
    if found != expected or len(found) != len(spend):
        wrong = {key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)}
        sys.exit(
            f"spend at {answer['epoch']}: {[(key, found.get(key), expected.get(key)) for key in sorted(wrong)[:3]]}"
        )
    return {"epoch": answer["epoch"], "orders": len(orders)}


def load(gateway: Gateway, seed: int, count: int) -> dict[str, Any]:
    """`count` rows per write. The last write of each key wins, so what is there in the end is known."""
    rng = random.Random(seed)
    truth = {row["id"]: row for row in gateway.ask("GET", f"/v1/relations/orders/rows?limit={MOST}")["rows"]}
    writes, epochs, token = 0, set(), ""
    put(gateway, "customers", [{"id": id, "name": f"c{id}", "city": f"city {id % 7}"} for id in range(200)], f"{seed}")
    while not os.path.exists(STOP):
        writes += 1
        ids = sorted({rng.randrange(20 * count) for _ in range(count)})
        rows = [order(rng, id) for id in ids]
        name = f"{seed}-{writes}-{os.getpid()}"
        token = put(gateway, "orders", rows, name)
        truth.update({row["id"]: row for row in rows})
        put(gateway, "items", [item(rng, id) for id in ids[:10]], name)
        if writes % 10 == 0:
            epochs.add(compare(gateway)["epoch"])
            print(json.dumps({"writes": writes, "epochs": len(epochs)}), flush=True)
    gateway.ask("POST", "/v1/wait", {}, Belvedere_After=token, Belvedere_Wait="60")
    rows = gateway.ask("GET", f"/v1/relations/orders/rows?limit={MOST}", Belvedere_After=token)["rows"]
    if {row["id"]: row for row in rows} != truth:
        sys.exit(f"orders has {len(rows)} rows and should have {len(truth)}, or rows differ")
    compare(gateway)
    return {"writes": writes, "epochs": len(epochs), "rows": len(rows), "slowest": round(gateway.slowest, 1)}


def watch(gateway: Gateway, view: str) -> dict[str, Any]:
    """Reads without a pause: no read may fail, no epoch go back. Which columns it had, one after the other."""
    seen: list[list[str]] = []
    reads = newest = 0
    while not os.path.exists(STOP_WATCH):
        known = {"Belvedere_After": f"e{newest}"} if newest else {}  # each gateway has its own newest epoch
        status, answer = gateway.once("GET", f"/v1/relations/{view}/rows?limit=3", **known)
        if status != 200 or not answer["rows"] or answer["epoch"] < newest:
            sys.exit(f"read {reads + 1} of {view}, the last one at epoch {newest}: {status} {answer}")
        reads, newest = reads + 1, answer["epoch"]
        columns = list(answer["rows"][0])
        if not seen or seen[-1] != columns:
            seen.append(columns)
            print(json.dumps({"columns": columns, "epoch": newest}), flush=True)
    return {"reads": reads, "seen": seen}


def commits(gateway: Gateway) -> dict[str, Any]:
    """How long each write took to be in every view, in milliseconds."""
    took: list[float] = []
    print("{}", flush=True)
    while not os.path.exists(STOP_WATCH):
        begun = time.monotonic()
        rows = [{"id": -1 - len(took) % 100, "name": f"{begun}", "city": "nowhere"}]
        token = put(gateway, "customers", rows, f"commits-{begun}-{os.getpid()}")
        gateway.ask("POST", "/v1/wait", {}, Belvedere_After=token, Belvedere_Wait="60")
        took.append(round((time.monotonic() - begun) * 1000, 1))
    return {"took": took}


def put(gateway: Gateway, table: str, rows: list[dict[str, Any]], name: str) -> str:
    """The token. By a name, so that a repetition writes nothing."""
    answer = gateway.ask("POST", f"/v1/relations/{table}/rows", rows, Idempotency_Key=f"{table}-{name}")
    return str(answer["token"])


def item(rng: random.Random, order_id: int) -> dict[str, Any]:
    product, quantity = f"product {rng.randrange(30)}", rng.randrange(1, 9)
    return {"order_id": order_id, "line": rng.randrange(3), "product": product, "quantity": quantity, "price": "2.50"}


def order(rng: random.Random, id: int) -> dict[str, Any]:
    total = f"{rng.randrange(-99999, 99999) / 100:.2f}"
    return {"id": id, "customer": rng.randrange(200), "placed": f"2026-0{rng.randrange(1, 10)}-11", "total": total}


def main(url: str, command: str, *words: str) -> None:
    gateway = Gateway(url)
    if command == "status":
        status, answer = gateway.once("GET", words[0])
        print(json.dumps({"status": status, "answer": answer}), flush=True)
    elif command == "ask":
        print(json.dumps({"answer": gateway.ask(words[0], words[1], json.loads(words[2]))}), flush=True)
    elif command == "watch":
        print(json.dumps({"done": True, **watch(gateway, words[0])}), flush=True)
    elif command == "commits":
        print(json.dumps({"done": True, **commits(gateway)}), flush=True)
    else:
        answer = load(gateway, int(words[0]), int(words[1]) if len(words) > 1 else 20)
        print(json.dumps({"done": True, **answer}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
