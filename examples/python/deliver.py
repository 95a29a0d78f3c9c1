"""Delivers one message: POSTs it to RECEIVER_URL. Replace it by what your messages are for.

The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice."""

import json
import os
import urllib.error
import urllib.request
from typing import NamedTuple


RECEIVER_URL = os.environ["RECEIVER_URL"]  # a worker without it ends before it claims


class Outcome(NamedTuple):
    state: str
    error_code: str | None = None


def deliver(event_id: object, payload: object) -> Outcome:
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(event_id)}
    request = urllib.request.Request(RECEIVER_URL, json.dumps(payload).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=5):
            return Outcome("DISPATCHED")
    except urllib.error.HTTPError as error:
        state = "FAILED" if error.code in (400, 422) else "RETRYABLE"
        return Outcome(state, f"HTTP_{error.code}")
    except Exception as error:  # refused, too slow, broken off: it may have arrived
        return Outcome("RETRYABLE", type(error).__name__)
