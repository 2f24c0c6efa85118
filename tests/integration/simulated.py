# SPDX-License-Identifier: MIT
"""Rig for tests over simulated cards: the cards, processes that hold their memory, brokerd, and clients
(model-client.c), which execute commands."""
import contextlib
import json
import os
import subprocess
import tempfile
import time

import started

MIB = 1 << 20
GIB = 1 << 30
GPU = 1
PATIENCE_S = 90


def await_true(what, condition):
    """Waits until condition() is true; fails after PATIENCE_S. Return: what it returned."""
    end = time.monotonic() + PATIENCE_S
    while (begin := time.monotonic()) < end:
        result = condition()
        if result:
            return result
        started.pause(begin, 0.002)
    raise AssertionError(f'in vain: {what}')


def memory_folder():
    """Return a folder in memory if it has as much room as "amdgpu-sim run" demands, else None. Cards make and remove
    files all the time, which takes a file system on a disk much longer."""
    if os.environ.get('TMPDIR') or not os.access('/dev/shm', os.W_OK):
        return None
    about = os.statvfs('/dev/shm')
    return '/dev/shm' if about.f_bavail * about.f_bsize >= GIB else None


class Cards:
    """Simulated cards, in a folder of their own."""

    def __init__(self, sim, *cards):
        self.sim = sim
        self.folder = tempfile.TemporaryDirectory(prefix='rbk-cards-', dir=memory_folder())
        arguments = [text for card in cards for text in ('--card', card)]
        self.control('init', *arguments)
        self.environment = dict(os.environ)
        for line in self.control('env').splitlines():
            name, _, value = line.partition('=')
            self.environment[name] = value

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.folder.cleanup()

    def control(self, command, *arguments):
        return subprocess.run([self.sim, command, '--dir', self.folder.name, *arguments],
                              check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()

    def show(self, card='card0'):
        return json.loads(self.control('show', '--json'))[card]

    def held(self, pid, card='card0'):
        """Return the bytes of VRAM and of GTT that a process holds on a card."""
        mine = [client for client in self.show(card)['clients'] if client['pid'] == pid]
        return sum(c['vram'] for c in mine), sum(c['gtt'] for c in mine)

    @contextlib.contextmanager
    def hog(self, card, *arguments):
        """Start another process that holds memory."""
        with subprocess.Popen([self.sim, 'hog', '--dir', self.folder.name, card, *arguments],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline().strip() == b'ready'
            try:
                yield process.pid
            finally:
                process.stdin.close()
                process.wait(PATIENCE_S)


class Broker(started.Broker):
    """brokerd over @cards; skips the test if there is no Vulkan driver for these. The driver is simulated
    in brokerd's threads, with calls that they would not make otherwise."""
    foreign_calls = frozenset({'memfd_create', 'unlink'})

    def __init__(self, brokerd, cards, *arguments, policy=''):
        super().__init__(brokerd, '--cache=none', '--calibration=none', '--contention=none',
                         '--sandbox=log', *arguments, policy=policy, env=cards.environment)

    def start(self):
        super().start()
        self.skip_unless('device 1: ')

    def has_ended(self):
        return self.process.poll() is not None


class Client:
    """A program with models; see model-client.c for what it can be told."""

    def __init__(self, program, broker):
        self.process = subprocess.Popen([program, broker.socket], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        assert error[0] or status == 0, status

    def tell(self, *words):
        """Return the words of the answer, without the command."""
        self.ask(*words)
        return self.answer(words[0])

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self, command):
        answer = self.process.stdout.readline().split()
        assert answer and answer[0] == command, (command, answer)
        return answer[1:]

    def run(self, name):
        """Return the task's device and the reason for it."""
        _, res, device, reason = self.tell('run', name)
        assert int(res) == 0, (name, res)
        return int(device), reason

    def stop(self, name):
        """Return the number of tasks, and their counts by (device, reason)."""
        _, n, *counts = self.tell('stop', name)
        by = {}
        for text in counts:
            where, count = text.split('=')
            device, reason = where.split(':')
            by[int(device), reason] = int(count)
        assert sum(by.values()) == int(n)
        return int(n), by

    def memory(self, name):
        """Return the state, bytes resident, bytes required, evictions, and returns."""
        _, state, *numbers = self.tell('memory', name)
        return (state, *(int(number) for number in numbers))

    def await_state(self, name, state):
        """Return the time of the change, in seconds of time.monotonic()."""
        return int(self.tell('await', name, state)[1]) / 1e9

    def charged(self):
        """Return the bytes of VRAM and of GTT that the tenant is charged for."""
        return tuple(int(word) for word in self.tell('tenant')[:2])
