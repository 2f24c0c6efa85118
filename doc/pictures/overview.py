#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes the README's picture, doc/pictures/brokertop-overview.svg, from a running broker.

    overview.py BUILD [SECONDS]

BUILD is a build folder. For SECONDS (default: 330, so that the graphs of five minutes are full) a broker with
Mesa's software Vulkan serves three tenants: llm runs products with 128 MiB of weights, web runs small and larger
tasks in bursts, and batch takes turns with three plans of which two fit into its memory. brokertop shows that in
tmux, and the screen becomes the picture. Needs tmux, Mesa's software Vulkan, and root, for the tenants' users and
another host name.
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
sys.path.insert(0, os.path.join(TREE, 'tests/integration'))
from screen_svg import svg
from started import LIMIT, expect, start, start_broker

BUILD = os.path.abspath(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 330
TOP, BROKERD = BUILD + '/tools/brokertop/brokertop', BUILD + '/broker/brokerd'
MODEL, STATS = (f'{BUILD}/tests/integration/{name}-client' for name in ('model', 'stats'))
PICTURE = os.path.join(TREE, 'doc/pictures/brokertop-overview.svg')
WIDTH, HEIGHT = 120, 36
HOST = 'two-cores'
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ('LANG', 'LC_CTYPE', 'NO_COLOR', 'COLUMNS', 'LINES', 'TMUX')}
POLICY = '''[tenant llm]
match-uid = 40001
weight = 50
vram-max = 192MiB
vram-reserve = 128MiB

[tenant web]
match-uid = 40002
weight = 30
vram-max = 96MiB
vram-reserve = 32MiB

[tenant batch]
match-uid = 40003
weight = 20
vram-max = 160MiB
'''


class Client:
    """A client of a tenant's user, which answers each line of its standard input with a line."""

    def __init__(self, folder, program, name, uid):
        self.process = start([program, folder + '/socket', name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, env=ENVIRONMENT, user=uid, group=uid, extra_groups=[])

    def ask(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise ValueError('the client has ended')

    def end(self):
        self.process.kill()
        self.process.wait(LIMIT)


def work_llm(client):
    """A model that answers questions, with pauses between them."""
    client.ask('plan chat 128')
    while True:
        for _ in range(random.randrange(10, 60)):
            client.ask('run chat')
        time.sleep(random.uniform(0, 1.5))


def work_web(client):
    """Requests by the thousand, more of them in some half minutes than in others."""
    while True:
        busy = 0.25 + 0.75 * (int(time.monotonic()) // 30 % 2)
        client.ask(f'{random.randrange(200, 2000)} {random.randrange(2, 6)}')
        time.sleep(0.02 / busy)


def work_batch(client):
    """Three plans in turns, of which two are resident at a time."""
    for name in ('night', 'report', 'index'):
        client.ask(f'plan {name} 64')
    while True:
        for name in ('night', 'report', 'index'):
            for _ in range(40):
                client.ask(f'run {name}')
                time.sleep(0.05)


def in_thread(work, client):
    def run():
        try:
            work(client)
        except (OSError, ValueError):
            pass

    threading.Thread(target=run, daemon=True).start()


def take(folder):
    with open(folder + '/conf', 'w', encoding='utf-8') as conf:
        conf.write(POLICY)
    broker = start_broker([BROKERD, '--socket', folder + '/socket', '--cache', folder, '--config', folder + '/conf',
                           '--gpu', 'software', '--device-memory', '384MiB', '--contention', 'none',
                           '--socket-mode', '0666'],
                          folder + '/log', LIMIT, env=ENVIRONMENT)
    clients = [Client(folder, program, name, uid)
               for program, name, uid in ((MODEL, 'llm', 40001), (STATS, 'web', 40002), (STATS, 'web', 40002),
                                          (MODEL, 'batch', 40003))]
    for work, client in zip((work_llm, work_web, work_web, work_batch), clients):
        in_thread(work, client)
    tmux = ['tmux', '-S', folder + '/tmux', '-u', '-f', '/dev/null']
    environment = ENVIRONMENT | {'LC_ALL': 'C.UTF-8', 'XDG_CONFIG_HOME': folder}
    subprocess.run([*tmux, 'new-session', '-d', '-x', str(WIDTH), '-y', str(HEIGHT),
                    f"unshare --uts sh -c 'hostname {HOST}; exec {TOP} --socket {folder}/socket'"],
                   check=True, env=environment)
    try:
        time.sleep(SECONDS)
        lines = subprocess.run([*tmux, 'capture-pane', '-p', '-e'], check=True, env=environment,
                               stdout=subprocess.PIPE).stdout.decode().rstrip('\n').split('\n')
    finally:
        subprocess.run([*tmux, 'kill-server'], check=False, env=environment)
    for client in clients:
        client.end()
    broker.terminate()
    broker.wait(LIMIT)
    return lines


def main():
    expect(os.geteuid() == 0 and shutil.which('tmux'), 'needs root, and tmux')
    random.seed(1)
    with tempfile.TemporaryDirectory(prefix='rbk') as folder:
        os.chmod(folder, 0o755)
        lines = take(folder)
    expect(any('TASKS/s' in line for line in lines), 'brokertop shows\n' + '\n'.join(lines))
    with open(PICTURE, 'w', encoding='utf-8') as file:
        file.write(svg(lines, WIDTH))


main()
