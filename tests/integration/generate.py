#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small language model that generates text: one token at a time, with a cache of the past, and with
random sampling.

    generate.py BROKERCTL BROKERD DEVICE...

DEVICE: cpu, gpu. The model has grouped-query attention with past keys and values, rotary positions, RMS
normalisation, and sampling: TopK, a Softmax with temperature, and a random number as input. Each step's
logits must equal those of the same model that reads the whole text at once, and each token must follow
from its logits and random number.
"""
import array
import math
import os
import random
import signal
import subprocess
import sys
import tempfile

import onnxfile as onnx
from started import expect, start_broker

CTL, BROKERD = sys.argv[1:3]
DEVICES = sys.argv[3:]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
TEXTS, STEPS = 3, 4  # texts in a batch, steps
WORDS, WIDTH, HEADS, KV_HEADS, SIZE, INNER = 40, 32, 4, 2, 8, 64
N_BEST, TEMPERATURE = 8, 0.7
OPSET = 23


def constants():
    rng = random.Random('weights')

    def some(name, *dims, spread=1.0):
        return onnx.tensor(name, onnx.FLOAT, dims, [rng.gauss(0, spread) for _ in range(math.prod(dims))])

    angles = [position / 100 ** (i / (SIZE // 2)) for position in range(STEPS) for i in range(SIZE // 2)]
    scale = WIDTH ** -0.5
    return [some('words', WORDS, WIDTH), some('gain', WIDTH),
            some('wq', WIDTH, HEADS * SIZE, spread=scale), some('wk', WIDTH, KV_HEADS * SIZE, spread=scale),
            some('wv', WIDTH, KV_HEADS * SIZE, spread=scale), some('wo', HEADS * SIZE, WIDTH, spread=scale),
            some('up', WIDTH, INNER, spread=scale), some('down', INNER, WIDTH, spread=INNER ** -0.5),
            some('out', WIDTH, WORDS, spread=0.5),
            onnx.tensor('cos', onnx.FLOAT, [STEPS, SIZE // 2], map_list(math.cos, angles)),
            onnx.tensor('sin', onnx.FLOAT, [STEPS, SIZE // 2], map_list(math.sin, angles)),
            onnx.tensor('temperature', onnx.FLOAT, [], [TEMPERATURE]),
            onnx.tensor('k', onnx.INT64, [1], [N_BEST]),
            onnx.tensor('last', onnx.INT64, [], [N_BEST - 1]),
            onnx.tensor('two', onnx.INT64, [], [2]),
            onnx.tensor('back', onnx.INT64, [1], [-1])]


def map_list(function, values):
    return [function(value) for value in values]


def reads(nodes, n_past):
    """Return the nodes from tokens to logits. @n_past: number of past tokens; None: the whole text is
    given at once."""
    def op(name, inputs, output, **attributes):
        nodes.append(onnx.node(name, inputs, output if isinstance(output, list) else [output], **attributes))

    op('Gather', ['words', 'tokens'], 'x')
    op('RMSNormalization', ['x', 'gain'], 'xn')
    for part, heads in (('q', HEADS), ('k', KV_HEADS)):
        op('MatMul', ['xn', f'w{part}'], f'{part}0')
        op('RotaryEmbedding', [f'{part}0', 'cos', 'sin', 'positions'], part + 'r', num_heads=heads)
    op('MatMul', ['xn', 'wv'], 'v')
    heads = {'q_num_heads': HEADS, 'kv_num_heads': KV_HEADS}
    if n_past is None:
        op('Attention', ['qr', 'kr', 'v'], 'a', is_causal=1, **heads)
    else:
        op('Attention', ['qr', 'kr', 'v', '', 'keys', 'values'], ['a', 'all_keys', 'all_values'], **heads)
    op('MatMul', ['a', 'wo'], 'ao')
    op('Add', ['x', 'ao'], 'h')
    op('RMSNormalization', ['h', 'gain'], 'hn')
    op('MatMul', ['hn', 'up'], 'u0')
    op('Sigmoid', ['u0'], 'gate')
    op('Mul', ['u0', 'gate'], 'u1')
    op('MatMul', ['u1', 'down'], 'd')
    op('Add', ['h', 'd'], 'y')
    op('RMSNormalization', ['y', 'gain'], 'yn')
    op('MatMul', ['yn', 'out'], 'logits')
    return op


def step_model(path, n_past):
    nodes = []
    op = reads(nodes, n_past)
    op('TopK', ['logits', 'k'], ['best', 'which'])
    op('Div', ['best', 'temperature'], 'warm')
    op('Softmax', ['warm'], 'p')
    op('CumSum', ['p', 'two'], 'sum')
    op('Less', ['sum', 'chance'], 'below')
    op('Cast', ['below'], 'ones', to=onnx.INT64)
    op('ReduceSum', ['ones', 'back'], 'count')
    op('Min', ['count', 'last'], 'index')
    op('GatherElements', ['which', 'index'], 'next', axis=2)
    past = ['N', KV_HEADS, n_past, SIZE]
    grown = ['N', KV_HEADS, n_past + 1, SIZE]
    inputs = [('tokens', onnx.INT64, ['N', 1]), ('positions', onnx.INT64, ['N', 1]),
              ('keys', onnx.FLOAT, past), ('values', onnx.FLOAT, past), ('chance', onnx.FLOAT, ['N', 1, 1])]
    outputs = [('logits', onnx.FLOAT, ['N', 1, WORDS]), ('next', onnx.INT64, ['N', 1, 1]),
               ('all_keys', onnx.FLOAT, grown), ('all_values', onnx.FLOAT, grown)]
    return onnx.write(path, onnx.model(nodes, inputs, outputs, constants(), OPSET))


def whole_model(path, n_tokens):
    nodes = []
    reads(nodes, None)
    inputs = [(name, onnx.INT64, ['N', n_tokens]) for name in ('tokens', 'positions')]
    return onnx.write(path, onnx.model(nodes, inputs, [('logits', onnx.FLOAT, ['N', n_tokens, WORDS])],
                                       constants(), OPSET))


def run(folder, device, model, inputs, outputs):
    """@inputs: name to (type, dims, values). Return: the files of @outputs, by name."""
    files = {name: os.path.join(folder, f'out-{name}.npy') for name in outputs}
    arguments = [onnx.npy(os.path.join(folder, f'in-{name}.npy'), *about) for name, about in inputs.items()]
    result = subprocess.run(
        [CTL, 'run', model, f'--device={device}',
         *(f'--input={name}={path}' for name, path in zip(inputs, arguments)),
         *(f'--output={name}={path}' for name, path in files.items())],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
    expect(result.returncode == 0, model, 'on', device, 'ended with', result.returncode, result.stdout)
    return {name: onnx.read_npy(path)[1] for name, path in files.items()}


def drawn(logits, chance):
    """Return the next token, and the distance of @chance from the nearest boundary to another token."""
    best = sorted(range(WORDS), key=lambda word: -logits[word])[:N_BEST]
    weights = [math.exp((logits[word] - logits[best[0]]) / TEMPERATURE) for word in best]
    bounds = [sum(weights[:i + 1]) / sum(weights) for i in range(N_BEST)]
    index = min(sum(bound < chance for bound in bounds), N_BEST - 1)
    return best[index], min(abs(bound - chance) for bound in bounds)


def write_texts(folder, device):
    rng = random.Random('chances')
    texts = [[rng.randrange(WORDS)] for _ in range(TEXTS)]
    keys = values = b''
    logits = []
    for step in range(STEPS):
        model = step_model(os.path.join(folder, 'step.onnx'), step)
        chances = [rng.random() for _ in range(TEXTS)]
        past = [TEXTS, KV_HEADS, step, SIZE]
        found = run(folder, device, model, {
            'tokens': (onnx.INT64, [TEXTS, 1], [text[-1] for text in texts]),
            'positions': (onnx.INT64, [TEXTS, 1], [step] * TEXTS),
            'keys': (onnx.FLOAT, past, keys), 'values': (onnx.FLOAT, past, values),
            'chance': (onnx.FLOAT, [TEXTS, 1, 1], chances)}, ['logits', 'next', 'all_keys', 'all_values'])
        keys, values = (found[name].tobytes() for name in ('all_keys', 'all_values'))
        tokens = array.array('q', found['next'])
        for i, text in enumerate(texts):
            row = found['logits'][i * WORDS:(i + 1) * WORDS]
            word, margin = drawn(row, chances[i])
            expect(tokens[i] == word or margin < 1e-5, device, 'drew', tokens[i], 'not', word, 'at', chances[i])
            text.append(word)
        logits.append(found['logits'])
    return texts, logits


def check(folder, device):
    texts, logits = write_texts(folder, device)
    model = whole_model(os.path.join(folder, 'whole.onnx'), STEPS)
    whole = run(folder, device, model, {
        'tokens': (onnx.INT64, [TEXTS, STEPS], [word for text in texts for word in text[:STEPS]]),
        'positions': (onnx.INT64, [TEXTS, STEPS], list(range(STEPS)) * TEXTS)}, ['logits'])['logits']
    for text in range(TEXTS):
        for step in range(STEPS):
            for word in range(WORDS):
                once = whole[(text * STEPS + step) * WORDS + word]
                alone = logits[step][text * WORDS + word]
                expect(abs(once - alone) <= 1e-4 + 1e-3 * abs(once), device, 'text', text, 'step', step, 'word',
                       word, 'is', alone, 'by steps, but', once, 'at once')
    return texts


def main():
    with tempfile.TemporaryDirectory(prefix='generate-', dir='/tmp') as folder:
        os.environ['RINGBROKER_SOCKET'] = os.path.join(folder, 'sock')
        gpu = 'software' if 'gpu' in DEVICES else 'none'
        process = start_broker([BROKERD, '--socket', os.environ['RINGBROKER_SOCKET'], '--cache', folder,
                                '--calibration=none', f'--gpu={gpu}'], os.path.join(folder, 'log'), LIMIT)
        found = [check(folder, device) for device in DEVICES]
        expect(all(texts == found[0] for texts in found), 'devices write differently:', found)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)


main()
