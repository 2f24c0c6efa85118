#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that brokertop uses in tmux.

    brokertop-memory.py BROKERTOP BROKERD MANY-SESSIONS LIBRARY_DIR

The test runs brokertop with a live broker of 100 tenants, and of 1,000: the memory must depend on the
number of tenants, not on the capacity of the statistics page. Skipped without tmux, and without root,
which is needed for so many users.
"""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from started import expect, start, start_broker

TOP, BROKERD, MANY, LIBRARY_DIR = sys.argv[1:5]
LIMIT = 60
MAX_KIB = 15 * 1024
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ('LANG', 'LC_CTYPE', 'NO_COLOR', 'COLUMNS', 'LINES', 'TMUX')}
ENVIRONMENT |= {'LC_ALL': 'C.UTF-8', 'LD_LIBRARY_PATH': LIBRARY_DIR}


def broker_of(folder, n_tenants):
    """Start a broker. Return: its process, which listens."""
    with open(folder + '/conf', 'w', encoding='ascii') as conf:
        for i in range(n_tenants):
            conf.write(f'[tenant t{i}]\nmatch-uid = {40001 + i}\n')
    return start_broker([BROKERD, '--gpu', 'none', '--contention', 'none', '--calibration', 'none',
                         '--cache', 'none', '--config', folder + '/conf', '--socket',
                         folder + '/sock', '--socket-mode', '0666'], folder + '/log', LIMIT)


def connect(folder, n_tenants):
    """Open a session for each tenant. Return: the process that holds the sessions."""
    many = start([MANY, folder + '/sock', str(n_tenants), '1'], stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE)
    for _ in range(10):
        expect(many.stdout.readline(), 'the clients could not connect')
        many.stdin.write(b'\n')
        many.stdin.flush()
    return many


def status_kib(pid, name):
    with open(f'/proc/{pid}/status', encoding='ascii') as status:
        for line in status:
            if line.startswith(name + ':'):
                return int(line.split()[1])
    raise ValueError(name)


class Terminal:
    def __init__(self, folder, *arguments):
        self.tmux = ['tmux', '-S', folder + '/tmux', '-u', '-f', '/dev/null']
        self.call('new-session', '-d', '-x', '120', '-y', '40', 'exec ' + ' '.join([TOP, *arguments]))
        self.pid = int(self.call('list-panes', '-F', '#{pane_pid}'))

    def call(self, *arguments):
        return subprocess.run([*self.tmux, *arguments], check=True, env=ENVIRONMENT, timeout=LIMIT,
                              stdout=subprocess.PIPE).stdout.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call('kill-server')

    def wait_for_rows(self, n):
        """Wait until the table has all rows, of which the broker adds some per update."""
        end = time.monotonic() + LIMIT
        while True:
            about = ['', '', *self.call('capture-pane', '-p').split('\n')[1].split()]
            if about[-2] == 'Leases' and int(about[-1]) >= n:
                return
            expect(time.monotonic() < end, 'not', n, 'rows:', about)
            time.sleep(0.1)


def check(folder, n_tenants):
    broker = broker_of(folder, n_tenants)
    many = connect(folder, n_tenants)
    with Terminal(folder, '--socket', folder + '/sock', '-d', '0.1', '--view=tenants') as terminal:
        terminal.wait_for_rows(n_tenants)
        # After two seconds brokertop shows rates and the columns that appear with them.
        time.sleep(2)
        peak, now = (status_kib(terminal.pid, name) for name in ('VmHWM', 'VmRSS'))
        print(f'{n_tenants} tenants: {now} KiB, {peak} KiB at most')
        expect(peak < MAX_KIB, 'more than', MAX_KIB, 'KiB')
    many.kill()
    many.wait()
    broker.terminate()
    expect(broker.wait(LIMIT) == 0, 'brokerd ended with', broker.returncode)


def main():
    if not shutil.which('tmux') or os.geteuid() != 0:
        print('skipped: needs tmux, and root')
        sys.exit(77)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < 4096:
        print('skipped: needs 4,096 descriptors a process')
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for n_tenants in (100, 1000):
        with tempfile.TemporaryDirectory(prefix='rbk') as folder:
            os.chmod(folder, 0o755)
            check(folder, n_tenants)
    print('brokertop-memory: well')


main()
