#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models that amdgpu moves to host memory without the broker's knowledge: another process takes the
whole card for a moment that is too short to be seen. Before Linux 6.10 moved memory stays in host
memory even if there is room, so the broker must notice and reallocate it. No plan is evicted for that.

    spilled-model.py AMDGPU-SIM BROKERD MODEL-CLIENT
"""
import sys
import time

from simulated import GPU, MIB, Broker, Cards, Client, await_true

SIM, BROKERD, CLIENT = sys.argv[1:4]
MODELS = {'small': 16, 'middle': 32, 'large': 64}
MOVED, MENDED = 'that are in use to host memory', 'all memory in use is in device memory again'


def spill(cards, broker, client):
    """Return the bytes that were moved to host memory."""
    for _ in range(20):
        cards.control('set', 'card0', 'other-vram=500MiB')
        cards.control('set', 'card0', 'other-vram=0')
        missing = client.charged()[0] - cards.held(broker.pid)[0]
        if missing >= 16 * MIB:
            return missing
        # The broker noticed the usage and evicted the models; wait until they are loaded again.
        for name in MODELS:
            client.await_state(name, 'vram')
    raise AssertionError('the broker always sees it in time')


def play(kernel):
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        cards.control('set', 'card0', 'kernel=' + kernel)
        with Broker(BROKERD, cards) as broker, Client(CLIENT, broker) as client:
            for name, mib in MODELS.items():
                client.tell('plan', name, mib)
                client.await_state(name, 'vram')
            charged = client.charged()[0]
            assert cards.held(broker.pid)[0] >= charged >= 112 * MIB

            missing = spill(cards, broker, client)
            spilled = time.monotonic()
            evictions = [client.memory(name)[3] for name in MODELS]
            client.tell('start', 'small')
            # The broker ignores less than 4 MiB.
            await_true('all of it is there', lambda: charged - cards.held(broker.pid)[0] < 4 * MIB
                       and client.charged()[0] == charged)
            mended = time.monotonic()
            _, tasks = client.stop('small')
            for name in MODELS:
                client.await_state(name, 'vram')
            assert [client.memory(name)[3] for name in MODELS] == evictions
            assert client.run('small')[0] == GPU
            # Linux 6.14 may move the memory back before the broker notices, because it is in use.
            if kernel == '6.1':
                await_true('it is told', lambda: broker.says(MENDED))
            assert broker.n_says(MOVED) == broker.n_says(MENDED) <= 1
            print(f'Linux {kernel}: {missing // MIB} of {charged // MIB} MiB were moved, all back'
                  f' after {(mended - spilled) * 1e3:.0f} ms; noticed {broker.n_says(MOVED)} times;'
                  f' tasks meanwhile: {tasks}', flush=True)


for version in '6.1', '6.14':
    play(version)
