#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real models in segments: results of ONNX Runtime, wherever the broker cuts a plan.

    cut-models.py BROKERCTL BROKERD DATA SEED DEVICE...

Each folder of DATA/models with a file "cmd" runs its model with given inputs and compares the outputs. A broker with two
software devices cuts every plan by --cut=SEED. DEVICE: cpu, gpu, auto, partition. Models with operators that brokerctl does not
know are left out. Exit status: 77 without the data.
"""
import json
import os
import subprocess
import sys

from started import LIMIT, Broker, expect, start, wait_for

CTL, BROKERD = (os.path.abspath(path) for path in sys.argv[1:3])
MODELS, SEED = os.path.join(sys.argv[3], 'models'), sys.argv[4]
DEVICES = sys.argv[5:]
UNKNOWN = 2  # brokerctl's exit status


def run(name, device, environment):
    """Run a model. Return: False if brokerctl does not know all of its operators."""
    result = subprocess.run(['sh', 'cmd'], cwd=os.path.join(MODELS, name), timeout=5 * LIMIT, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False, env={**environment, 'DEVICE': device})
    if result.returncode == UNKNOWN and 'no such operator' in result.stdout:
        return False
    expect(result.returncode == 0, name, 'on', device, 'ended with', result.returncode, result.stdout)
    return True


def check_cut(name, environment):
    """While the model runs, the broker shows its plan's segments."""
    with open(os.path.join(MODELS, name, 'cmd'), encoding='utf-8') as file:
        command = file.read().replace('brokerctl run', 'exec brokerctl run --repeat=1000000')
    client = start(['sh', '-c', command], cwd=os.path.join(MODELS, name), stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, env=environment)

    def is_cut():
        listing = subprocess.run([CTL, 'plans', '--json'], stdout=subprocess.PIPE, env=environment, check=True).stdout
        return any(json.loads(line)['segments'] > 1 for line in listing.splitlines())
    wait_for(is_cut, name, 'is not cut')
    client.terminate()
    client.wait(LIMIT)


def main():
    names = [name for name in sorted(os.listdir(MODELS)) if os.path.exists(os.path.join(MODELS, name, 'cmd'))] \
        if os.path.isdir(MODELS) else []
    if not names:
        print('no models in', MODELS)
        sys.exit(77)
    with Broker(BROKERD, '--gpu=software:2', '--cache=none', '--calibration=none', f'--cut={SEED}') as broker:
        environment = {**os.environ, 'RINGBROKER_SOCKET': broker.socket,
                       'PATH': os.path.dirname(CTL) + ':' + os.environ['PATH']}
        known = [name for name in names if run(name, DEVICES[0], environment)]
        expect(len(known) >= 5, 'only these models can be run:', known)
        for device in DEVICES[1:]:
            for name in known:
                run(name, device, environment)
        check_cut(known[-1], environment)
    print(len(known), 'models on', *DEVICES)


main()
