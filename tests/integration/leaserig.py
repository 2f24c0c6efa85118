# SPDX-License-Identifier: MIT
"""A broker with the software GPU, and Vulkan programs under the layer that holds them to leases.

The first arguments of the test are BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import started

BROKERD, CLIENT, MANIFEST, FAKE_CARD = map(os.path.abspath, sys.argv[1:5])
SLOW = int(os.environ.get('RBK_TEST_SLOW', '1'))
LIMIT_S = 60 * SLOW
MIB = 1 << 20
OK, OUT_OF_DEVICE_MEMORY, INITIALIZATION_FAILED = 0, -2, -3
LAYER = 'VK_LAYER_RINGBROKER_lease'


def expect(condition, *what):
    if not condition:
        raise AssertionError(' '.join(str(part) for part in what))


def await_true(what, condition):
    begin = time.monotonic()
    end = begin + LIMIT_S
    while not condition():
        expect(time.monotonic() < end, 'in vain:', what)
        started.pause(begin, 0.005)
        begin = time.monotonic()


class Broker(started.Broker):
    """brokerd with the software device. @policy is the text of its policy file."""

    def __init__(self, *arguments, policy='', memory='512MiB', environment=()):
        super().__init__(BROKERD, '--cache=none', '--gpu=software', f'--device-memory={memory}',
                         '--calibration=none', '--contention=none', *arguments, policy=policy,
                         env={**os.environ, **dict(environment)})

    def start(self):
        super().start()
        self.skip_unless('llvmpipe')


class Layers:
    """Folders where the loader finds manifests, of the layer as it was built and of other layers."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='rbk-layers-')
        implicit = os.path.join(self.folder, 'share/vulkan/implicit_layer.d')
        os.makedirs(implicit)
        shutil.copy(MANIFEST, os.path.join(implicit, 'ringbroker_lease.json'))

    def add(self, name, library, implicit_as=None, prefix='m'):
        """Add another layer, explicit unless @implicit_as names a file for an implicit one."""
        folder = 'implicit_layer.d' if implicit_as else 'explicit_layer.d'
        layer = {'name': name, 'type': 'GLOBAL', 'library_path': library, 'api_version': '1.3.239',
                 'implementation_version': '1', 'description': name}
        if implicit_as:
            layer['disable_environment'] = {'RBK_NOT_' + implicit_as.upper(): '1'}
        path = os.path.join(self.folder, 'share/vulkan', folder)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f'{implicit_as or prefix + name}.json'), 'w',
                  encoding='utf-8') as file:
            json.dump({'file_format_version': '1.2.0', 'layer': layer}, file)

    def add_card(self):
        """Make the software device look like a card. Return: the environment that enables this."""
        self.add('VK_LAYER_RINGBROKER_fake_card', FAKE_CARD)
        return {'VK_INSTANCE_LAYERS': 'VK_LAYER_RINGBROKER_fake_card'}

    def environment(self):
        return {'XDG_DATA_DIRS': f'{self.folder}/share:/usr/share',
                'VK_ICD_FILENAMES': icd_of('lvp'), 'VK_DRIVER_FILES': icd_of('lvp'),
                'HOME': self.folder, 'NODEVICE_SELECT': '1'}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.folder)


def divided(errors):
    """Return how often command buffers were divided, and into how many slices dispatches, by the layer's log."""
    found = re.findall(r'divided (\d+) times, dispatches into (\d+) slices', errors)
    return sum(int(n) for n, _ in found), sum(int(n) for _, n in found)


def icd_of(name):
    folder = '/usr/share/vulkan/icd.d'
    for file in sorted(os.listdir(folder)):
        if file.startswith(name):
            return os.path.join(folder, file)
    return ''


class Heap:
    def __init__(self, text):
        self.size, self.budget, self.used, is_local, same = map(int, text.split(','))
        self.is_local = bool(is_local)
        expect(same, 'the two ways of asking for the size of a heap differ')


class Client:
    """lease-client.c, which executes commands. @program is the client or a copy of it."""

    def __init__(self, layers, broker=None, wrapper=(), program=CLIENT, **environment):
        socket = broker.socket if isinstance(broker, Broker) else broker
        whole = {**os.environ, **layers.environment()}
        for name in list(whole):
            if name.startswith('RINGBROKER_'):
                del whole[name]
        if socket:
            whole['RINGBROKER_SOCKET'] = socket
        whole['RINGBROKER_VULKAN_LEASE'] = '1'
        # Drivers have threads, also in the children of programs with threads.
        whole['TSAN_OPTIONS'] = whole.get('TSAN_OPTIONS', '') + ':die_after_fork=0'
        whole.update(environment)
        whole = {name: value for name, value in whole.items() if value is not None}
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*wrapper, program], env=whole, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)

    def say(self, command):
        self.process.stdin.write(command + '\n')
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        expect(line, 'the client ended with', self.process.poll(), self.stderr())
        return line.rstrip('\n')

    def ask(self, command):
        self.say(command)
        return self.hear()

    def number(self, command, name):
        answer = self.ask(command)
        found = re.search(rf'\b{name}=(-?\d+)', answer)
        expect(found, command, 'is answered by', answer)
        return int(found.group(1))

    def result(self, command):
        return self.number(command, 'result')

    def heaps(self):
        name, *heaps = self.ask('budget').split()
        expect(name == 'budget:', 'no budget')
        return [Heap(text) for text in heaps]

    def heap(self):
        """Return the heap of the device's own memory."""
        return next(heap for heap in self.heaps() if heap.is_local)

    def alloc(self, size, n=1):
        """Return the number of successful allocations, and the last result."""
        answer = self.ask(f'alloc {size} {n}')
        found = re.fullmatch(r'alloc: n=(\d+) result=(-?\d+)', answer)
        expect(found, answer)
        return int(found.group(1)), int(found.group(2))

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors='replace')

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(LIMIT_S)
        self.process.stdout.close()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0]:
            self.process.kill()
            print(self.stderr()[-4000:])
        self.end()


def run(tests):
    """Run the tests that the arguments name; all tests without arguments."""
    names = sys.argv[5:]
    for test in tests:
        if names and test.__name__ not in names:
            continue
        begin = time.monotonic()
        test()
        print(f'ok {test.__name__} ({time.monotonic() - begin:.1f} s)', flush=True)
