#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Vulkan layer: a program that knows nothing of leases is held to one.

    lease-layer.py BROKERD LEASE_CLIENT MANIFEST [TEST...]
"""
import os
import signal

from leaserig import (CLIENT, INITIALIZATION_FAILED, LAYER, MANIFEST, MIB, OK, OUT_OF_DEVICE_MEMORY,
                      Broker, Client, Layers, await_true, expect, run)

LEASE = {'RINGBROKER_LEASE_VRAM': '64MiB'}


def test_limit():
    """Heap, budget and use follow the lease; above it is refused, to the byte."""
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
        # Whole pages.
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
        # However often it is imported.
        expect(client.result(f'exportable {40 * MIB}') == OK, 'exportable')
        fd = client.number('export 0', 'fd')
        for _ in range(3):
            other = client.number(f'dup {fd}', 'fd')
            expect(client.result(f'import {40 * MIB} {other}') == OK, 'an import of its own')
        expect(client.heap().used == 40 * MIB, 'once')
        for slot in range(4):
            expect(client.heap().used == 40 * MIB, 'as long as it is there')
            client.ask(f'free {slot}')
        # The first descriptor is still open: who has that has the memory.
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
        refused = client.number('threads 32 1000 1000000', 'refused')
        expect(refused > 0, 'nobody met the limit')
        expect(client.heap().used == 0, 'all of it is free')
        expect(client.alloc(64 * MIB) == (1, OK), 'and can be had')


def test_fork():
    """A child has a lease of its own; with what it has inherited it gets nothing."""
    policy = '[tenant default]\nvram-max = 100MiB\n'
    with Broker(policy=policy) as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB') as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(10 * MIB) == (1, OK), 'in the parent')
        expect(client.ask('fork') == 'child', 'no child')
        expect(client.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'with the device of the parent')
        client.ask('free 0')
        # What is left of the tenant's share.
        expect(client.result('device') == OK, 'no device in the child')
        expect(client.alloc(10 * MIB, 100) == (4, OUT_OF_DEVICE_MEMORY), 'in the child')
        client.say('quit')
        expect(client.hear() == 'parent: status=0', 'how the child ended')
        expect(client.alloc(10 * MIB, 100) == (5, OUT_OF_DEVICE_MEMORY), 'the parent goes on')


def test_several_devices():
    """One lease for all instances and devices that a process makes of one piece of hardware."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(20 * MIB) == (1, OK), 'first')
        expect(client.result('device') == OK, 'another instance')
        expect(client.alloc(20 * MIB) == (1, OK), 'second')
        expect(client.result('sibling') == OK, 'another device')
        expect(client.alloc(20 * MIB) == (1, OK), 'third')
        expect(client.alloc(20 * MIB) == (0, OUT_OF_DEVICE_MEMORY), 'together')
        expect(client.heap().used == 60 * MIB, 'together')
        # And after all of them are gone, though the loader unloads the layer then.
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
    """A program's own allocator is the driver's: as often as without the layer."""
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


def test_untouched():
    """Without the variable, and with the other one, everything is as the driver says."""
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
            refused(client, 'neither RINGBROKER_LEASE_VRAM says')
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='4 MB') as client:
            refused(client, 'RINGBROKER_LEASE_VRAM=4 MB is no size')
        with Client(layers, broker, RINGBROKER_LEASE='77') as client:
            refused(client, 'there is no lease 77')
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='200MiB',
                    RINGBROKER_LEASE_MIN='101MiB') as client:
            refused(client, 'tenant default: a lease of device 1 requires 105906176 bytes')
        # Once there is room it gets one: it is not given up for ever.
        with Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB') as first, \
                Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB',
                       RINGBROKER_LEASE_MIN='60MiB') as second:
            expect(first.result('device') == OK, 'no device')
            expect(second.result('device') == INITIALIZATION_FAILED, 'a device')
            first.end()
            await_true('room', lambda: second.result('device') == OK)


def test_killed():
    with Broker(memory='100MiB') as broker, Layers() as layers:
        for _ in range(3):
            with Client(layers, broker, RINGBROKER_LEASE_VRAM='60MiB',
                        RINGBROKER_LEASE_MIN='60MiB', RINGBROKER_LEASE_WAIT='50s') as client:
                expect(client.result('device') == OK, 'no device')
                expect(client.alloc(60 * MIB) == (1, OK), 'no memory')
                client.kill()


def test_broker_ends():
    """The program goes on within what it has, and then with the broker that comes next."""
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
        # Above its maximum it does not.
        expect(waiter.alloc(MIB) == (0, OUT_OF_DEVICE_MEMORY), 'above its maximum')
        # Another thread frees what this one waits for: no lock is held meanwhile.
        waiter.ask('free 1')
        expect(waiter.result(f'while-freeing {40 * MIB} 0 100') == OK, 'there was room')


def test_old_vulkan():
    """A program of Vulkan 1.0 does not get around it."""
    with Broker() as broker, Layers() as layers, Client(layers, broker, **LEASE) as client:
        expect(client.result('device 1') == OK, 'no device')
        expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'it is not held to it')
        expect(client.result('device 3') == OK, 'no device of 1.2')
        expect(client.heap().used == 64 * MIB, 'the two are the same hardware')


if __name__ == '__main__':
    run([test_limit, test_laundering, test_host_imports, test_threads, test_fork,
         test_several_devices, test_destroyed_with_leaks, test_allocators, test_untouched,
         test_no_broker, test_no_lease, test_killed, test_broker_ends, test_waiting,
         test_old_vulkan])
