#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""10,000 sessions of 1,000 tenants on a live broker.

    many.py BROKERD BROKERCTL BROKERTOP MANY-SESSIONS

Every program that lists tenants and sessions lists all of them. Connecting and listing do not become
slower as they grow in number. When the sessions end, all their resources are released. The test needs
root for so many users, and prints its measurements.
"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

BROKERD, CTL, TOP, MANY = sys.argv[1:]
N_TENANTS, N_EACH = 1000, 10
N = N_TENANTS * N_EACH
LIMIT = 300 * int(os.environ.get('RBK_TEST_SLOW', '1'))


def expect(condition, *what):
    if not condition:
        print('many.py:', *what)
        sys.exit(1)


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        expect(time.monotonic() < end, what)
        time.sleep(0.05)


class Broker:
    def __init__(self, folder):
        self.folder = folder
        self.socket = os.path.join(folder, 'sock')
        with open(folder + '/conf', 'w', encoding='ascii') as conf:
            for i in range(N_TENANTS):
                conf.write(f'[tenant t{i}]\nmatch-uid = {40001 + i}\n')
        self.metrics = folder + '/metrics.sock'
        with open(folder + '/log', 'wb') as log:
            self.process = subprocess.Popen(
                [BROKERD, '--gpu', 'none', '--contention', 'none', '--calibration', 'none',
                 '--cache', 'none', '--config', folder + '/conf', '--socket', self.socket,
                 '--socket-mode', '0666', '--metrics', 'unix:' + self.metrics], stderr=log)
        wait_for(lambda: os.path.exists(self.metrics), 'no broker')

    def reactor_ms(self):
        """Return the reactor's processor time so far, in ms."""
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/schedstat',
                  encoding='ascii') as file:
            return int(file.read().split()[0]) / 1e6

    def n_fds(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))


def timed(what, broker, *arguments):
    """Run a program and print its processor time and the reactor's. Return: the program's output."""
    before, reactor = resource.getrusage(resource.RUSAGE_CHILDREN), broker.reactor_ms()
    done = subprocess.run(arguments, stdout=subprocess.PIPE, timeout=LIMIT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    expect(done.returncode == 0, what, 'ended with', done.returncode)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f'{what}: {own * 1e3:.0f} ms, the reactor {broker.reactor_ms() - reactor:.1f} ms')
    return done.stdout


def connect(broker):
    """Return the process with all the clients."""
    many = subprocess.Popen([MANY, broker.socket, str(N_TENANTS), str(N_EACH)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    tenths, last = [], broker.reactor_ms()
    for _ in range(10):
        expect(many.stdout.readline(), 'the clients could not connect')
        now = broker.reactor_ms()
        tenths.append(now - last)
        last = now
        many.stdin.write(b'\n')
        many.stdin.flush()
    print('reactor, for each 1,000 sessions:', ' '.join(f'{ms:.0f}' for ms in tenths), 'ms')
    # The first sessions belong to new tenants and cost most. On a shared machine no time is exact, but a cost
    # that grows with the number of sessions would be ten times as much.
    expect(tenths[-1] < 4 * max(tenths[1], tenths[2]), 'the last ones were dear:', tenths)
    return many


def check_shown(broker):
    ctl, top = [CTL, '--socket', broker.socket], [TOP, '--socket', broker.socket]
    # This is the first look: both programs see a part of the sessions at first.
    with subprocess.Popen([*top, '--json', '--once'], stdout=subprocess.PIPE) as first:
        sessions = timed('brokerctl sessions --json', broker, *ctl, 'sessions', '--json')
        shown = json.loads(first.communicate(timeout=LIMIT)[0])['sessions']
    expect(len(shown) >= N, 'brokertop shows', len(shown))
    found = [json.loads(line) for line in sessions.splitlines()]
    named = [entry for entry in found if entry['name'] == 'one of many']
    expect(len(named) == N and len({entry['tenant'] for entry in named}) == N_TENANTS, len(named))
    tenants = timed('brokerctl tenants --json', broker, *ctl, 'tenants', '--json').splitlines()
    expect(len(tenants) >= N_TENANTS, len(tenants))
    timed('brokerctl status', broker, *ctl, 'status')

    about = json.loads(timed('brokertop --json --once', broker, *top, '--json', '--once'))
    expect(len(about['sessions']) >= N, len(about['sessions']))
    timed('brokertop, the plans of all', broker, *top, '--once', '--view=plans')
    before, began = broker.reactor_ms(), time.monotonic()
    pictures = timed('brokertop, 50 pictures in 5 s', broker, *top, '--batch', '-d', '0.1', '-n',
                     '50', '--size=120x40')
    expect(pictures.count(b'brokertop') == 50, 'pictures')
    n_updates = (time.monotonic() - began) * 4
    print(f'an update: about {(broker.reactor_ms() - before) / n_updates:.2f} ms of the reactor')


def check_scrape(broker):
    curl = ['curl', '-sf', '--unix-socket', broker.metrics, 'http://localhost/metrics']
    text = timed('a scrape', broker, *curl)
    timed('another one', broker, *curl)
    # A scrape may be taken while the previous reader still has a session.
    wanted = f'ringbroker_sessions {N}\n'.encode()
    if wanted not in text:
        wait_for(lambda: wanted in subprocess.run(curl, stdout=subprocess.PIPE, check=True).stdout,
                 'the scrape has another number')


def check(broker):
    n_fds = broker.n_fds()
    many = connect(broker)
    check_shown(broker)
    check_scrape(broker)
    before = broker.reactor_ms()
    many.send_signal(signal.SIGKILL)
    many.wait(LIMIT)
    # An inotify and closer threads are created on demand and stay.
    wait_for(lambda: broker.n_fds() <= n_fds + 8, f'more than {n_fds} descriptors')
    print(f'their end: {broker.reactor_ms() - before:.0f} ms of the reactor')
    broker.process.send_signal(signal.SIGTERM)
    expect(broker.process.wait(LIMIT) == 0, open(broker.folder + '/log').read()[-2000:])


def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if os.geteuid() != 0 or limit < N + 2000:
        print(f'skipped: needs root, and {N + 2000} descriptors a process ({limit})')
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        broker = Broker(folder)
        try:
            check(broker)
        finally:
            broker.process.kill()
    print('many: well')


main()
