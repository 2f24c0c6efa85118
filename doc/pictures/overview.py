#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Takes the README's picture, doc/pictures/brokertop-overview.svg, from a running broker.

    overview.py BUILD [SECONDS]

BUILD is a build folder. For SECONDS (default: 330, so that the graphs of five minutes are full) a broker with
Mesa's software Vulkan serves three tenants: llm runs products with 192 MiB of weights, web runs small and large
tasks of microseconds in bursts, and batch takes turns with plans that do not fit beside each other. brokertop shows
that in tmux, and the screen becomes the picture. Needs tmux, Mesa's software Vulkan, and root, which gives brokertop
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
match-exe = {folder}/llm
weight = 50
vram-max = 60%
vram-reserve = 200MiB

[tenant web]
match-exe = {folder}/web
weight = 30
vram-max = 25%
vram-reserve = 40MiB

[tenant batch]
match-exe = {folder}/batch
weight = 20
vram-max = 50%
'''


class Client:
    """A client that answers each line of its standard input with a line."""

    def __init__(self, folder, program, name):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            shutil.copy(program, path)
        self.process = start([path, folder + '/socket', name], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)

    def ask(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        expect(answer, 'a client has ended at', line)
        return answer


def work_llm(client):
    """A model that answers questions, with pauses between them."""
    client.ask('plan chat 192')
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
    """Two plans in turns, of which one is resident at a time."""
    for name in ('night', 'report'):
        client.ask(f'plan {name} 96')
    while True:
        for name in ('night', 'report'):
            for _ in range(25):
                client.ask(f'run {name}')
                time.sleep(0.05)


def in_thread(work, client):
    def run():
        try:
            work(client)
        except (OSError, ValueError, SystemExit):
            pass

    threading.Thread(target=run, daemon=True).start()


def take(folder):
    with open(folder + '/conf', 'w', encoding='utf-8') as conf:
        conf.write(POLICY.format(folder=folder))
    broker = start_broker([BROKERD, '--socket', folder + '/socket', '--cache', folder, '--config', folder + '/conf',
                           '--gpu', 'software', '--device-memory', '512MiB', '--contention', 'none'],
                          folder + '/log', LIMIT, env=ENVIRONMENT)
    for work, program, name in ((work_llm, MODEL, 'llm'), (work_web, STATS, 'web'), (work_web, STATS, 'web'),
                                (work_batch, MODEL, 'batch')):
        in_thread(work, Client(folder, program, name))
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
