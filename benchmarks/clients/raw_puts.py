"""Objects put side by side with boto3 and nothing else: the rate, and how long each took."""

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config


def main() -> None:
    """Print {"rate" in MB/s, "p50", "p99" in ms}; credentials come from the environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("bucket")
    parser.add_argument("--bytes", type=int, default=8 << 20)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--at-once", type=int, default=4)
    chosen = parser.parse_args()
    config = Config(
        s3={"addressing_style": "path"},
        max_pool_connections=chosen.at_once,
        request_checksum_calculation="when_required",
    )
    client = boto3.client("s3", endpoint_url=chosen.url, config=config)
    body = os.urandom(chosen.bytes)

    def put(number: int) -> float:
        started = time.monotonic()
        client.put_object(Bucket=chosen.bucket, Key=f"raw/{number:08}", Body=body)
        return (time.monotonic() - started) * 1_000

    started = time.monotonic()
    with ThreadPoolExecutor(chosen.at_once) as executor:
        delays = sorted(executor.map(put, range(chosen.objects)))
    seconds = time.monotonic() - started
    found = {
        "rate": chosen.objects * chosen.bytes / seconds / 1e6,
        "p50": statistics.median(delays),
        "p99": delays[int(len(delays) * 0.99)],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
