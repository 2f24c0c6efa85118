#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A card without memory although the ledger shows some, because a process outside of the broker was
faster. Clients notice only where their tasks run.

    refused-memory.py AMDGPU-SIM BROKERD MODEL-CLIENT
"""
import sys

from simulated import GPU, Broker, Cards, Client

SIM, BROKERD, CLIENT = sys.argv[1:4]
REFUSED = 'has no memory for plan'

with Cards(SIM, 'polaris10,vram=512MiB') as cards:
    with Broker(BROKERD, cards) as broker, Client(CLIENT, broker) as client:
        # One allocation fails: the second attempt succeeds.
        cards.control('fail', 'card0', 'GEM_CREATE', 'ENOMEM', '1')
        client.tell('plan', 'once', 16)
        client.await_state('once', 'vram')
        assert client.run('once')[0] == GPU
        assert not broker.says(REFUSED)
        charged = client.charged()[0]

        # Every allocation fails: the plan is made, and runs on the CPU.
        cards.control('fail', 'card0', 'GEM_CREATE', 'ENOMEM', 'forever')
        client.tell('plan', 'often', 16)
        assert client.run('often') == (0, 'memory-constraint')
        assert int(client.tell('prefetch', 'often')[1]) == -12
        assert broker.says(REFUSED)
        assert client.charged()[0] == charged
        assert client.run('once')[0] == GPU

        # The card has memory again: the model is loaded without a request of the client.
        cards.control('fail', 'card0', 'GEM_CREATE', 'ENOMEM', '0')
        client.await_state('often', 'vram')
        assert client.run('often')[0] == GPU
        assert cards.held(broker.pid)[0] >= client.charged()[0] > charged
