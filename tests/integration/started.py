# SPDX-License-Identifier: MIT
"""Processes that a test starts: none of them outlives it, however it ends."""
import atexit
import signal
import subprocess
import sys
import time

# What a shell runs in the background ignores it, and so would everything that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
_started = []


def start(command, **options):
    """As subprocess.Popen()."""
    process = subprocess.Popen(command, **options)
    _started.append(process)
    return process


def await_listening(process, log_path, limit_s):
    """Waits until brokerd says that it listens: its socket is there a little earlier. Else the test ends."""
    end = time.monotonic() + limit_s
    while True:
        has_ended = process.poll() is not None
        with open(log_path, encoding='utf-8', errors='replace') as log:
            said = log.read()
        if 'listening on' in said:
            return
        if has_ended or time.monotonic() > end:
            print('brokerd', 'has ended:' if has_ended else 'does not listen:', said)
            sys.exit(1)
        time.sleep(0.02)


def start_broker(command, log_path, limit_s, **options):
    """brokerd that listens, by its command line; its log is at log_path. Return: its process."""
    with open(log_path, 'wb') as log:
        process = start(command, stderr=log, **options)
    await_listening(process, log_path, limit_s)
    return process


@atexit.register
def _end():
    for process in _started:
        if process.poll() is None:
            process.kill()
            process.wait()
