#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Vulkan layer on AMD's driver, over a simulated card: the broker's counted and escaped bytes agree
with the driver's and the kernel's figures.

    lease-card.py AMDGPU_SIM BROKERD LEASE_CLIENT MANIFEST BROKERCTL
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from simulated import MIB, Broker, Cards, await_true

SIM, BROKERD, CLIENT, MANIFEST, CTL = sys.argv[1:6]


class Program:
    """lease-client.c under the layer, on a simulated card; leaserig.py is for other devices."""

    def __init__(self, cards, broker, folder, **more):
        environment = {**cards.environment, 'XDG_DATA_DIRS': f'{folder}/share:/usr/share',
                       'RINGBROKER_VULKAN_LEASE': '1', 'RINGBROKER_LEASE_VRAM': '256MiB',
                       'RINGBROKER_SOCKET': broker.socket, **more}
        self.process = subprocess.Popen([CLIENT], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        self.process.stdin.write(command + '\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip('\n')

    def used(self):
        """Return the usage of all heaps of the card's own memory that the program is told."""
        heaps = [list(map(int, text.split(','))) for text in self.ask('budget').split()[1:]]
        local = [heap for heap in heaps if heap[3]]
        assert all(heap[1] <= heap[0] == 256 * MIB for heap in local), heaps
        return sum(heap[2] for heap in local)

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@contextlib.contextmanager
def begun(*about):
    """Start simulated cards and their broker, and make a folder where the loader finds the layer."""
    with tempfile.TemporaryDirectory(prefix='rbk-lease-') as folder, \
            Cards(SIM, *(about or ['polaris10,vram=4GiB'])) as cards, Broker(BROKERD, cards) as broker:
        layers = os.path.join(folder, 'share/vulkan/implicit_layer.d')
        os.makedirs(layers)
        shutil.copy(MANIFEST, os.path.join(layers, 'ringbroker_lease.json'))
        yield folder, cards, broker


def test_counts():
    with begun() as (folder, cards, broker):
        program = Program(cards, broker, folder)
        answer = program.ask('device')
        assert answer == 'device 0: result=0', answer
        own = program.used()
        assert own > 0, 'the driver has nothing for itself'
        for command, counted in (('alloc 1048576 10', 10 * MIB), ('alloc 100000 7', 7 * 102400),
                                 ('free 3', -MIB), ('exportable 5000000 2', 2 * 5001216),
                                 ('free-all', None)):
            before = program.used()
            program.ask(command)
            used = program.used()
            assert used - before == counted if counted else used == own, (command, before, used)
            vram, _ = cards.held(program.process.pid)
            assert vram == used, f'{command}: the kernel says {vram}, the layer {used}'
        # Escaped memory is charged: it reduces the bytes that can be allocated.
        answer = program.ask(f'alloc {MIB} 1000')
        found = re.fullmatch(r'alloc: n=(\d+) result=-2', answer)
        assert found and int(found.group(1)) == (256 * MIB - own) // MIB, answer
        vram, _ = cards.held(program.process.pid)
        assert 255 * MIB < vram <= 256 * MIB, vram
        program.end()
        await_true('nothing is left', lambda: cards.held(program.process.pid) == (0, 0))


def lease_of(broker):
    """Return the only lease."""
    done = subprocess.run([CTL, '--socket', broker.socket, 'leases', '--json'], check=True,
                          stdout=subprocess.PIPE, timeout=60, text=True)
    return json.loads(done.stdout)


def test_escapes():
    """The driver's own allocations are charged. The broker's counted and escaped bytes together equal
    the driver's allocations without the layer, and fdinfo's figure, to the byte, for each kind of
    object and after each release. Images of a swap chain would need a display server on the card."""
    with begun() as (folder, cards, broker):
        program = Program(cards, broker, folder)
        answer = program.ask('device')
        assert answer == 'device 0: result=0', answer
        own = program.used()
        counted = 0

        def check(what):
            """Return the escaped bytes beyond those of the device itself."""
            told = program.used()
            vram, _ = cards.held(program.process.pid)
            answer = program.ask('driver libvulkan_radeon.so')
            assert answer == f'driver: bytes={vram}', (what, answer, vram)
            assert told == vram, (what, told, vram)
            lease = await_true(f'{what}: the broker has {vram}', lambda: next(
                (lease for lease in [lease_of(broker)]
                 if lease['used_bytes'] + lease['extra_bytes'] == lease['seen_bytes'] == vram), None))
            assert lease['used_bytes'] == counted, (what, lease, counted)
            return lease['extra_bytes'] - own

        assert check('a device') == 0
        before = 0
        for what, n, least in (('commands', 256, 4 * MIB), ('descriptors', 1 << 20, 16 * MIB)):
            answer = program.ask(f'take {what} {n}')
            assert answer == 'take: result=0', (what, answer)
            escaped = check(what)
            print(f'{n} of {what}: {escaped - before} bytes escape', flush=True)
            assert escaped - before >= least, (what, before, escaped)
            before = escaped
            # Repeat the check beside counted allocations.
            assert program.ask(f'alloc {MIB} 5') == 'alloc: n=5 result=0', what
            counted += 5 * MIB
            assert check(f'{what} and allocations') == escaped
        # All escaped bytes are missing from those that can be allocated.
        answer = program.ask(f'alloc {MIB} 1000')
        left = (256 * MIB - own - before - counted) // MIB
        assert answer == f'alloc: n={left} result=-2', (answer, left)
        counted += left * MIB
        assert check('all of it') == before
        program.ask('give-back')
        program.ask('free-all')
        counted = 0
        assert check('the rest') < MIB
        program.end()
        await_true('nothing is left', lambda: cards.held(program.process.pid) == (0, 0))


def test_two_cards():
    """Each card has a lease of its own."""
    with begun('polaris10,vram=4GiB', 'polaris10,vram=2GiB') as (folder, cards, broker):
        program = Program(cards, broker, folder)
        for card in ('card0', 'card1'):
            index = int(card[-1])
            answer = program.ask(f'device 0 {index}')
            assert answer == f'device {index}: result=0', answer
            own = program.used()
            answer = program.ask(f'alloc {MIB} 1000')
            assert answer == f'alloc: n={(256 * MIB - own) // MIB} result=-2', (answer, own)
        for card in ('card0', 'card1'):
            vram, _ = cards.held(program.process.pid, card)
            assert 255 * MIB < vram <= 256 * MIB, (card, vram)
        program.end()


def drivers(cards):
    """Return an environment with a CPU renderer beside the cards' driver; None without such a renderer."""
    folder = '/usr/share/vulkan/icd.d'
    renderers = [name for name in sorted(os.listdir(folder)) if name.startswith('lvp')]
    if not renderers:
        return None
    return {name: f'{cards.environment[name]}:{folder}/{renderers[0]}'
            for name in ('VK_ICD_FILENAMES', 'VK_DRIVER_FILES') if name in cards.environment}


def test_renderer():
    """A CPU renderer is not held to a lease of the card."""
    with begun() as (folder, cards, broker):
        more = drivers(cards)
        if not more:
            print('test_renderer: skipped, there is none')
            return
        program = Program(cards, broker, folder, **more)
        sizes = []
        for index in (0, 1):
            answer = program.ask(f'device 0 {index}')
            assert answer == f'device {index}: result=0', answer
            heaps = [list(map(int, text.split(','))) for text in program.ask('budget').split()[1:]]
            sizes += [heap[0] for heap in heaps if heap[3]]
        assert 256 * MIB in sizes and max(sizes) > 256 * MIB, sizes
        program.end()


def test_hidden():
    """Freed memory is charged while any descriptor of it exists."""
    with begun() as (folder, cards, broker):
        for more in ({}, {'LEASE_CLIENT_DMA_BUF': '1'}):
            program = Program(cards, broker, folder, **more)
            assert program.ask('device') == 'device 0: result=0'
            own = program.used()
            for _ in range(2):
                answer = program.ask(f'exportable {200 * MIB}')
                assert answer == 'exportable: n=1 result=0', answer
                fd = re.search(r'fd=(\d+)', program.ask('export 0')).group(1)
                program.ask(f'park {fd}')
                program.ask('free-all')
                answer = program.ask(f'exportable {200 * MIB}')
                assert answer == 'exportable: n=0 result=-2', answer
                program.ask('unpark')
                await_true('it is free', lambda: program.used() == own)
            program.end()


if __name__ == '__main__':
    test_hidden()
    test_counts()
    test_escapes()
    test_two_cards()
    test_renderer()
