#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerd under a service manager, which this test imitates.

    service.py BROKERD STATS_CLIENT

The state arrives as datagrams, and signs of life arrive only while the process runs. No check depends
on speed.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from started import LIMIT, expect, start

BROKERD, CLIENT = sys.argv[1:3]
IDLE = r'1 device; 0 sessions; CPU (not )?contended'


class Manager:
    """A service manager with one service."""

    def __init__(self, folder, *options, watchdog_us=None, wrap=(), **popen):
        self.path = os.path.join(folder, 'notify')
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.path)
        self.notify.settimeout(LIMIT)
        self.signs = 0
        self.log = os.path.join(folder, 'log')
        environment = {**os.environ, 'NOTIFY_SOCKET': self.path}
        if watchdog_us:
            environment['WATCHDOG_USEC'] = str(watchdog_us)
        with open(self.log, 'wb') as log:
            self.process = start(
                [*wrap, BROKERD, '--gpu', 'none', '--calibration', 'none', '--cache', 'none',
                 '--config', os.path.join(folder, 'policy'), *options],
                stderr=log, env=environment, **popen)

    def datagram(self):
        """The next; None once none has come for as long as the test may take.

        What it is doing may change at any time, and be told by itself: that is left out.
        """
        try:
            while True:
                text = self.notify.recv(4096).decode()
                if not text.startswith('STATUS='):
                    return text
        except TimeoutError:
            return None

    def told(self, *lines):
        """Wait for a datagram of these lines (regular expressions), and count signs of life."""
        while True:
            text = self.datagram()
            expect(text is not None, 'was not told', lines, 'log:', open(self.log).read())
            if text == 'WATCHDOG=1':
                self.signs += 1
                continue
            said = text.split('\n')
            expect(len(said) == len(lines) and all(map(re.fullmatch, lines, said)),
                   'was told', said, 'and not', lines)
            return said

    def sign(self, n=1):
        """Waits for n more signs of life."""
        for _ in range(n):
            text = self.datagram()
            expect(text is not None, 'no sign of life')
            expect(text == 'WATCHDOG=1', 'was told', text, 'and not a sign of life')

    def drop(self):
        """Discard all pending datagrams. Return: their number."""
        n = 0
        self.notify.setblocking(False)
        try:
            while self.notify.recv(4096):
                n += 1
        except BlockingIOError:
            pass
        self.notify.settimeout(LIMIT)
        return n

    def close(self, status=0):
        expect(self.process.wait(LIMIT) == status, 'ended with', self.process.returncode,
               open(self.log).read())
        self.notify.close()
        os.unlink(self.path)


def started(manager):
    manager.told('EXTEND_TIMEOUT_USEC=[0-9]+', 'STATUS=opening the devices')
    manager.told('EXTEND_TIMEOUT_USEC=[0-9]+', 'STATUS=measuring the devices')
    manager.told('READY=1', 'STATUS=' + IDLE)


def stopped(manager):
    manager.process.send_signal(signal.SIGTERM)
    manager.told('STOPPING=1', 'STATUS=finishing the tasks in flight')
    manager.close()


def test_state(folder):
    """The states are: ready when clients are served, reloading, status, and stopping."""
    path = os.path.join(folder, 'sock')
    manager = Manager(folder, '--socket', path)
    started(manager)
    with subprocess.Popen([CLIENT, path, 'plan'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as client:
        client.stdin.write('1 0\n')
        client.stdin.flush()
        expect(client.stdout.readline() == 'ok\n', 'the client failed')
        before_us = time.monotonic_ns() // 1000
        manager.process.send_signal(signal.SIGHUP)
        said = manager.datagram()
        match = re.fullmatch('RELOADING=1\nMONOTONIC_USEC=([0-9]+)\nSTATUS=.*', said or '')
        expect(match, 'was told', said, 'instead of reloading')
        expect(before_us <= int(match[1]) <= time.monotonic_ns() // 1000, 'at', match[1])
        manager.told('READY=1', 'STATUS=1 device; 1 session; CPU (not )?contended')
        # A reload that fails because of a wrong policy ends like any other reload.
        with open(os.path.join(folder, 'policy'), 'w', encoding='utf-8') as file:
            file.write('[nonsense]\n')
        manager.process.send_signal(signal.SIGHUP)
        manager.told('RELOADING=1', 'MONOTONIC_USEC=[0-9]+', 'STATUS=.*')
        manager.told('READY=1', 'STATUS=1 device; 1 session; CPU (not )?contended')
        client.stdin.close()
    with open(os.path.join(folder, 'policy'), 'w', encoding='utf-8'):
        pass
    stopped(manager)


def test_watchdog(folder):
    """Signs of life end when the process is stopped, and resume when it continues."""
    manager = Manager(folder, '--socket', os.path.join(folder, 'sock'), watchdog_us=300000)
    started(manager)
    manager.sign(5)
    manager.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, manager.process.pid, os.WSTOPPED | os.WNOWAIT)
    manager.drop()
    # A stopped process sends nothing, even after three times the watchdog's limit.
    time.sleep(0.9)
    expect(manager.drop() == 0, 'signs of life from a process that is stopped')
    manager.process.send_signal(signal.SIGCONT)
    manager.sign(3)
    stopped(manager)


def test_without_manager(folder):
    """Without its manager the broker still works and stops."""
    path = os.path.join(folder, 'sock')
    manager = Manager(folder, '--socket', path, watchdog_us=300000)
    started(manager)
    manager.notify.close()
    manager.process.send_signal(signal.SIGHUP)
    uses(path)
    manager.process.send_signal(signal.SIGTERM)
    manager.close()


def listening(path, kind=socket.SOCK_SEQPACKET, backlog=8):
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(path)
    if backlog:
        made.listen(backlog)
    return made


def handed_over(folder, sockets, *options, names=None):
    """Start a broker with sockets as descriptors from 3 on, by a shell that execs it."""
    fds = [made.fileno() for made in sockets]
    # Move descriptors in two steps, because one may occupy the place of another.
    moves = ' '.join(f'{20 + i}<&{fd}' for i, fd in enumerate(fds))
    places = ' '.join(f'{3 + i}<&{20 + i} {20 + i}<&-' for i in range(len(fds)))
    names = f'LISTEN_FDNAMES={names} ' if names is not None else ''
    script = f'exec {moves}; exec {places}; LISTEN_PID=$$ LISTEN_FDS={len(fds)} {names}exec "$@"'
    return Manager(folder, *options, wrap=('bash', '-c', script, 'sh'), pass_fds=fds)


def uses(path):
    with subprocess.Popen([CLIENT, path, 'plan'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as client:
        client.stdin.write('1 0\n')
        client.stdin.flush()
        expect(client.stdout.readline() == 'ok\n', 'the client failed')
        client.stdin.close()


def test_sockets(folder):
    """Sockets from the manager are used, and remain after the broker has ended."""
    path, admin = os.path.join(folder, 'given'), os.path.join(folder, 'given-admin')
    with listening(path) as clients, listening(admin) as admins:
        manager = handed_over(folder, [admins, clients], '--socket', os.path.join(folder, 'other'),
                              names='admin.sock:brokerd.sock')
        started(manager)
        log = open(manager.log).read()
        expect(f'listening on {path}, and for administrators on {admin}\n' in log, log)
        expect(not os.path.exists(os.path.join(folder, 'other')), 'it made a socket, too')
        uses(path)
        # The peer credentials are those of the broker, which listens, not those of the socket's creator.
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(path)
            told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            expect(int.from_bytes(told[:4], sys.byteorder) == manager.process.pid, told)
        stopped(manager)
        expect(os.path.exists(path) and os.path.exists(admin), 'the sockets were removed')
        # A client that connects meanwhile is served by the next broker. A sole socket needs no name.
        with subprocess.Popen([CLIENT, path, 'plan'], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as client:
            client.stdin.write('1 0\n')
            client.stdin.flush()
            manager = handed_over(folder, [clients])
            started(manager)
            expect(client.stdout.readline() == 'ok\n', 'the client failed')
            client.stdin.close()
        uses(path)
        stopped(manager)


def test_wrong_sockets(folder):
    """Wrong sockets yield one message, and the broker does not listen on a socket of its own."""
    def refuses(sockets, names, text):
        manager = handed_over(folder, sockets, names=names)
        manager.close(status=2)
        log = open(manager.log).read()
        expect(log.count('\n') == 1 and text in log, log)

    with listening(os.path.join(folder, 'a')) as first, listening(os.path.join(folder, 'b')) as second, \
            listening(os.path.join(folder, 'c'), socket.SOCK_STREAM) as stream, \
            listening(os.path.join(folder, 'd'), backlog=0) as deaf:
        refuses([first, second], 'brokerd.sock:brokerd.sock', 'was passed twice')
        refuses([first, second], 'brokerd.sock:some.socket', 'FileDescriptorName=')
        refuses([stream], 'brokerd.sock', 'ListenSequentialPacket=')
        refuses([deaf], 'brokerd.sock', 'Accept=no')
        refuses([first] * 9, None, 'passes more than 8 sockets')


def main():
    for test in (test_state, test_watchdog, test_without_manager, test_sockets, test_wrong_sockets):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'policy'), 'w', encoding='utf-8'):
                pass
            test(folder)


main()
