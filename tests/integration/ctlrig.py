# SPDX-License-Identifier: MIT
"""Rig of brokerctl's tests: a broker, its clients and brokerctl.

The first arguments of the test are BROKERCTL BROKERD STATS_CLIENT.
"""
import json
import os
import re
import signal
import subprocess
import sys

from started import LIMIT, expect, start, start_broker, wait_for

CTL, BROKERD, CLIENT = sys.argv[1:4]
# The most hostile name of a plan that the broker accepts.
NAME = 'a"b\\c</d>\'%s'
OK, FAILED, USAGE, NO_BROKER, NOT_PERMITTED = range(5)
REASONS = {'gpu-available', 'gpu-unavailable', 'cpu-fallback', 'cost-model', 'memory-constraint',
           'user-preference', 'below-threshold', 'contention', 'breaker-open'}

PLURAL_OF_ONE = re.compile(r'\b1 (?:sessions|plans|tenants|tasks|times|workers|entries|requests|records|rows)\b')


class Broker:
    def __init__(self, folder, *options, name='sock'):
        self.socket = os.path.join(folder, name)
        self.log_path = os.path.join(folder, f'{name}.log')
        self.process = start_broker([BROKERD, '--socket', self.socket, '--cache', folder, *options],
                                    self.log_path, LIMIT)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(LIMIT)


class Client:
    """A client of the broker; @name names its small plan, @program is the client or a copy of it."""

    def __init__(self, broker, name=NAME, program=CLIENT, **options):
        self.process = start([program, broker.socket, name], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, **options)

    def begin(self, small, large):
        self.process.stdin.write(f'{small} {large}\n')
        self.process.stdin.flush()

    def finish(self):
        expect(self.process.stdout.readline() == 'ok\n', 'the client failed')

    def run(self, small, large):
        self.begin(small, large)
        self.finish()

    def leave(self, n):
        """Submit tasks to the first device beside the CPU, and do not wait for them."""
        self.begin('leave', n)
        self.finish()

    def refuse(self, n):
        """Submit entries that the broker refuses, with user_data from 1000000 on."""
        self.begin('refuse', n)
        self.finish()

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LIMIT)


def ctl(broker, *arguments, status=OK, **options):
    options = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    result = subprocess.run([CTL, '--socket', broker.socket, *arguments], timeout=LIMIT,
                            check=False, **options)
    expect(status is None or result.returncode == status, arguments, 'ended with', result.returncode, result.stderr,
           result.stdout)
    expect(not status or result.stderr, arguments, 'says nothing')
    text = (result.stdout or b'').decode()
    said = text + (result.stderr or b'').decode()
    expect(not PLURAL_OF_ONE.search(said), arguments, said)
    return text


def complaint(broker, *arguments, status=USAGE, **options):
    """Return what brokerctl writes to standard error."""
    result = subprocess.run([CTL, '--socket', broker.socket, *arguments], timeout=LIMIT, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    expect(result.returncode == status, arguments, result)
    return result.stderr.decode()


def checks(broker, **options):
    """Return the findings of brokerctl check."""
    result = subprocess.run([CTL, '--socket', broker.socket, 'check', '--json'], timeout=LIMIT,
                            stdout=subprocess.PIPE, check=False, **options)
    found = objects(result.stdout.decode())
    expect(result.returncode == (FAILED if any(entry['health'] == 'fail' for entry in found) else OK),
           result)
    return found


def objects(text):
    lines = text.splitlines()
    expect(all(lines), 'an empty line')
    # NaN and Infinity are not JSON.
    return [json.loads(line, parse_constant=lambda name: expect(False, name)) for line in lines]


def of_type(found, name):
    return [entry for entry in found if entry['type'] == name]
