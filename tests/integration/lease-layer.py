#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Vulkan layer: a program that knows nothing of leases is held to one.

    lease-layer.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER [TEST...]
"""
import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

from fakebroker import (CARD, CPU, DEVICES, FEAT_LEASES, HELLO, LEASE_CREDIT, LEASE_OPEN, RENDERER,
                        FakeBroker, devices, give_all, hello, opened, page, welcome)
from leaserig import (INITIALIZATION_FAILED, LAYER, MANIFEST, MIB, OK, OUT_OF_DEVICE_MEMORY,
                      SLOW, Broker, Client, Layers, await_true, expect, run)

LEASE = {'RINGBROKER_LEASE_VRAM': '64MiB'}


def test_limit():
    """Heap, budget and usage follow the lease; an allocation one byte beyond it is refused."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        heap = client.heap()
        expect((heap.size, heap.budget, heap.used) == (64 * MIB, 64 * MIB, 0), vars(heap))
        expect(client.ask('extension VK_EXT_memory_budget') == 'extension: 1', 'no extension')
        expect(client.alloc(MIB, 10) == (10, OK), 'within the lease')
        heap = client.heap()
        expect((heap.budget, heap.used) == (64 * MIB, 10 * MIB), vars(heap))
        expect(client.alloc(MIB, 1000) == (54, OUT_OF_DEVICE_MEMORY), 'to the byte')
        expect(client.alloc(1) == (0, OUT_OF_DEVICE_MEMORY), 'a page is more')
        client.ask('free 0')
        # Sizes are rounded up to whole pages.
        expect(client.alloc(MIB - 4095) == (1, OK), 'what was freed')
        expect(client.alloc(1) == (0, OUT_OF_DEVICE_MEMORY), 'a page is more')
        client.ask('free-all')
        heap = client.heap()
        expect((heap.budget, heap.used) == (64 * MIB, 0), vars(heap))
        expect(client.alloc(1 << 62) == (0, OUT_OF_DEVICE_MEMORY), 'absurd')
        expect(client.alloc((1 << 64) - 1) == (0, OUT_OF_DEVICE_MEMORY), 'absurd, and overflows')
        client.ask('free-null')
        expect(client.alloc(64 * MIB) == (1, OK), 'all of it')
        expect(client.stderr() == '', 'it speaks without being asked:', client.stderr())


def test_laundering():
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.ask(f'launder {10 * MIB} 100') ==
               f'launder: n=6 result={OUT_OF_DEVICE_MEMORY}', 'memory for nothing')
        expect(client.heap().used == 60 * MIB, 'each is counted once')
        client.ask('free-all')
        expect(client.heap().used == 0, 'nothing is left of it')
        # An allocation is charged once, however often it is imported.
        expect(client.result(f'exportable {40 * MIB}') == OK, 'exportable')
        fd = client.number('export 0', 'fd')
        for _ in range(3):
            other = client.number(f'dup {fd}', 'fd')
            expect(client.result(f'import {40 * MIB} {other}') == OK, 'an import of its own')
        expect(client.heap().used == 40 * MIB, 'once')
        for slot in range(4):
            expect(client.heap().used == 40 * MIB, 'as long as it is there')
            client.ask(f'free {slot}')
        # The first descriptor is still open and keeps the memory.
        expect(client.heap().used == 40 * MIB, 'kept by a descriptor')
        expect(client.alloc(40 * MIB)[0] == 0, 'it is not free')
        client.ask(f'close {fd}')
        expect(client.alloc(40 * MIB)[0] == 1, 'it is free')
        expect(client.heap().used == 40 * MIB, 'nothing is kept')


def test_host_imports():
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.ask(f'host {MIB} 100') == 'host: n=100 result=0', 'it is not device memory')
        expect(client.heap().used == 0, 'nor counted')
        client.ask('free-all')


def test_threads():
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        # The machine decides how many threads run at once.
        await_true('a thread reaches the limit',
                   lambda: client.number('threads 32 1000 1000000', 'refused') > 0)
        expect(client.heap().used == 0, 'all of it is free')
        expect(client.alloc(64 * MIB) == (1, OK), 'and can be had')


def test_fork():
    """A child has a lease of its own, and its inherited connection gives it no memory."""
    policy = '[tenant default]\nvram-max = 100MiB\n'
    with Broker(policy=policy) as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB') as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(10 * MIB) == (1, OK), 'in the parent')
        expect(client.ask('fork') == 'child', 'no child')
        expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'with the device of the parent')
        client.ask('free 0')
        # The child gets the rest of the tenant's budget.
        expect(client.result('device') == OK, 'no device in the child')
        expect(client.alloc(10 * MIB, 100) == (4, OUT_OF_DEVICE_MEMORY), 'in the child')
        client.say('quit')
        expect(client.hear() == 'parent: status=0', 'how the child ended')
        expect(client.alloc(10 * MIB, 100) == (5, OUT_OF_DEVICE_MEMORY), 'the parent goes on')


def test_fork_amid_threads():
    """A child of a process with allocating threads holds none of their locks."""
    if SLOW > 1:
        print('test_fork_amid_threads: skipped, a sanitizer has locks of its own')
        return
    for _ in range(3):
        with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.ask('fork-threads 32 200 1000000') == 'child', 'no child')
            expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'with the device of the parent')
            expect(client.result('device') == OK, 'no device in the child')
            expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'in the child')
            client.say('quit')
            expect(client.hear() == 'parent: status=0', 'how the child ended')
            expect(client.hear().startswith('threads: '), 'its parent is stuck')
            expect(client.alloc(64 * MIB) == (1, OK), 'the parent has lost something')


def test_several_devices():
    """All instances and devices of a process for the same hardware share one lease."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(20 * MIB) == (1, OK), 'first')
        expect(client.result('device') == OK, 'another instance')
        expect(client.alloc(20 * MIB) == (1, OK), 'second')
        expect(client.result('sibling') == OK, 'another device')
        expect(client.alloc(20 * MIB) == (1, OK), 'third')
        expect(client.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'together')
        expect(client.heap().used == 60 * MIB, 'together')
        # The lease survives the last device, although the loader unloads the layer then.
        for _ in range(5):
            client.ask('use 1')
            client.ask('free-all')
        expect(broker.log().count('device memory') < 100, 'the log')


def test_destroyed_with_leaks():
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        for _ in range(5):
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(60 * MIB) == (1, OK), 'what the one before has left is free')
            client.ask('abandon')
            client.ask('destroy')


def test_allocators():
    """The driver calls the program's allocator as often as without the layer."""
    counts = []
    for switch in ('1', None):
        with Broker() as broker, Layers() as layers, \
                Client(layers, broker, **{**LEASE, 'RINGBROKER_VULKAN_LEASE': switch}) as client:
            expect(client.result('device') == OK, 'no device')
            client.ask('allocator 1')
            client.alloc(MIB, 50)
            client.ask('free-all')
            counts.append(client.number('allocator 0', 'calls'))
    expect(counts[0] == counts[1] and counts[0] > 0, counts)


def test_figures_unchanged_without_layer():
    """Without the layer's variable, or with the disabling one, the driver's figures are unchanged."""
    for environment in ({'RINGBROKER_VULKAN_LEASE': None},
                        {'RINGBROKER_VULKAN_LEASE_DISABLE': '1'}):
        with Layers() as layers, \
                Client(layers, '/nonexistent', **{**LEASE, **environment}) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.heap().size > 64 * MIB, 'the heap is another')
            expect(client.alloc(100 * MIB) == (1, OK), 'it is held to something')
            with open(f'/proc/{client.process.pid}/maps', encoding='utf-8') as maps:
                expect('ringbroker_lease' not in maps.read(), 'the layer is loaded')


def refused(client, sentence):
    expect(client.result('device') == INITIALIZATION_FAILED, 'there is a device')
    expect(sentence in client.stderr(), 'no sentence:', client.stderr())
    expect(client.stderr().count('\n') == 1, 'not one sentence:', client.stderr())


def test_no_broker():
    with Layers() as layers, Client(layers, '/nonexistent', **LEASE) as client:
        refused(client, 'cannot connect to a broker at /nonexistent')


def test_no_lease():
    policy = '[tenant default]\nvram-max = 100MiB\n'
    with Broker(policy=policy) as broker, Layers() as layers:
        with Client(layers, broker) as client:
            refused(client, 'set RINGBROKER_LEASE_VRAM to the memory')
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='4 MB') as client:
            refused(client, 'RINGBROKER_LEASE_VRAM=4 MB is not a size')
        with Client(layers, broker, RINGBROKER_LEASE='77') as client:
            refused(client, 'there is no lease 77')
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='200MiB',
                    RINGBROKER_LEASE_MIN='101MiB') as client:
            refused(client, 'tenant default: a lease of device 1 requires 101 MiB, of which it may '
                    'never have more than 100 MiB (vram-max)')
        # The second program gets a lease once there is room: the refusal is not permanent.
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB') as first, \
                Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB',
                       RINGBROKER_LEASE_MIN='60MiB') as second:
            expect(first.result('device') == OK, 'no device')
            expect(second.result('device') == INITIALIZATION_FAILED, 'a device')
            first.end()
            await_true('room', lambda: second.result('device') == OK)


def test_no_such_device():
    """A device without leases is refused, except a CPU renderer beside a card of the broker."""
    cases = [
        (devices(CPU), {}, False), (devices(CPU, RENDERER), {}, False),
        (devices(CPU, CARD, RENDERER), {}, False), (devices(CPU, CARD), {}, True), (-5, {}, False),
        # This renderer claims to be a card.
        (devices(CPU, CARD), 'card', False),
    ]
    for listed, card, is_there in cases:
        answers = {HELLO: welcome(), DEVICES: listed, LEASE_OPEN: -19}
        with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
                Client(layers, broker.path, **LEASE, **(layers.add_card() if card else {})) as client:
            if not is_there:
                refused(client, 'fake')
                continue
            expect(client.result('device') == OK, 'the renderer needs no lease')
            expect(client.alloc(100 * MIB) == (1, OK), 'it is held to the card\'s lease')
            expect(client.stderr() == '', client.stderr())
    # The program cannot query UUIDs, so the layer looks for the device by name.
    with Layers() as layers, FakeBroker(layers.folder, {HELLO: welcome(), DEVICES: devices(CPU)}) \
            as broker, Client(layers, broker.path, **LEASE) as client:
        expect(client.result('device 1') == INITIALIZATION_FAILED, 'a device')
        expect('the broker has no device with the name llvmpipe' in client.stderr(), client.stderr())


def test_killed():
    with Broker(memory='100MiB') as broker, Layers() as layers:
        for _ in range(3):
            with Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB',
                        RINGBROKER_LEASE_MIN='60MiB', RINGBROKER_LEASE_WAIT='50s') as client:
                expect(client.result('device') == OK, 'no device')
                expect(client.alloc(60 * MIB) == (1, OK), 'no memory')
                client.kill()


def test_broker_ends():
    """The program continues within its credit, and then with the next broker."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(30 * MIB) == (1, OK), 'no memory')
        expect(client.result(f'exportable {8 * MIB}') == OK, 'exportable')
        fd = client.number('export 1', 'fd')
        broker.end(signal.SIGKILL)
        expect(client.heap().used == 38 * MIB, 'it has forgotten')
        expect(client.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
        client.ask('free 0')
        expect(client.alloc(30 * MIB) == (1, OK), 'what it had')
        os.unlink(broker.socket)
        broker.start()
        await_true('more of the next broker', lambda: client.alloc(20 * MIB)[0] == 1)
        expect(client.heap().used == 58 * MIB, 'all of it')
        expect(client.alloc(8 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'it is held to its lease')
        other = client.number(f'dup {fd}', 'fd')
        expect(client.result(f'import {8 * MIB} {other}') == OK, 'what it has already')
        client.ask('free-all')
        client.ask(f'close {fd}')
        expect(client.alloc(64 * MIB) == (1, OK), 'nothing is lost')


def test_broker_ends_idle():
    """The next broker learns an idle program's usage before it grants memory to others."""
    with Broker(memory='100MiB') as broker, Layers() as layers:
        log = os.path.join(layers.folder, 'log')
        with Client(layers, broker, RINGBROKER_LEASE_LOG=log, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(40 * MIB) == (1, OK), 'no memory')
            for how in (signal.SIGTERM, signal.SIGKILL):
                broker.end(how)
                if how == signal.SIGKILL:
                    os.unlink(broker.socket)
                broker.start()

                def restored(times=1 + (how == signal.SIGKILL)):
                    with open(log, encoding='utf-8') as file:
                        return file.read().count('restored') == times

                await_true('the lease is restored', restored)
                with Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB',
                            RINGBROKER_LEASE_MIN='60MiB') as other:
                    expect(other.result('device') == INITIALIZATION_FAILED, 'what is not there')
            expect(client.heap().used == 40 * MIB, 'it has forgotten')
            expect(client.alloc(24 * MIB + 1) == (0, OUT_OF_DEVICE_MEMORY), 'it is held to its lease')
            # One thread restores the lease, and it blocks the program's signals.
            watchers = []
            for task in os.scandir(f'/proc/{client.process.pid}/task'):
                with open(os.path.join(task.path, 'status'), encoding='utf-8') as file:
                    status = dict(line.split(':\t', 1) for line in file.read().splitlines())
                if status['Name'] == 'rbk-lease':
                    watchers.append((task.path, int(status['SigBlk'], 16)))
            expect(len(watchers) == 1, watchers)
            blocked = watchers[0][1]
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
                expect(blocked >> (number - 1) & 1, 'not blocked', number)


@contextlib.contextmanager
def stopped(broker):
    """Stop the broker, and continue it at the end of the block."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


# The layer waits 2 s for an answer. On a busy machine every call takes longer.
AT_ONCE_S, WAIT_S = 1.5, 2


def takes(seconds, what, call):
    """Call @call, which must take about @seconds; almost no time if that is 0."""
    begin = time.monotonic()
    answer = call()
    took = time.monotonic() - begin
    expect(max(0, seconds - 0.1) <= took <= seconds + AT_ONCE_S, what, 'took', took, 's')
    return answer


def has_all_again(client, bytes_all=64 * MIB):
    """Expect that exactly the whole lease is free once all replies have arrived."""
    client.ask('free-all')
    await_true('its lease', lambda: client.alloc(bytes_all) == (1, OK))
    expect(client.alloc(4096) == (0, OUT_OF_DEVICE_MEMORY), 'more than its lease')
    client.ask('free-all')


def test_stalled_broker_gives_nothing_twice():
    """Memory that is freed while the broker does not read is returned once."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        for _ in range(3):
            expect(client.alloc(40 * MIB) == (1, OK), 'no memory')
            with stopped(broker):
                takes(0, 'free', lambda: client.ask('free-all'))
            expect(client.alloc(MIB, 200) == (64, OUT_OF_DEVICE_MEMORY), 'more than its lease')
            expect(client.heap().used == 64 * MIB, 'more than its lease')
            has_all_again(client)
        # The broker answers the request for credit too late.
        expect(client.alloc(20 * MIB) == (1, OK), 'no memory')
        with stopped(broker):
            expect(takes(WAIT_S, 'alloc', lambda: client.alloc(30 * MIB))
                   == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
            expect(takes(0, 'next', lambda: client.alloc(30 * MIB)) == (0, OUT_OF_DEVICE_MEMORY),
                   'out of nowhere')
        has_all_again(client)


def test_stalled_broker_objects():
    """Exported or imported memory is neither charged twice nor lost."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')

        def export(slot):
            return client.number(f'export {slot}', 'fd')

        for how in ('exported', 'freed', 'imported'):
            expect(client.result(f'exportable {20 * MIB}') == OK, 'exportable')
            fd = None if how == 'exported' else export(0)
            with stopped(broker):
                if how == 'exported':
                    fd = takes(WAIT_S, 'export', lambda: export(0))
                elif how == 'imported':
                    other = client.number(f'dup {fd}', 'fd')
                    expect(client.result(f'import {20 * MIB} {other}') == OK, 'what it has')
                takes(0, 'free', lambda: client.ask('free-all'))
                takes(0, 'close', lambda n=fd: client.ask(f'close {n}'))
                takes(0, 'budget', client.heap)
            has_all_again(client)
        # The broker reads the report too late, when it has no room, and charges the memory nevertheless.
        expect(client.alloc(40 * MIB) == (1, OK), 'no memory')
        expect(client.result(f'exportable {20 * MIB}') == OK, 'exportable')
        with stopped(broker):
            fd = takes(WAIT_S, 'export', lambda: export(1))
        await_true('the answer', lambda: client.alloc(MIB) == (1, OK))
        expect(client.alloc(MIB, 100) == (3, OUT_OF_DEVICE_MEMORY), 'more than its lease')
        client.ask(f'close {fd}')
        has_all_again(client)


def test_stalled_broker_delays_no_call():
    # The process ends with a lease, which the leak sanitizer would report.
    sanitizer = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_WAIT='30s', ASAN_OPTIONS=sanitizer, **LEASE) as client, \
            Client(layers, broker, RINGBROKER_LEASE_WAIT='30s', **LEASE) as late:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(MIB, 12) == (12, OK), 'no memory')
        with stopped(broker):
            for slot in range(5):
                takes(0, 'free', lambda n=slot: client.ask(f'free {n}'))
            takes(0, 'budget', client.heap)
            expect(takes(WAIT_S, 'alloc', lambda: client.alloc(60 * MIB))
                   == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
            for _ in range(100):
                takes(0, 'alloc', lambda: client.alloc(60 * MIB))
            # The reports do not fit into the connection: the layer keeps them until the broker reads.
            for _ in range(500):
                takes(0, 'many', lambda: client.alloc(64 << 10))
            takes(0, 'free-all', lambda: client.ask('free-all'))
            takes(0, 'destroy', lambda: client.ask('destroy'))
            expect(takes(0, 'the end', client.end) == 0, 'how it ended')
            # A program without a lease gets none, and waits only once.
            expect(takes(WAIT_S, 'device', lambda: late.result('device'))
                   == INITIALIZATION_FAILED, 'a device')
            expect('did not answer' in late.stderr(), late.stderr())
        await_true('a lease', lambda: late.result('device') == OK)
        has_all_again(late)


def test_stalled_broker_many_returns():
    """Returns that the broker cannot receive at once are sent later."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        for _ in range(3):
            n = 500
            expect(client.alloc(64 << 10, n) == (n, OK), 'no memory')
            with stopped(broker):
                for slot in range(n):
                    client.ask(f'free {slot}')
            has_all_again(client)


def test_stalled_broker_dies():
    """The next broker is not told of returns to a broker that never read them."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(20 * MIB, 3) == (3, OK), 'no memory')
        broker.process.send_signal(signal.SIGSTOP)
        takes(0, 'free', lambda: client.ask('free 0'))
        broker.end(signal.SIGKILL)
        os.unlink(broker.socket)
        broker.start()
        await_true('more of the next broker', lambda: client.alloc(20 * MIB)[0] == 1)
        expect(client.heap().used == 60 * MIB, 'more than its lease')
        has_all_again(client)


def test_waits_in_vain_only_once():
    """A program waits in vain for a lease only once, however often it asks."""
    with Broker(memory='100MiB') as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB') as first, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB', RINGBROKER_LEASE_MIN='60MiB',
                   RINGBROKER_LEASE_WAIT='2s') as second:
        expect(first.result('device') == OK, 'no device')
        expect(takes(2, 'device', lambda: second.result('device')) == INITIALIZATION_FAILED,
               'a device')
        expect(takes(0, 'again', lambda: second.result('device')) == INITIALIZATION_FAILED,
               'a device')
        first.end()
        await_true('room', lambda: second.result('device') == OK)


def test_payer_of_shared_memory_changes():
    """The payer of shared memory may change with the next broker: neither program then claims to the
    following broker what it paid to an earlier one."""
    with Broker() as broker, Layers() as layers:
        logs = [os.path.join(layers.folder, name) for name in ('first', 'second')]

        def held(which, times):
            with open(logs[which], encoding='utf-8') as file:
                found = re.findall(r'restored, with (\d+) bytes', file.read())
            return int(found[-1]) if len(found) == times else None

        def restart(first, times):
            first.process.send_signal(signal.SIGSTOP)
            broker.end(signal.SIGKILL)
            os.unlink(broker.socket)
            broker.start()
            await_true('the other is restored', lambda: held(1, times) is not None)
            first.process.send_signal(signal.SIGCONT)
            await_true('it is restored', lambda: held(0, times) is not None)

        with Client(layers, broker, RINGBROKER_LEASE_LOG=logs[0], **LEASE) as first:
            expect(first.result('device') == OK, 'no device')
            expect(first.result(f'exportable {8 * MIB}') == OK, 'exportable')
            fd = first.number('export 0', 'fd')
            wrapper = ['sh', '-c', f'exec "$@" 9<>/proc/{first.process.pid}/fd/{fd}', 'sh']
            with Client(layers, broker, wrapper=wrapper, RINGBROKER_LEASE_LOG=logs[1],
                        **LEASE) as second:
                expect(second.result('device') == OK, 'no device')
                expect(second.result(f'import {8 * MIB} 9') == OK, 'import')
                # The second program reaches the new broker first and pays, also for the driver's overhead.
                restart(first, 1)
                expect(first.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'it does not pay')
                expect(second.alloc(MIB, 100) == (55, OUT_OF_DEVICE_MEMORY), 'it pays')
                restart(first, 2)
                expect(held(0, 2) == 64 * MIB, 'another is told of', held(0, 2))
                expect(held(1, 2) <= 56 * MIB, 'another is told of', held(1, 2))
                for client in (first, second):
                    expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'above the lease')
                    client.ask('free 1')
                    expect(client.alloc(MIB, 100) == (1, OUT_OF_DEVICE_MEMORY), 'as before')


def test_broker_without_enough_memory():
    """A broker without enough memory is asked again, and the program continues."""
    with Broker(memory='100MiB') as broker, Layers() as layers:
        log = os.path.join(layers.folder, 'log')
        with Client(layers, broker, RINGBROKER_LEASE_LOG=log, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(40 * MIB) == (1, OK), 'no memory')

            def said(what):
                with open(log, encoding='utf-8') as file:
                    return file.read().count(what)

            plenty = list(broker.arguments)
            broker.end()
            broker.arguments[plenty.index('--device-memory=100MiB')] = '--device-memory=30MiB'
            broker.start()
            await_true('it is refused twice', lambda: said('does not take over') >= 2)
            begin, n = time.monotonic(), said('does not take over')
            await_true('once more', lambda: said('does not take over') >= n + 2)
            expect(time.monotonic() - begin >= 1, 'more often than once a second')
            expect(client.alloc(40 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
            broker.end()
            broker.arguments = plenty
            broker.start()
            await_true('the lease is restored', lambda: said('restored') == 1)
            expect(client.heap().used == 40 * MIB, 'all of it')


def test_next_broker_has_smaller_budget():
    """The next broker allows the tenant less: the first program is taken over; the other continues
    within its usage and is admitted once there is room."""
    policy = '[tenant default]\nvram-max = {}MiB\n'
    with Broker(policy=policy.format(100)) as broker, Layers() as layers:
        logs = [os.path.join(layers.folder, name) for name in ('first', 'second')]

        def said(which, what):
            with open(logs[which], encoding='utf-8') as file:
                return what in file.read()

        with Client(layers, broker, RINGBROKER_LEASE_LOG=logs[0], **LEASE) as first, \
                Client(layers, broker, RINGBROKER_LEASE_LOG=logs[1], **LEASE) as second:
            clients = (first, second)
            for client in clients:
                expect(client.result('device') == OK, 'no device')
                expect(client.alloc(36 * MIB) == (1, OK), 'no memory')
            broker.end()
            broker.write(policy.format(50))
            broker.start()
            await_true('one is taken over, one not',
                       lambda: sorted((said(i, 'restored'), said(i, '(vram-max)'))
                                      for i in (0, 1)) == [(False, True), (True, False)])
            here, away = clients if said(0, 'restored') else clients[::-1]
            for client in clients:
                expect(client.heap().used == 36 * MIB, 'it has forgotten')
            expect(here.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'above what it may have')
            expect(away.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
            with Client(layers, broker, RINGBROKER_LEASE_VRAM='20MiB',
                        RINGBROKER_LEASE_MIN='20MiB') as third:
                refused(third, 'tenant default: a lease of device 1 requires 20 MiB, of which')
            here.ask('free-all')
            await_true('it comes in', lambda: said(clients.index(away), 'restored'))
            expect(away.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'together')
            expect(here.alloc(MIB, 100)[0] <= 14, 'together')
            for client in clients:
                expect(client.stderr() == '', 'on standard error:', client.stderr())


def test_waiting():
    with Broker(memory='100MiB') as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='40MiB', RINGBROKER_LEASE_MAX='80MiB',
                   RINGBROKER_LEASE_WAIT='60s') as waiter, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='50MiB') as other:
        expect(waiter.result('device') == OK and other.result('device') == OK, 'no device')
        expect(waiter.alloc(40 * MIB) == (1, OK), 'no memory')
        expect(other.alloc(40 * MIB) == (1, OK), 'no memory')
        waiter.say(f'alloc {40 * MIB}')
        other.end()
        expect(waiter.hear() == 'alloc: n=1 result=0', 'it did not wait')
        # An allocation above the lease's maximum does not wait.
        expect(waiter.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'above its maximum')
        # Another thread frees the memory that this thread waits for: the waiter holds no lock.
        waiter.ask('free 1')
        expect(waiter.result(f'while-freeing {40 * MIB} 0 100') == OK, 'there was room')


def test_old_vulkan():
    """A Vulkan 1.0 program is held to its lease, too."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device 1') == OK, 'no device')
        expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'it is not held to it')
        expect(client.result('device 3') == OK, 'no device of 1.2')
        expect(client.heap().used == 64 * MIB, 'the two are the same hardware')


def test_card():
    """One of two heaps is the device's own; the driver has a budget of its own."""
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, **LEASE, **layers.add_card()) as client:
        expect(client.result('device') == OK, 'no device')
        heaps = client.heaps()
        expect(len(heaps) == 2 and heaps[0].is_local and not heaps[1].is_local, 'the heaps')
        expect((heaps[0].size, heaps[0].budget) == (64 * MIB, 64 * MIB), 'of the device')
        expect(heaps[1].size == 4096 * MIB and heaps[1].budget == 4096 * MIB, 'of the host')
        # Memory type 1 is host memory, which is not leased.
        expect(client.ask(f'alloc {100 * MIB} 1 1') == 'alloc: n=1 result=0', 'of the host')
        expect(client.heaps()[1].used == 100 * MIB and client.heap().used == 0, 'of the host')
        # Types 0 and 2 are device memory, which is leased.
        expect(client.ask(f'alloc {40 * MIB} 1 2') == 'alloc: n=1 result=0', 'of the device')
        expect(client.alloc(40 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'it is one lease')
        expect(client.heap().used == 40 * MIB, 'used')


def test_driver_budget():
    """The lease exceeds the driver's free memory."""
    with Broker(memory='4GiB') as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='2GiB', **layers.add_card()) as client:
        expect(client.result('device') == OK, 'no device')
        heap = client.heap()
        expect((heap.size, heap.budget) == (1024 * MIB, 924 * MIB), vars(heap))


def test_escapes():
    """The driver's own allocations are charged as soon as the layer samples them."""
    with Broker() as broker, Layers() as layers:
        path = os.path.join(layers.folder, 'own')

        def own(size):
            with open(path, 'w', encoding='utf-8') as file:
                file.write(str(size))

        with Client(layers, broker, RBK_FAKE_CARD=path, **LEASE, **layers.add_card()) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(40 * MIB) == (1, OK), 'no memory')
            own(10 * MIB)
            heap = client.heap()
            expect((heap.used, heap.budget) == (50 * MIB, 64 * MIB), vars(heap))
            expect(client.alloc(16 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'more than is left')
            expect(client.alloc(14 * MIB) == (1, OK), 'what is left')
            # The usage exceeds the lease: no allocation succeeds any more.
            own(20 * MIB)
            expect(client.heap().used == 74 * MIB, 'over it')
            expect(client.alloc(4096) == (0, OUT_OF_DEVICE_MEMORY), 'nothing is left')
            client.ask('free 1')
            expect(client.heap().used == 60 * MIB, 'of which a part pays for that')
            expect(client.alloc(4 * MIB + 1) == (0, OUT_OF_DEVICE_MEMORY), 'more than is left')
            expect(client.alloc(4 * MIB) == (1, OK), 'what is left')
            own(0)
            expect(client.heap().used == 44 * MIB, 'given back')
            expect(client.alloc(20 * MIB) == (1, OK), 'given back')
            client.ask('free-all')
            # The program never asks for a budget; the layer checks the usage after every so many allocations.
            own(60 * MIB)
            n, result = client.alloc(4096, 4000)
            expect(n < 2000 and result == OUT_OF_DEVICE_MEMORY, 'the layer did not sample the driver:', n)
            # A usage that was sampled during concurrent allocations is not charged.
            own(0)
            client.ask('free-all')
            client.heap()
            for _ in range(5):
                client.number('threads 32 200 1000000', 'refused')
                expect(client.alloc(64 * MIB) == (1, OK), 'something is still charged')
                client.ask('free-all')
            # The layer samples the usage before it refuses an allocation, too.
            own(60 * MIB)
            client.heap()
            own(0)
            expect(client.alloc(64 * MIB) == (1, OK), 'the layer does not sample the driver')
            client.ask('free-all')
            # A repeated import is not escaped memory, although the driver counts it twice.
            own(0)
            client.ask('free-all')
            client.heap()
            expect(client.result(f'exportable {20 * MIB}') == OK, 'exportable')
            fd = client.number('export 0', 'fd')
            expect(client.result(f'import {20 * MIB} {fd}') == OK, 'import')
            client.heap()
            expect(client.alloc(44 * MIB) == (1, OK), 'it is charged twice')


def test_machine_use():
    """A CPU driver with VK_EXT_memory_budget reports the machine's usage, as Mesa 26 does: brokerd and
    the layer do not charge that to the process."""
    with Layers() as layers:
        path = os.path.join(layers.folder, 'own')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(str(4096 * MIB))
        fake = {**layers.environment(), **layers.add_card(), 'RBK_FAKE_CARD': path,
                'RBK_FAKE_CARD_CPU': '1'}
        with Broker(environment=fake) as broker, Client(layers, broker, **LEASE, **fake) as client:
            expect(client.result('device') == OK, 'no device:', client.stderr())
            expect(client.heap().used == 0, 'it is charged for the machine')
            expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'not its lease')


def test_driver_refuses():
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RBK_FAKE_CARD_FAIL='2', **LEASE, **layers.add_card()) as client:
        expect(client.result('device') == OK, 'no device')
        for _ in range(10):
            expect(client.alloc(60 * MIB) == (1, OK), 'a charge is left')
            client.ask('free-all')
            expect(client.alloc(60 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'of the driver')
            expect(client.heap().used == 0, 'a charge is left')
        # The import fails: its descriptor stays open, and no memory is held.
        expect(client.result(f'exportable {20 * MIB}') == OK, 'exportable')
        fd = client.number('export 0', 'fd')
        expect(client.result(f'import {20 * MIB} {fd}') == OUT_OF_DEVICE_MEMORY, 'of the driver')
        expect(client.heap().used == 20 * MIB, 'once')
        client.ask('free 0')
        client.ask(f'close {fd}')
        expect(client.alloc(64 * MIB) == (1, OK), 'a charge is left')


VALIDATION = 'VK_LAYER_KHRONOS_validation'


def validate(broker, layers, environment, order):
    """Run all commands of the client under the validation layer, which must report nothing."""
    log = os.path.join(layers.folder, 'validation')
    with open(os.path.join(layers.folder, 'vk_layer_settings.txt'), 'w', encoding='utf-8') as file:
        file.write('khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n'
                   'khronos_validation.report_flags = error,warn,perf\n'
                   f'khronos_validation.log_filename = {log}\n')
    with Client(layers, broker, VK_LAYER_SETTINGS_PATH=layers.folder, VK_LOADER_DEBUG='layer',
                **LEASE, **environment) as client:
        expect(client.result('device') == OK, 'no device')
        found = [name for line in client.stderr().splitlines() if 'Insert instance layer' in line
                 for name in (VALIDATION, LAYER) if name in line]
        # The loader lists the layer next to the driver first.
        expect(found == order[::-1], 'layers are in another order:', found)
        client.heap()
        expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'not held to it')
        client.ask('free-all')
        client.ask(f'launder {10 * MIB} 10')
        client.ask('free-all')
        client.ask(f'host {MIB} 4')
        client.ask('free-all')
        client.number('threads 4 100 1000000', 'refused')
        client.ask('destroy')
    text = ''
    if os.path.exists(log):
        with open(log, encoding='utf-8') as file:
            text = file.read()
    expect('VUID' not in text and 'Error' not in text, text[:4000])


def test_validation():
    """The validation layer runs below the lease layer and above it."""
    if not os.path.exists('/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json'):
        print('test_validation: skipped, no validation layer')
        return
    with Broker() as broker:
        with Layers() as layers:
            validate(broker, layers, {'VK_INSTANCE_LAYERS': VALIDATION}, [LAYER, VALIDATION])
        with Layers() as layers:
            # Implicit layers are next to the program, in the order in which the loader finds them.
            with open(MANIFEST, encoding='utf-8') as file:
                library = json.load(file)['layer']['library_path']
            os.unlink(os.path.join(layers.folder,
                                   'share/vulkan/implicit_layer.d/ringbroker_lease.json'))
            layers.add(LAYER, library)
            layers.add(VALIDATION, 'libVkLayer_khronos_validation.so', implicit_as='validation')
            validate(broker, layers, {'VK_INSTANCE_LAYERS': LAYER}, [VALIDATION, LAYER])


def test_symbols():
    """The layer exports one function and needs only the C library."""
    with open(MANIFEST, encoding='utf-8') as file:
        library = json.load(file)['layer']['library_path']
    text = subprocess.run(['nm', '-D', '--defined-only', '--extern-only', library], check=True,
                          stdout=subprocess.PIPE).stdout.decode()
    names = [line.split()[-1] for line in text.splitlines()]
    expect(names == ['vkNegotiateLoaderLayerInterfaceVersion'], names)
    text = subprocess.run(['readelf', '-d', library], check=True,
                          stdout=subprocess.PIPE).stdout.decode()
    needed = [line.split('[')[1].rstrip(']') for line in text.splitlines() if 'NEEDED' in line]
    expect(all(name.startswith(('libc.so', 'ld-linux', 'libasan', 'libubsan', 'libtsan'))
               for name in needed), needed)
    expect('NODELETE' in text, 'the loader would unload it')


# ---- Brokers that are not as they should be ------------------------------------------------

def test_other_brokers():
    """Brokers of another version, without leases, or of another protocol."""
    cases = [
        ({HELLO: -93}, 'fake'),
        ({HELLO: welcome(0)}, 'does not support leases'),
        ({HELLO: b'too short'}, ''),
        ({HELLO: welcome(), LEASE_OPEN: -12}, 'fake'),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(None)}, ''),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(page(seals=False))}, ''),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(page(magic=1))}, ''),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(page(size=8192))}, ''),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(page(), page_bytes=1 << 40)}, ''),
        ({HELLO: welcome(), LEASE_OPEN: lambda _: opened(page(size=0), page_bytes=0)}, ''),
    ]
    for answers, sentence in cases:
        with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
                Client(layers, broker.path, **LEASE) as client:
            refused(client, sentence)


def test_versions():
    """The layer accepts brokers of another minor version, whatever features they offer. It refuses
    another major version with a message that names both."""
    for greeting in (welcome(minor=0), welcome(minor=99), welcome(features=(1 << 64) - 1, minor=99)):
        answers = {HELLO: greeting, LEASE_OPEN: lambda _: opened(page()), LEASE_CREDIT: give_all}
        with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
                Client(layers, broker.path, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(MIB) == (1, OK), 'no memory')
            expect(client.stderr() == '', client.stderr())
    # One broker ignores the client's version, another refuses it as brokerd does (see below).
    for answer, sentence in ((welcome(major=2, minor=0), 'answered with 2.0'),
                             (welcome(major=0, minor=9), 'answered with 0.9'), (-93, 'fake')):
        with Layers() as layers, FakeBroker(layers.folder, {HELLO: answer}) as broker, \
                Client(layers, broker.path, **LEASE) as client:
            refused(client, sentence)
            expect(set(broker.seen) == {HELLO}, 'it goes on asking:', broker.seen)
            # Each attempt fails anew, and the program does not end.
            expect(client.result('device') == INITIALIZATION_FAILED, 'there is a device')


def test_other_clients():
    """brokerd accepts clients of a lower minor version, or without leases."""
    with Broker() as broker:
        for minor, features in ((0, FEAT_LEASES), (4, FEAT_LEASES), (0, (1 << 64) - 1)):
            connection, result, text, has = hello(broker.socket, minor=minor, features=features)
            expect(result == 0 and has & FEAT_LEASES, minor, result, text)
            connection.close()
        for major, minor in ((1, 5), (1, 65535), (0, 0), (2, 0), (65535, 65535)):
            connection, result, text, _ = hello(broker.socket, major, minor)
            expect(result == -93 and f'{major}.{minor}' in text and '1.4' in text, result, text)
            expect(connection.recv(1) == b'', 'it may stay')
            connection.close()
        # The client does not get features that it did not ask for.
        connection, result, _, has = hello(broker.socket, features=0)
        expect((result, has) == (0, 0), result, has)
        connection.close()


def test_broker_is_exchanged():
    """A next broker of another version, or without leases, takes nothing over: the program continues
    with its credit, and then with the broker after that."""
    answers = {HELLO: welcome(), LEASE_OPEN: lambda _: opened(page()), LEASE_CREDIT: give_all}
    with Layers() as layers, FakeBroker(layers.folder, answers) as broker:
        log = os.path.join(layers.folder, 'log')

        def said(what):
            with open(log, encoding='utf-8') as file:
                return file.read().count(what)

        with Client(layers, broker.path, RINGBROKER_LEASE_LOG=log, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            expect(client.alloc(30 * MIB) == (1, OK), 'no memory')
            for answer, sentence in ((welcome(0), 'does not support leases'),
                                     (welcome(major=2), 'answered with 2.4'), (-93, 'fake')):
                before = said(sentence)
                answers[HELLO] = answer
                for connection in broker.connections:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                await_true(sentence, lambda s=sentence, n=before: said(s) >= n + 2)
                expect(client.heap().used == 30 * MIB, 'it has forgotten')
                client.ask('free-all')
                expect(client.alloc(30 * MIB) == (1, OK), 'what it had')
                expect(client.alloc(60 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')
                n = said('restored')
                answers[HELLO] = welcome(minor=99)
                await_true('it is restored', lambda n=n: said('restored') == n + 1)
            expect(client.alloc(20 * MIB) == (1, OK), 'more of the next broker')
            expect(client.stderr() == '', 'on standard error:', client.stderr())


def test_hostile_lease_page():
    """The layer reports figures that Vulkan allows, whatever the page says, and does not crash."""
    most = (1 << 64) - 1
    for granted, wish, credited in ((0, 0, 0), (most, most, 0), (most, most, most), (0, 0, most),
                                    (64 * MIB, 0, 32 * MIB)):
        answers = {HELLO: welcome(), LEASE_CREDIT: -12, LEASE_OPEN: lambda _, a=granted, b=wish,
                   c=credited: opened(page(granted=a, wish=b, credited=c))}
        with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
                Client(layers, broker.path, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            heap = client.heap()
            expect(heap.size == 64 * MIB and 0 < heap.budget <= heap.size, vars(heap))
            expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'out of nowhere')


def test_wrong_credit():
    """Credit above or below the request is not trusted; the layer looks for the next broker."""
    for given in (1, 1 << 63):
        answers = {HELLO: welcome(), LEASE_OPEN: lambda _: opened(page()),
                   LEASE_CREDIT: struct.pack('=QQ', given, 64 * MIB)}
        with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
                Client(layers, broker.path, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            for _ in range(3):
                expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'it is believed')


def test_no_call_within_credit():
    """Thousands of allocations need only a few requests."""
    answers = {HELLO: welcome(), LEASE_OPEN: lambda _: opened(page()), LEASE_CREDIT: give_all}
    with Layers() as layers, FakeBroker(layers.folder, answers) as broker, \
            Client(layers, broker.path, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        for _ in range(20):
            expect(client.alloc(64 << 10, 10) == (10, OK), 'no memory')
            client.ask('free-all')
        expect(broker.seen.count(LEASE_CREDIT) == 1, 'requests:', broker.seen)
        # The layer looks for another broker at most once per second, however often it needs credit.
        answers[LEASE_OPEN] = -16
        for connection in broker.connections:
            connection.shutdown(socket.SHUT_RDWR)
        n = broker.seen.count(HELLO)
        client.alloc(60 * MIB)
        for _ in range(200):
            client.alloc(60 * MIB)
        expect(broker.seen.count(HELLO) - n <= 3, 'it connects over and over')


def test_log_cannot_be_opened():
    """A log that cannot be opened costs one line and is no failure."""
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_LOG='/proc/nothing/here', **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.stderr().count('\n') == 1 and 'cannot open the log' in client.stderr(),
               client.stderr())
    with Broker() as broker, Layers() as layers:
        log = os.path.join(layers.folder, 'log')
        with Client(layers, broker, RINGBROKER_LEASE_LOG=log, **LEASE) as client:
            expect(client.result('device') == OK, 'no device')
            client.alloc(MIB, 1000)
            for _ in range(300):
                client.alloc(MIB)
            expect(client.stderr() == '', 'on standard error:', client.stderr())
        with open(log, encoding='utf-8') as file:
            lines = file.read().splitlines()
        expect(any('refused' in line for line in lines), lines)
        expect(len(lines) < 100, 'a line per refusal')


def test_two_programs_share_a_lease():
    """Two programs share a lease by its number; the second cannot have another lease."""
    with Broker() as broker, Layers() as layers:
        log = os.path.join(layers.folder, 'log')
        with Client(layers, broker, RINGBROKER_LEASE_LOG=log, **LEASE) as first:
            expect(first.result('device') == OK, 'no device')
            with open(log, encoding='utf-8') as file:
                number = re.search(r'lease (\d+) of device', file.read()).group(1)
            with Client(layers, broker, RINGBROKER_LEASE=number) as second:
                expect(second.result('device') == OK, 'no device')
                expect(second.heap().size == 64 * MIB, 'the heap')
                expect(first.alloc(40 * MIB) == (1, OK), 'no memory')
                await_true('what is left', lambda: second.heap().budget <= 24 * MIB)
                expect(second.alloc(40 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'together')
                expect(second.alloc(20 * MIB) == (1, OK), 'together')
                expect(first.heap().budget <= 44 * MIB, vars(first.heap()))
            expect(first.alloc(20 * MIB) == (1, OK), 'the other one is gone')


if __name__ == '__main__':
    run([test_limit, test_laundering, test_host_imports, test_threads, test_fork,
         test_fork_amid_threads, test_several_devices, test_destroyed_with_leaks, test_allocators,
         test_figures_unchanged_without_layer,
         test_no_broker, test_no_lease, test_no_such_device, test_killed, test_broker_ends, test_broker_ends_idle,
         test_stalled_broker_gives_nothing_twice, test_stalled_broker_objects,
         test_stalled_broker_delays_no_call, test_stalled_broker_many_returns,
         test_stalled_broker_dies, test_waits_in_vain_only_once,
         test_payer_of_shared_memory_changes, test_broker_without_enough_memory,
         test_next_broker_has_smaller_budget, test_waiting,
         test_old_vulkan, test_card, test_driver_budget, test_escapes, test_machine_use,
         test_driver_refuses, test_validation, test_symbols, test_other_brokers,
         test_versions, test_other_clients, test_broker_is_exchanged,
         test_hostile_lease_page, test_wrong_credit, test_no_call_within_credit, test_log_cannot_be_opened,
         test_two_programs_share_a_lease])
