#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real models by brokerctl run, compared with known answers.

    real-models.py BROKERCTL DATA DEVICE [IMAGES]

mnist-cnn: the logits of the first IMAGES of the 10,000 test pictures, and how many digits are
right. glove-100d: the ten words that are nearest to each of fifty by cosine, found by Gather,
LpNormalization, MatMul and TopK over 20,000 vectors. DEVICE: cpu, gpu, on which each node must
run. Exit status: 77 without the data.
"""
import array
import json
import os
import subprocess
import sys
import tempfile

import onnxfile as onnx

from started import expect

CTL, DATA, DEVICE = os.path.abspath(sys.argv[1]), os.path.join(sys.argv[2], 'real'), sys.argv[3]
IMAGES = int(sys.argv[4]) if len(sys.argv) > 4 else 10000
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
PIXELS, DIGITS = 28 * 28, 10
WORDS, WIDTH, QUERIES, NEAREST = 20000, 100, 50, 10
# Neighbours whose ranks differ by less may change places.
RANK_GAP, COSINE_ATOL = 2e-6, 1e-5


def run(*arguments):
    result = subprocess.run([CTL, 'run', '--json', '--device', DEVICE, *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=LIMIT, check=False)
    expect(result.returncode == 0, arguments, 'ended with', result.returncode, result.stdout,
           result.stderr)
    found = json.loads(result.stdout)
    expect(all((each['device'] > 0) == (DEVICE == 'gpu') for each in found['devices']), found)
    return found


def read(path, code):
    """Return the values of a file as an array of that type code."""
    _, values = onnx.read_npy(path)
    return values if isinstance(values, array.array) else array.array(code, values)


def check_mnist(folder):
    here = os.path.join(DATA, 'mnist-cnn')
    pixels = read(os.path.join(here, 't10k_images_u8.npy'), 'B')[:IMAGES * PIXELS]
    labels = read(os.path.join(here, 't10k_labels_u8.npy'), 'B')
    wanted = read(os.path.join(here, 'expected_logits_t10k_f32.npy'), 'f')[:IMAGES * DIGITS]
    images = onnx.npy(os.path.join(folder, 'images.npy'), onnx.FLOAT, [IMAGES, 1, 28, 28],
                      array.array('f', pixels).tobytes())
    expected = onnx.npy(os.path.join(folder, 'expected.npy'), onnx.FLOAT, [IMAGES, DIGITS],
                        wanted.tobytes())
    out = os.path.join(folder, 'logits.npy')
    # Logits reach 8,900: rounding errors of the largest exceed a thousandth of the smallest logit.
    found = run(os.path.join(here, 'mnist.onnx'), f'--input={images}', f'--output={out}',
                f'--expect={expected}', '--rtol=1e-3', '--atol=0.05')
    expect(found['rows'] == IMAGES, found)
    dims, logits = onnx.read_npy(out)
    expect(dims == [IMAGES, DIGITS], dims)

    def right(values):
        rows = [values[i * DIGITS:(i + 1) * DIGITS] for i in range(IMAGES)]
        return sum(row.index(max(row)) == label for row, label in zip(rows, labels))
    expect(right(logits) == right(wanted), right(logits), 'digits are right, not', right(wanted))
    expect(IMAGES != 10000 or right(logits) == 9891, right(logits))
    print(f'mnist-cnn: {right(logits)} of {IMAGES} right, {found["wall_ns"]["median"] / 1e6:.0f} ms')


def check_glove(folder):
    here = os.path.join(DATA, 'glove-100d')
    table = read(os.path.join(here, 'vectors.npy'), 'f')
    model = onnx.write(os.path.join(folder, 'nearest.onnx'), onnx.model(
        [onnx.node('Gather', ['table', 'words'], ['vectors']),
         onnx.node('LpNormalization', ['vectors'], ['queries'], axis=-1, p=2),
         onnx.node('LpNormalization', ['table'], ['units'], axis=-1, p=2),
         onnx.node('Transpose', ['units'], ['columns'], perm=[1, 0]),
         onnx.node('MatMul', ['queries', 'columns'], ['scores']),
         onnx.node('TopK', ['scores', 'k'], ['cosines', 'nearest'])],
        [('words', onnx.INT64, ['n'])],
        [('cosines', onnx.FLOAT, ['n', NEAREST]), ('nearest', onnx.INT64, ['n', NEAREST])],
        [onnx.tensor('table', onnx.FLOAT, [WORDS, WIDTH], table),
         onnx.tensor('k', onnx.INT64, [1], [NEAREST])]))
    words = read(os.path.join(here, 'query_idx.npy'), 'q')
    query = onnx.npy(os.path.join(folder, 'words.npy'), onnx.INT64, [QUERIES],
                     array.array('q', words).tobytes())
    out = [os.path.join(folder, name) for name in ('cosines.npy', 'nearest.npy')]
    run(model, f'--input={query}', f'--output=cosines={out[0]}', f'--output=nearest={out[1]}')
    cosines, nearest = read(out[0], 'f'), read(out[1], 'q')
    want_cosines = read(os.path.join(here, 'expected_top10_cos.npy'), 'f')
    want = read(os.path.join(here, 'expected_top10_idx.npy'), 'q')
    for i, cosine in enumerate(want_cosines):
        expect(abs(cosines[i] - cosine) <= COSINE_ATOL, i, cosines[i], 'is not', cosine)
        begin = i - i % NEAREST
        near = [j for j in range(begin, begin + NEAREST)
                if abs(want_cosines[j] - cosine) <= RANK_GAP]
        expect(nearest[i] in [want[j] for j in near], i, nearest[i], 'is not', want[i])
    print(f'glove-100d: {NEAREST} nearest of {QUERIES} words')


def main():
    if not os.path.isdir(DATA):
        print(f'skipped: there is no {DATA}; see option test_data')
        sys.exit(77)
    os.environ.pop('RINGBROKER_SOCKET', None)
    with tempfile.TemporaryDirectory(prefix='real-', dir='/tmp') as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        check_mnist(folder)
        check_glove(folder)


main()
