#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerctl run: models with files, and the messages for every mistake.

    brokerctl-run.py BROKERCTL BROKERD DEVICE...

DEVICE: cpu, gpu.
"""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

import onnxfile as onnx
from started import expect, start, start_broker, wait_for

CTL, BROKERD = map(os.path.abspath, sys.argv[1:3])
DEVICES = sys.argv[3:]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
OK, DIFFERENT, USAGE, NO_BROKER = range(4)


def run(*arguments, status=OK, **options):
    result = subprocess.run([CTL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=LIMIT, check=False, **options)
    expect(result.returncode == status, arguments, 'ended with', result.returncode, 'not', status,
           result.stdout, result.stderr)
    return result


def report(*arguments, status=OK, **options):
    result = run('run', '--json', *arguments, status=status, **options)
    expect(result.stdout.count('\n') == 1, result.stdout)
    found = json.loads(result.stdout)
    expect(found['type'] == 'run', found)
    return found


def refused(*arguments, says, status=USAGE):
    """Expect one message that contains all of @says, followed by the synopsis if the options are wrong."""
    result = run('run', *arguments, status=status)
    expect(result.stdout == '', result.stdout)
    first, *more = result.stderr.splitlines()
    expect(not more or len(more) == 1 and more[0].startswith('usage: '), result.stderr)
    expect(first.startswith('brokerctl'), first)
    for what in says:
        expect(what in first, first, 'does not say', what)


def brokers(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/environ', 'rb') as file:
                if f'RINGBROKER_SOCKET={folder}/'.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Files:
    """Models, and arrays for them: y = relu(x + b), with rows of 4."""

    def __init__(self, folder):
        def at(name):
            return os.path.join(folder, name)
        self.at = at
        bias = onnx.tensor('b', onnx.FLOAT, [4], [1, 2, -3, 0.5])
        nodes = [onnx.node('Add', ['x', 'b'], ['sum'], 'adding'), onnx.node('Relu', ['sum'], ['y'])]
        self.model = onnx.write(at('model.onnx'), onnx.model(
            nodes, [('x', onnx.FLOAT, ['batch', 4])], [('y', onnx.FLOAT, ['batch', 4])], [bias]))
        self.two = onnx.write(at('two.onnx'), onnx.model(
            [onnx.node('Add', ['left', 'right'], ['sum']), onnx.node('Mul', ['left', 'right'], ['product'])],
            [('left', onnx.FLOAT, [2, 3]), ('right', onnx.FLOAT, [2, 3])],
            [('sum', onnx.FLOAT, [2, 3]), ('product', onnx.FLOAT, [2, 3])]))
        self.rows = 10
        values = [(i % 7) - 3 + i / 16 for i in range(4 * self.rows)]
        self.wanted = [max(x + [1, 2, -3, 0.5][i % 4], 0) for i, x in enumerate(values)]
        self.x = onnx.npy(at('x.npy'), onnx.FLOAT, [self.rows, 4], values)
        # Input of runs whose progress is observed: a fast machine takes a second for a million repetitions over
        # ten rows.
        self.long = onnx.npy(at('long.npy'), onnx.FLOAT, [1 << 16, 4], [1] * (4 << 16))
        self.y = onnx.npy(at('y.npy'), onnx.FLOAT, [self.rows, 4], self.wanted)
        self.pb = onnx.write(at('x.pb'), onnx.tensor('any', onnx.FLOAT, [self.rows, 4], values))
        self.half = onnx.npy(at('half.npy'), onnx.FLOAT, [2, 3], [0.5] * 6)
        self.ones = onnx.npy(at('ones.npy'), onnx.FLOAT, [2, 3], [1, 2, 3, 4, 5, 6])


def check_devices(files):
    for device in DEVICES:
        out = files.at('out.npy')
        found = report(files.model, f'--input=x={files.x}', f'--output={out}', f'--expect=y={files.y}',
                       '--device', device)
        expect(found['private_broker'] is True, found)
        expect([(each['device'] > 0, each['tasks']) for each in found['devices']] ==
               [(device == 'gpu', 1)], found)
        output, = found['outputs']
        expect(output['name'] == 'y' and output['dtype'] == 'float32', output)
        expect(output['matches'] is True and output['shape'] == [files.rows, 4], output)
        expect(output['file'] == out, output)
        dims, values = onnx.read_npy(out)
        expect(dims == [files.rows, 4] and list(values) == files.wanted, dims, values)
        os.unlink(out)


def check_files(files):
    """Both kinds of files work as input and output, with several tasks, inputs and outputs."""
    out = files.at('out.pb')
    found = report(files.model, '--input', files.pb, '--output', out, '--expect', files.y,
                   '--device=cpu', '--count=3', '--repeat=2')
    expect(found['rows'] == 10 and found['task_rows'] == 3 and found['tasks'] == 4, found)
    expect(found['runs'] == 2 and found['devices'][0]['tasks'] == 8, found)
    expect(0 < found['exec_ns']['median'] <= found['wall_ns']['max'], found)
    found = report(files.model, '--input', files.x, '--expect', files.y, '--device=cpu', '--seconds=0.2')
    expect(found['runs'] > 1, found)
    found = report(files.model, '--input', files.x, '--expect', files.y, '--device=cpu', '--count=1')
    expect(found['tasks'] == 10, found)
    again = files.at('again.npy')
    report(files.model, '--input', files.y, '--output', again, '--device=cpu')
    report(files.model, '--input', out, '--expect', again, '--device=cpu')
    with open(out, 'rb') as file:
        expect(file.read() == onnx.tensor('y', onnx.FLOAT, [10, 4], files.wanted), 'another .pb')
    found = report(files.two, f'--input=right={files.half}', f'--input=left={files.ones}',
                   f'--output=product={again}', '--device=cpu')
    expect([each['name'] for each in found['outputs']] == ['sum', 'product'], found)
    expect(list(onnx.read_npy(again)[1]) == [0.5, 1, 1.5, 2, 2.5, 3], onnx.read_npy(again))
    text = run('run', files.two, f'--input=right={files.half}', f'--input=left={files.ones}',
               '--device=cpu').stdout
    expect('sum float32 [2,3]: 1.5 2.5 3.5 4.5 5.5 6.5' in text and 'ran on CPU' in text, text)


def check_resize(files):
    """A NaN affects only the elements that are computed from it."""
    model = onnx.write(files.at('resize.onnx'), onnx.model(
        [onnx.node('Resize', ['x', '', 'scales'], ['y'], mode='linear')],
        [('x', onnx.FLOAT, [1, 8])], [('y', onnx.FLOAT, [1, 16])],
        [onnx.tensor('scales', onnx.FLOAT, [2], [1, 2])]))
    x = onnx.npy(files.at('holes.npy'), onnx.FLOAT, [1, 8], [1, 2, float('nan'), 4, 5, 6, 7, float('inf')])
    nan = float('nan')
    y = onnx.npy(files.at('resized.npy'), onnx.FLOAT, [1, 16],
                 [1, 1.25, 1.75, nan, nan, nan, nan, 4.25, 4.75, 5.25, 5.75, 6.25, 6.75] + 3 * [float('inf')])
    for device in DEVICES:
        report(model, f'--input={x}', f'--expect={y}', '--device', device)


def check_dependent_rows(files):
    """Where rows depend on other rows, all rows are one task."""
    model = onnx.write(files.at('mixing.onnx'), onnx.model(
        [onnx.node('ReduceMean', ['x'], ['mean'], 'middle', axes=[0]), onnx.node('Sub', ['x', 'mean'], ['y'])],
        [('x', onnx.FLOAT, ['n', 2])], [('y', onnx.FLOAT, ['n', 2])]))
    rows = 4096
    x = onnx.npy(files.at('mixing.npy'), onnx.FLOAT, [rows, 2], [i // 2 for i in range(2 * rows)])
    y = onnx.npy(files.at('mixed.npy'), onnx.FLOAT, [rows, 2],
                 [i // 2 - (rows - 1) / 2 for i in range(2 * rows)])
    for device in DEVICES:
        found = report(model, f'--input={x}', f'--expect={y}', '--device', device)
        expect(found['tasks'] == 1 and found['task_rows'] == rows, found)
        report(model, f'--input={x}', f'--expect={y}', '--device', device, f'--count={rows}')
    refused(model, f'--input={x}', '--count=1024', says=['ReduceMean middle', 'from other rows', 'one task'])


def check_values(files):
    """Values are not truncated, not multiplied twice, and in the same order on each device."""
    def one(name, nodes, inputs, outputs, constants=()):
        return onnx.write(files.at(name), onnx.model(nodes, inputs, outputs, constants))

    for nodes, constant, says in (
            ([onnx.node('Expand', ['x', 'c'], ['y'])], [(1 << 32) + 3], 'does not expand'),
            ([onnx.node('Split', ['x', 'c'], ['y'])], [3], 'the parts have 3 elements'),
            ([onnx.node('Cast', ['x'], ['y'], to=(1 << 32) + 1)], [0], 'which is not an element type')):
        model = one('values.onnx', nodes, [('x', onnx.FLOAT, [1])], [('y', onnx.FLOAT, ['n'])],
                    [onnx.tensor('c', onnx.INT64, [1], constant)])
        x = onnx.npy(files.at('one.npy'), onnx.FLOAT, [1], [1])
        text = run('run', model, f'--input={x}', status=USAGE).stderr
        expect(says in text, text)
    beta = one('beta.onnx', [onnx.node('Gemm', ['x', 'w'], ['xw'], beta=0.5), onnx.node('Add', ['xw', 'b'], ['y'])],
               [('x', onnx.FLOAT, [2, 3])], [('y', onnx.FLOAT, [2, 2])],
               [onnx.tensor('w', onnx.FLOAT, [3, 2], [1] * 6), onnx.tensor('b', onnx.FLOAT, [2], [10, 20])])
    sums = onnx.npy(files.at('sums.npy'), onnx.FLOAT, [2, 2], [16, 26, 25, 35])
    # This is nearly HardSwish: -3.0005 * (-0.1666 * 3.0005 + 0.5).
    gate = one('gate.onnx', [onnx.node('HardSigmoid', ['x'], ['g'], alpha=0.1666), onnx.node('Mul', ['x', 'g'], ['y'])],
               [('x', onnx.FLOAT, [1])], [('y', onnx.FLOAT, [1])])
    x = onnx.npy(files.at('gate.npy'), onnx.FLOAT, [1], [-3.0005])
    gated = onnx.npy(files.at('gated.npy'), onnx.FLOAT, [1], [-3.0005 * (0.5 - 0.1666 * 3.0005)])
    largest = one('top.onnx', [onnx.node('TopK', ['v', 'k'], ['top', 'where'])], [('v', onnx.FLOAT, [1, 4])],
                  [('top', onnx.FLOAT, [1, 2]), ('where', onnx.INT64, [1, 2])],
                  [onnx.tensor('k', onnx.INT64, [1], [2])])
    nan = onnx.npy(files.at('nan.npy'), onnx.FLOAT, [1, 4], [1, float('nan'), 3, 2])
    top = onnx.npy(files.at('top.npy'), onnx.FLOAT, [1, 2], [3, 2])
    # The output's shape depends on all rows of the input, so the input becomes part of the plan, and no task
    # has rows.
    where = one('where.onnx', [onnx.node('NonZero', ['x'], ['at'])], [('x', onnx.FLOAT, ['batch', 3])],
                [('at', onnx.INT64, [2, 'n'])])
    rows = onnx.npy(files.at('rows.npy'), onnx.FLOAT, [2, 3], [0, 1, 2, 3, 0, 5])
    places = onnx.npy(files.at('places.npy'), onnx.INT64, [2, 4], [0, 0, 1, 1, 1, 2, 0, 2])
    for device in DEVICES:
        report(beta, f'--input={files.ones}', f'--expect={sums}', '--device', device)
        report(gate, f'--input={x}', f'--expect={gated}', '--device', device)
        report(largest, f'--input={nan}', f'--expect=top={top}', '--device', device)
        report(where, f'--input={rows}', f'--expect={places}', '--device', device)


def check_different(files):
    wrong = list(files.wanted)
    wrong[13] += 0.25
    wrong[22] -= 0.125
    expected = onnx.npy(files.at('wrong.npy'), onnx.FLOAT, [files.rows, 4], wrong)
    arguments = [files.model, f'--input={files.x}', f'--expect={expected}', '--device=cpu']
    result = run('run', *arguments, status=DIFFERENT)
    expect('NOT as expected' in result.stdout and '2 of 40 elements differ' in result.stdout and
           '[3,1]' in result.stdout and 'off by 0.25' in result.stdout, result.stdout)
    output, = report(*arguments, status=DIFFERENT)['outputs']
    expect(output['matches'] is False and output['different'] == 2, output)
    expect(output['worst'] == [3, 1] and output['largest_difference'] == 0.25, output)
    # The finite elements differ by 0.25 at most; the report must show the element that is not finite.
    for number in ('nan', 'inf', '-inf'):
        wanted = onnx.npy(files.at('beyond.npy'), onnx.FLOAT, [files.rows, 4], wrong[:5] + [float(number)] + wrong[6:])
        output, = report(files.model, f'--input={files.x}', f'--expect={wanted}', '--device=cpu',
                         status=DIFFERENT)['outputs']
        expect(output['worst'] == [1, 1] and output['want'] is None, output)
        expect(output['largest_difference'] is None and f'instead of {number}' in output['why'], output)
    run('run', *arguments, '--atol=0.2', status=DIFFERENT)
    run('run', *arguments, '--atol=0.25')
    run('run', *arguments, '--atol=0', '--rtol=1')
    # By default the tolerance near 0 is tighter for float64 than for float32.
    for dtype, status in ((onnx.FLOAT, OK), (onnx.DOUBLE, DIFFERENT)):
        model = onnx.write(files.at('near.onnx'), onnx.model(
            [onnx.node('Neg', ['x'], ['y'])], [('x', dtype, [1])], [('y', dtype, [1])]))
        x = onnx.npy(files.at('near.npy'), dtype, [1], [5e-7])
        zero = onnx.npy(files.at('zero.npy'), dtype, [1], [0])
        run('run', model, f'--input={x}', f'--expect={zero}', '--device=cpu', status=status)
        run('run', model, f'--input={x}', f'--expect={zero}', '--device=cpu', '--atol=1e-6')
    short = onnx.npy(files.at('short.npy'), onnx.FLOAT, [4], [0] * 4)
    text = run('run', files.model, f'--input={files.x}', f'--expect={short}', '--device=cpu',
               status=DIFFERENT).stdout
    expect('float32 [10,4] instead of float32 [4]' in text, text)


def check_mistakes(files):
    x, at = f'--input={files.x}', files.at
    refused(says=['MODEL.onnx is missing'])
    refused(files.model, x, '--device=tpu', says=['auto, cpu, gpu, prefer-gpu or partition, not tpu'])
    refused('--check', files.model, '--device=prefer', says=['not prefer'])
    refused(files.model, x, '--rtol=-1', says=['--rtol', '-1'])
    for seconds in ('0', '-1', 'x', '86401'):
        refused(files.model, x, '--seconds=' + seconds, says=['--seconds', seconds])
    refused(files.model, x, '--seconds=1', '--repeat=2', says=['--repeat and --seconds'])
    refused(files.model, x, '--atol=x', says=['--atol', 'x'])
    refused(files.model, x, '--repeat=0', says=['--repeat'])
    refused(files.model, x, '--count=x', says=['--count'])
    refused(files.model, x, '--disable-optimisation=fold,speed', says=['--disable-optimisation', 'not speed'])
    refused(files.model, x, '--frobnicate', says=['no option --frobnicate'])
    refused(at('none.onnx'), x, says=['none.onnx'])
    refused(files.x, x, says=['x.npy'])
    refused(files.model, says=['input x is missing'])
    refused(files.model, f'--input=z={files.x}', says=['has no input z', 'x'])
    refused(files.model, f'--input=={files.x}', says=['no name before', f'--input={files.x} will do'])
    refused(files.model, f'--input={files.x}', f'--output=y={at("a.npy")}', f'--output={at("b.npy")}',
            says=['--output=y is given twice'])
    fixed = onnx.write(at('fixed.onnx'), onnx.model(
        [onnx.node('Relu', ['x'], ['y']), onnx.node('Neg', ['x'], ['z'])], [('x', onnx.FLOAT, [2, 3])],
        [('y', onnx.FLOAT, [2, 3]), ('z', onnx.FLOAT, [2, 3])]))
    refused(fixed, f'--input={files.ones}', '--count=2', says=['shapes are fixed', 'tasks of 2 rows'])
    refused(fixed, f'--input={files.ones}', f'--output=y={at("a.npy")}', f'--output=z={at("a.npy")}',
            says=['outputs y and z would both be written to', 'a.npy'])
    refused(fixed, f'--input={files.ones}', f'--output=y={fixed}', says=['y would be written over the model', fixed])
    report(fixed, f'--input={files.ones}', '--output=y=/dev/null', '--output=z=/dev/null')
    with zipfile.ZipFile(at('x.npz'), 'w') as archive:
        archive.write(files.x, 'x.npy')
    refused(files.model, f'--input={at("x.npz")}', says=['x.npz is a ZIP archive', '.npz', 'unzip', 'one by one'])
    refused(files.model, '--input=/dev/zero', says=['/dev/zero is not a .npy file'])
    refused(files.two, f'--input=rigt={files.half}', says=['no input rigt', 'did you mean right?'])
    refused(files.two, f'--input={files.half}', says=['2 inputs', 'left, right'])
    refused(files.two, f'--input=left={files.half}', says=['input right is missing'])
    refused(files.two, says=['inputs left, right are missing'])
    refused(files.two, f'--input=left={files.half}', f'--input=left={files.ones}', says=['twice'])
    refused(files.model, x, f'--expect=Y={files.y}', says=['no output Y', 'y'])
    refused(files.model, '--input=x=', says=['names no file'])
    refused(files.model, f'--input={at("none.npy")}', says=['none.npy', 'No such file'])
    refused(files.model, f'--input={files.model}', says=['model.onnx is not a .npy file'])
    shape = onnx.npy(at('shape.npy'), onnx.FLOAT, [10, 5], [0] * 50)
    refused(files.model, f'--input={shape}', says=['float32 [batch,4]', 'shape.npy has float32 [10,5]'])
    dtype = onnx.npy(at('type.npy'), onnx.INT64, [10, 4], [0] * 40)
    refused(files.model, f'--input={dtype}', says=['float32 [batch,4]', 'type.npy has int64 [10,4]'])
    cut = onnx.npy(at('cut.npy'), onnx.FLOAT, [10, 4], [0] * 39)
    refused(files.model, f'--input={cut}', says=['cut.npy', 'cut short'])
    refused(files.model, x, f'--expect={cut}', says=['cut.npy', 'cut short'])
    refused(files.model, x, '--device=cpu', f'--output={at("no/such.npy")}',
            says=['no/such.npy cannot be written'])
    # The message names every unsupported operator, not only the first.
    strange = onnx.write(at('strange.onnx'), onnx.model(
        [onnx.node('Frobnicate', ['x'], ['a'], 'first'), onnx.node('Relu', ['a'], ['b']),
         onnx.node('Twist', ['b'], ['y'], 'second')],
        [('x', onnx.FLOAT, [2, 4])], [('y', onnx.FLOAT, [2, 4])]))
    small = onnx.npy(at('small.npy'), onnx.FLOAT, [2, 4], [0] * 8)
    result = run('run', strange, f'--input={small}', status=USAGE)
    for what in ('first', 'Frobnicate', 'second', 'Twist', 'opset 17'):
        expect(what in result.stderr, result.stderr)


def check_kinds(files):
    """The message says which kind of file was given instead of a model."""
    model = onnx.model([onnx.node('Relu', ['x'], ['y'])], [('x', onnx.FLOAT, [2, 3])], [('y', onnx.FLOAT, [2, 3])])
    tensor = onnx.tensor('x', onnx.FLOAT, [2], [1, 2])
    graph = onnx.field(1, onnx.node('Relu', ['x'], ['y'])) + onnx.field(2, 'main')
    for name, contents, says in (
            ('empty.onnx', b'', ['it is empty']),
            ('text.onnx', b'model: resnet\n', ['it is text, and no ONNX model', 'torch.onnx.export()']),
            ('page.onnx', b'\n<!DOCTYPE html>\n<html>', ['it is a web page']),
            ('lfs.onnx', b'version https://git-lfs.github.com/spec/v1\noid', ["'git lfs pull'"]),
            ('a.png', b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR', ['it is a picture (PNG)']),
            ('a.pt', b'PK\3\4\0\0\0\0', ['it is a ZIP archive', 'PyTorch']),
            ('a.tflite', b'\x1c\0\0\0TFL3\0\0', ["TensorFlow Lite's"]),
            ('a.safetensors', b'\x80\0\0\0\0\0\0\0{"w":', ['weights alone']),
            ('tensor.onnx', tensor, ['it is one array, a TensorProto']),
            ('tensor.pb', tensor, ['it is one array, a TensorProto', 'brokerctl run MODEL.onnx --input=', 'tensor.pb']),
            ('graph.onnx', graph, ['the graph of a model, a GraphProto']),
            ('cut.onnx', model[:-9], ['ONNX model that is cut off', 'downloaded whole']),
            ('cut2.onnx', model[:20], ['ONNX model that is cut off'])):
        path = onnx.write(files.at(name), contents)
        refused(path, says=[name, *says])
        refused(path, '--check', says=[name, *says])
    refused(files.x, says=["it is an array of NumPy's (.npy)", f'brokerctl run MODEL.onnx --input={files.x}'])
    refused(os.path.dirname(files.x), says=['is a folder'])


def check_names(files):
    """Misspelt operators and operators of another domain get suggestions."""
    for op, says in (('Convolution', 'did you mean Conv?'), ('Relu6x', 'did you mean Relu?'),
                     ('MatMull', 'did you mean MatMul?'), ('relu', 'did you mean Relu?'),
                     ('MatMulNBits', 'but one of domain "com.microsoft"'),
                     ('com.microsoft.Gelu', 'but one of domain "com.microsoft"'),
                     ('Einsum', 'there is no such operator in the catalogue'),
                     ('MaxUnpool', 'there is no such operator in the catalogue'),
                     ('Frobnicate', 'there is no such operator in the catalogue'),
                     ('x' * 300, 'there is no such operator in the catalogue')):
        path = onnx.write(files.at('named.onnx'), onnx.model(
            [onnx.node(op, ['x'], ['y'])], [('x', onnx.FLOAT, [2, 3])], [('y', onnx.FLOAT, [2, 3])]))
        said = run('run', '--check', path, status=USAGE).stderr
        expect(f'{says}\n' in said or 'domain' in says and says in said, op, said)
    for domain, op in (('com', 'microsoft.Gelu'), ('com.microsoft.', 'Gelu'), ('com.microsoft', '.Gelu')):
        path = onnx.write(files.at('dotted.onnx'), onnx.model(
            [onnx.call(domain, op, ['x'], ['y'])], [('x', onnx.FLOAT, [2, 3])], [('y', onnx.FLOAT, [2, 3])],
            domains=[domain]))
        said = run('run', '--check', path, status=USAGE).stderr
        expect('in the catalogue' in said, domain, op, said)


def check_check_option(files):
    """--check reports a model's needs and all its refusals, without arrays and without a broker."""
    def check(path, *arguments, status=0):
        result = run('run', '--check', '--json', path, *arguments, status=status)
        found = json.loads(result.stdout)
        expect(found['type'] == 'model' and found['runs'] == (status == 0), found)
        expect(bool(found['refusals']) == (status != 0), found)
        return found, result.stderr

    def one(name, nodes, inputs, outputs, **more):
        return onnx.write(files.at(name), onnx.model(nodes, inputs, outputs, **more))

    found, _ = check(files.model)
    expect(found['rows'] is True and found['mixes_rows'] is False and found['steps'] == 2, found)
    expect(found['inputs'] == [{'name': 'x', 'dtype': 'float32', 'shape': ['batch', 4], 'optional': False,
                                'value_needed': False, 'tried': []}], found)
    expect(found['outputs'] == [{'name': 'y', 'dtype': 'float32', 'shape': ['rows', 4]}], found)
    text = run('run', '--check', files.model).stdout
    for line in ('input x: float32 [batch,4]', 'output y: float32 [rows,4]', 'every row', 'it can be run, in 2 steps'):
        expect(line in text, text)
    words = one('words.onnx', [onnx.node('Relu', ['x'], ['y'])], [('x', onnx.FLOAT, ['batch', 'words', 4])],
                [('y', onnx.FLOAT, ['batch', 'words', 4])])
    found, _ = check(words)
    expect(found['inputs'][0]['tried'] == [1] and found['outputs'][0]['shape'] == ['rows', 64, 4], found)
    x = onnx.npy(files.at('words.npy'), onnx.FLOAT, [2, 5, 4], [0] * 40)
    found, _ = check(words, f'--input={x}')
    expect(found['inputs'][0]['tried'] == [] and found['outputs'][0]['shape'] == ['rows', 5, 4], found)
    part = one('part.onnx', [onnx.node('Slice', ['x', 'from', 'to'], ['y'])],
               [('x', onnx.FLOAT, [4]), ('from', onnx.INT64, [1]), ('to', onnx.INT64, [1])],
               [('y', onnx.FLOAT, ['n'])])
    found, _ = check(part, status=USAGE)
    expect([each['value_needed'] for each in found['inputs']] == [False, True, True], found)
    said = run('run', '--check', part, status=USAGE).stderr
    for name in ('from', 'to'):
        expect(f'--input={name}=FILE supplies the elements of {name}' in said, said)
    limits = [onnx.npy(files.at(f'{name}.npy'), onnx.INT64, [1], [value]) for name, value in (('from', 1), ('to', 3))]
    found, _ = check(part, f'--input=from={limits[0]}', f'--input=to={limits[1]}')
    expect(found['rows'] is False and found['outputs'][0]['shape'] == [2], found)
    strange = one('unknown.onnx', [onnx.node('Frobnicate', ['x'], ['a'], 'first'), onnx.node('Twist', ['a'], ['y'])],
                  [('x', onnx.FLOAT, ['n', 4])], [('y', onnx.FLOAT, ['n', 4])])
    found, said = check(strange, status=USAGE)
    expect([(each['node'], each['operator'], each['name']) for each in found['refusals']] ==
           [(0, 'Frobnicate', 'first'), (1, 'Twist', 'y')], found)
    expect('Frobnicate' in said and 'Twist' in said, said)
    # A run reports the same refusals as --check, also for a file that is not a model.
    result = run('run', strange, '--json', f'--input={files.x}', status=USAGE)
    ran = json.loads(result.stdout)
    expect(ran['type'] == 'run' and ran['refusals'] == found['refusals'], ran)
    ran = json.loads(run('run', files.x, '--json', status=USAGE).stdout)
    expect(len(ran['refusals']) == 1 and ran['refusals'][0]['node'] is None, ran)
    # No device has these types, whatever type the input file has.
    wide = one('wide.onnx', [onnx.node('Identity', ['x'], ['y'])], [('x', 13, [2, 3])], [('y', 13, [2, 3])])
    strings = one('strings.onnx', [onnx.node('Identity', ['x'], ['y'])], [('x', 8, [2])], [('y', 8, [2])])
    for path, name in ((wide, 'uint64'), (strings, 'string')):
        found, said = check(path, status=USAGE)
        expect(f'type {name}, which no device computes with' in said, said)
        refused(path, f'--input={files.ones}', says=[f'x is {name}, which no device', 'float32'])
    for option in ('output=y.npy', f'expect={files.y}', 'device=cpu', 'count=2', 'repeat=3', 'profile', 'rtol=1', 'atol=1'):
        refused(files.model, '--check', f'--{option}', says=['--check runs nothing', f'--{option.split("=")[0]}'])


def check_indices(files):
    """An index of a file may be out of range: the task ends with the same error on each device."""
    model = onnx.write(files.at('gather.onnx'), onnx.model(
        [onnx.node('Gather', ['table', 'at'], ['y'])],
        [('table', onnx.FLOAT, [2, 3]), ('at', onnx.INT64, [2])], [('y', onnx.FLOAT, [2, 3])]))
    last = onnx.npy(files.at('last.npy'), onnx.INT64, [2], [-1, 0])
    rows = onnx.npy(files.at('rows.npy'), onnx.FLOAT, [2, 3], [4, 5, 6, 1, 2, 3])
    beyond = onnx.npy(files.at('beyond.npy'), onnx.INT64, [2], [0, 2])
    for device in DEVICES:
        arguments = [model, f'--input=table={files.ones}', f'--device={device}']
        run('run', *arguments, f'--input=at={last}', f'--expect={rows}')
        refused(*arguments, f'--input=at={beyond}',
                says=['Gather', 'an index in at, which are from 0 to 2, is out of range'])
    # The failing node is one of several, runs after others, and fails in the second task.
    model = onnx.write(files.at('scatter.onnx'), onnx.model(
        [onnx.node('Add', ['at', 'one'], ['next']), onnx.node('GatherElements', ['x', 'at'], ['a'], 'first', axis=1),
         onnx.node('ScatterElements', ['a', 'next', 'a'], ['y'], 'second', axis=1)],
        [('x', onnx.FLOAT, ['n', 3]), ('at', onnx.INT64, ['n', 3])], [('y', onnx.FLOAT, ['n', 3])],
        [onnx.tensor('one', onnx.INT64, [], [1])]))
    x = onnx.npy(files.at('rows4.npy'), onnx.FLOAT, [4, 3], [0] * 12)
    at = onnx.npy(files.at('at.npy'), onnx.INT64, [4, 3], [0] * 6 + [-1] * 5 + [2])
    for device in DEVICES:
        refused(model, f'--input=x={x}', f'--input=at={at}', '--count=2', f'--device={device}',
                says=['ScatterElements second: an index in next, which are from 0 to 3, is out of range'])


def check_unable(files):
    """brokerctl names each node that keeps a model from the GPU, with the reason."""
    at = files.at
    model = onnx.write(at('unable.onnx'), onnx.model(
        [onnx.node('Sin', ['w'], ['v'], 'wave'), onnx.node('Relu', ['x'], ['r']),
         onnx.node('TopK', ['r', 'k'], ['top', 'where'], 'most', axis=1), onnx.node('Pow', ['v', 'v'], ['s'], 'power')],
        [('x', onnx.FLOAT, [2, 400]), ('w', onnx.DOUBLE, [3, 3])],
        [('top', onnx.FLOAT, [2, 300]), ('where', onnx.INT64, [2, 300]), ('s', onnx.DOUBLE, [3, 3])],
        [onnx.tensor('k', onnx.INT64, [1], [300])]))
    x = onnx.npy(at('wide.npy'), onnx.FLOAT, [2, 400], range(800))
    w = onnx.npy(at('doubles.npy'), onnx.DOUBLE, [3, 3], range(9))
    given = [model, f'--input=x={x}', f'--input=w={w}']
    for device in ('cpu', 'auto'):
        found = report(*given, '--device', device)
        expect([each['device'] for each in found['devices']] == [0], found)
    if 'gpu' not in DEVICES:
        return
    result = run('run', '--json', *given, '--device=gpu', status=USAGE)
    first, *said = result.stderr.splitlines()
    expect('unable.onnx cannot run on the GPU, because of 3 nodes:' in first, result.stderr)
    for line, says in zip(said, (
            ['  node 0 wave, Sin: the GPU runs it for float32 and float16, not for float64'],
            ['  node 2 most, TopK: the GPU does not run it with these operands: because of a size', 'float32 [2,400]', 'top float32 [2,300]'],
            ['  node 3 power, Pow: the GPU runs it for float32', ', not for float64'])):
        expect(all(what in line for what in says), result.stderr)
    expect(len(said) == 4 and 'devices --capabilities' in said[3], result.stderr)
    refusals = json.loads(result.stdout)['refusals']
    expect([(each['node'], each['operator'], each['name']) for each in refusals] ==
           [(0, 'Sin', 'wave'), (2, 'TopK', 'most'), (3, 'Pow', 'power')], refusals)
    expect('float64' in refusals[0]['reason'] and 'opset' not in refusals[0], refusals)


def check_unavailable_gpu(files, folder):
    """If the GPU is unavailable but could run the model, no node is blamed."""
    if 'gpu' not in DEVICES:
        return
    model = onnx.write(files.at('relu.onnx'), onnx.model(
        [onnx.node('Relu', ['x'], ['y'])], [('x', onnx.FLOAT, [2, 3])], [('y', onnx.FLOAT, [2, 3])]))
    environment = {**os.environ, 'RINGBROKER_SOCKET': os.path.join(folder, 'sock')}
    process = start_broker([BROKERD, '--socket', environment['RINGBROKER_SOCKET'], '--cache', folder,
                            '--gpu=any', '--calibration=none', '--contention=none'],
                           os.path.join(folder, 'log'), LIMIT)
    arguments = [model, f'--input={files.ones}', f'--expect={files.ones}']
    run('force-cpu', 'on', env=environment)
    found = report(*arguments, env=environment)
    expect([each['device'] for each in found['devices']] == [0], found)
    result = run('run', '--json', *arguments, '--device=gpu', env=environment, status=USAGE)
    refusal, = json.loads(result.stdout)['refusals']
    says = 'the GPU could run it, but force-cpu is on now'
    expect(refusal['node'] is None and says in refusal['reason'] and says in result.stderr, result.stdout, result.stderr)
    expect(result.stderr.count('\n') == 1 and 'nodes' not in result.stderr, result.stderr)
    run('force-cpu', 'off', env=environment)
    report(*arguments, '--device=gpu', env=environment)
    process.send_signal(signal.SIGTERM)
    process.wait(LIMIT)


def check_declared(files):
    """A file's declared outputs are compared with the outputs that its nodes compute."""
    def one(shape, dtype=onnx.FLOAT, inputs=(2, 3)):
        return onnx.write(files.at('declared.onnx'), onnx.model(
            [onnx.node('Relu', ['x'], ['y'])], [('x', onnx.FLOAT, list(inputs))], [('y', dtype, shape)]))

    def said(path, *options):
        return run('run', path, *options).stderr

    x = f'--input={files.ones}'
    for model, says in (([2, 4], 'output y as float32 [2,4], but it is computed as float32 [2,3]'),
                        (['n', 4], 'output y as float32 [n,4], but'), ([3, 2], 'float32 [3,2]'),
                        ([2, 3, 1], 'float32 [2,3,1]')):
        path = one(model)
        for options in ([x, '--device=cpu', f'--expect={files.ones}'], ['--check'], ['--check', x]):
            found = said(path, *options)
            expect(found.startswith(f'brokerctl: {path}: the file declares ') and says in found, options, found)
    path = one([2, 3], onnx.INT64)
    expect('as int64 [2,3], but it is computed as float32 [2,3]' in said(path, '--check'), said(path, '--check'))
    for shape, inputs in (([2, 3], [2, 3]), (['a', 'b'], [2, 3]), ([1, 3], [1, 3]), (['n', 3], ['n', 3]),
                          ([1, 3], ['n', 3])):
        path = one(shape, inputs=inputs)
        expect(said(path, '--check') == '' and said(path, x, '--device=cpu') == '', shape, inputs)
    # The count of rows is known only when the input array is known.
    for shape, is_right in (([5, 3], False), ([2, 3], True), ([1, 3], True)):
        path = one(shape, inputs=['n', 3])
        expect(said(path, '--check') == '', shape)
        found = said(path, x, '--device=cpu')
        says = f'output y as float32 [{shape[0]},3], but it is computed as float32 [2,3]'
        expect(found == '' if is_right else says in found, shape, found)


def check_cache(files):
    """A position before the first is invalid, although other operators count negative positions from
    the end."""
    model = onnx.write(files.at('cache.onnx'), onnx.model(
        [onnx.node('TensorScatter', ['cache', 'new', 'at'], ['y'], axis=1)],
        [('cache', onnx.FLOAT, [2, 3]), ('new', onnx.FLOAT, [2, 1]), ('at', onnx.INT64, [2])],
        [('y', onnx.FLOAT, [2, 3])], opset=24))
    new = onnx.npy(files.at('new.npy'), onnx.FLOAT, [2, 1], [7, 8])
    y = onnx.npy(files.at('cached.npy'), onnx.FLOAT, [2, 3], [1, 7, 3, 8, 5, 6])
    for device in DEVICES:
        arguments = [model, f'--input=cache={files.ones}', f'--input=new={new}', f'--device={device}']
        right = onnx.npy(files.at('right.npy'), onnx.INT64, [2], [1, 0])
        run('run', *arguments, f'--input=at={right}', f'--expect={y}')
        for first in (-1, 3, -(1 << 63)):
            wrong = onnx.npy(files.at('before.npy'), onnx.INT64, [2], [0, first])
            refused(*arguments, f'--input=at={wrong}', says=['out of range'])


def check_empty(files):
    """Arrays without elements, in and out, in both kinds of files."""
    model = onnx.write(files.at('empty.onnx'), onnx.model(
        [onnx.node('Concat', ['cache', 'new'], ['all'], axis=0), onnx.node('Relu', ['cache'], ['old'])],
        [('cache', onnx.FLOAT, ['length', 3]), ('new', onnx.FLOAT, [2, 3])],
        [('all', onnx.FLOAT, ['longer', 3]), ('old', onnx.FLOAT, ['length', 3])]))
    cache = onnx.npy(files.at('cache.npy'), onnx.FLOAT, [0, 3], [])
    other = onnx.npy(files.at('other.npy'), onnx.FLOAT, [3, 0], [])
    for device in DEVICES:
        old = files.at('old.npy')
        arguments = [model, f'--input=new={files.ones}', f'--device={device}']
        found = report(*arguments, f'--input=cache={cache}', f'--expect=all={files.ones}',
                       f'--output=old={old}', f'--expect=old={cache}')
        expect([each['shape'] for each in found['outputs']] == [[2, 3], [0, 3]], found)
        expect(all(each['matches'] for each in found['outputs']), found)
        expect(onnx.read_npy(old)[0] == [0, 3], onnx.read_npy(old))
        old = files.at('old.pb')
        run('run', *arguments, f'--input=cache={cache}', f'--output=old={old}')
        text = run('run', *arguments, f'--input=cache={old}', f'--expect=old={other}',
                   status=DIFFERENT).stdout
        expect('float32 [0,3] instead of float32 [3,0]' in text, text)
        os.unlink(old)
        text = run('run', *arguments, f'--input=cache={cache}', '--profile').stdout
        expect('old float32 [0,3]' in text, text)
    # An input without elements runs no task on any device.
    none = onnx.npy(files.at('none.npy'), onnx.FLOAT, [0, 4], [])
    for options in ([], ['--count=3'], ['--profile', '--repeat=2']):
        arguments = [files.model, f'--input={none}', f'--expect={none}', *options]
        found = report(*arguments)
        expect([found[each] for each in ('rows', 'tasks', 'devices', 'reason')] == [0, 0, [], 'none'], found)
        expect(found['outputs'][0]['shape'] == [0, 4] and 'nodes' not in found, found)
        text = run('run', *arguments).stdout
        expect(text.startswith('ran nowhere: there are no elements to compute\ny float32 [0,4]\n'), text)
        expect('NODE' not in text, text)
    # Each of several rows is empty, and one input of Concat contributes nothing.
    rows = onnx.npy(files.at('rows0.npy'), onnx.FLOAT, [2, 0], [])
    rowwise = onnx.write(files.at('rowwise.onnx'), onnx.model(
        [onnx.node('Softmax', ['x'], ['y']), onnx.node('Concat', ['z', 'x'], ['w'], axis=1)],
        [('x', onnx.FLOAT, ['n', 0]), ('z', onnx.FLOAT, ['n', 3])],
        [('y', onnx.FLOAT, ['n', 0]), ('w', onnx.FLOAT, ['n', 3])]))
    report(rowwise, f'--input=x={rows}', f'--input=z={files.ones}', f'--expect=y={rows}',
           f'--expect=w={files.ones}')
    largest = onnx.write(files.at('largest.onnx'), onnx.model(
        [onnx.node('ArgMax', ['x'], ['y'], axis=0)], [('x', onnx.FLOAT, [0, 3])],
        [('y', onnx.INT64, [1, 3])]))
    result = run('run', largest, f'--input={cache}', status=USAGE)
    expect('has no elements, for which ArgMax is not defined' in result.stderr, result.stderr)


def check_hostile(files):
    """Any invalid model file yields one message that names the fault."""
    def model(nodes, constants=(), dims=(2, 3)):
        return onnx.model(nodes, [('x', onnx.FLOAT, list(dims))], [('y', onnx.FLOAT, [2, 3])], constants)

    def external(location):
        return (onnx.field(1, 6) + onnx.field(2, onnx.FLOAT) + onnx.field(8, 'w') + onnx.field(14, 1) +
                onnx.field(13, onnx.field(1, 'location') + onnx.field(2, location)))

    relu = onnx.node('Relu', ['x'], ['y'])
    add = onnx.node('Add', ['x', 'w'], ['y'])
    sound = model([relu])
    with open(files.at('secret'), 'wb') as file:
        file.write(bytes(24))
    inner = files.at('inner')
    os.mkdir(inner)
    os.symlink('../secret', os.path.join(inner, 'link'))
    huge = onnx.tensor('w', onnx.FLOAT, [5, 1 << 20, 256], [0] * 4)
    deep = b''
    for _ in range(2000):
        deep = onnx.field(1, onnx.field(5, onnx.field(6, deep)))
    for contents, says in (
            (sound[:-9], 'cut off'), (sound[:20], 'cut off'), (b'', 'it is empty'), (bytes(range(256)), 'not a valid ModelProto'),
            (model([onnx.node('Add', ['x', 'b'], ['a']), onnx.node('Add', ['a', 'x'], ['b']), relu]), 'cyclic'),
            (model([relu, relu]), '"y"'), (model([relu], dims=[-7, 3]), 'is -7'),
            (model([relu], dims=[1] * 40), '40 dimensions'), (model([add], [huge]), '"w" has 16 bytes'),
            (model([add], [onnx.tensor('w', onnx.FLOAT, [-2, 3], [0] * 6)]), 'is -2'),
            (model([add], [onnx.tensor('w', onnx.FLOAT, [2, 3], [0] * 6)] * 2), '"w"'),
            (model([add], [external('../secret')]), 'plain name below'),
            (model([add], [external('/etc/passwd')]), 'plain name below'),
            (model([add], [external('link')]), 'plain name below'),
            (model([add], [external('nothing')]), '"nothing"'),
            (onnx.field(1, 8) + onnx.field(7, deep), 'too deeply')):
        path = onnx.write(os.path.join(inner, 'hostile.onnx'), contents)
        refused(path, f'--input={files.half}', says=[says])
    typed = onnx.write(os.path.join(inner, 'typed.onnx'), model(
        [onnx.node('Softmax', ['x'], ['y'], axis=0.5)]))
    result = run('run', typed, f'--input={files.half}', status=USAGE)
    expect('attribute "axis" is not an integer' in result.stderr, result.stderr)


def check_profile(files):
    found = report(files.model, f'--input={files.x}', '--profile')
    expect([each['operator'] for each in found['nodes']] == ['Add', 'Relu'], found)
    expect(found['nodes'][0]['name'] == 'adding', found)
    for each in found['nodes']:
        expect(each['devices'][0]['device'] == 0 and each['devices'][0]['exec_ns'] > 0, each)
    text = run('run', files.model, f'--input={files.x}', '--profile', '--device=cpu').stdout
    expect('by itself, in one task of 10 rows\n' in text, text)
    fixed = run('run', files.two, f'--input=left={files.half}', f'--input=right={files.ones}', '--profile',
                '--device=cpu').stdout
    expect('by itself, in one task\n' in fixed, fixed)
    expect(re.search(r'adding +Add +[\d.]+ [num]?s +[\d.]+%', text) and 'together' in text, text)
    # One step does not depend on the count of rows, and the tensors between nodes have no declared names.
    both = onnx.write(files.at('both.onnx'), onnx.model(
        [onnx.node('Add', ['x', 'b'], ['y']), onnx.node('Identity', ['b'], ['z'])],
        [('x', onnx.FLOAT, ['n', 4])], [('y', onnx.FLOAT, ['n', 4]), ('z', onnx.FLOAT, [4])],
        [onnx.tensor('b', onnx.FLOAT, [4], [1, 2, 3, 4])]))
    found = report(both, f'--input={files.x}', '--profile')
    expect(len(found['nodes']) == 2, found)
    resize = files.at('resize.onnx')
    found = report(resize, f"--input={files.at('holes.npy')}", '--profile')
    expect([each['operator'] for each in found['nodes']] == ['Gather', 'Mul', 'Gather', 'Mul', 'Add'], found)
    expect(all(each['devices'] for each in found['nodes']), found)


def check_broker(files, folder):
    """A running broker is used, a named one exclusively, and a started one is stopped."""
    environment = {**os.environ, 'RINGBROKER_SOCKET': os.path.join(folder, 'sock')}
    arguments = [files.model, f'--input={files.x}', f'--expect={files.y}']
    expect(report(*arguments)['private_broker'] is True, 'no private broker')
    expect(report(*arguments, env={**environment, 'RINGBROKER_SOCKET': ''})['private_broker'] is True,
           'no private broker')
    result = run('run', *arguments, env=environment, status=NO_BROKER)
    expect('RINGBROKER_SOCKET' in result.stderr and 'sock' in result.stderr, result.stderr)
    process = start_broker([BROKERD, '--socket', environment['RINGBROKER_SOCKET'], '--cache', folder,
                            '--gpu=none', '--calibration=none'], os.path.join(folder, 'log'), LIMIT)
    expect(report(*arguments, env=environment)['private_broker'] is False, 'a private broker')
    result = run('run', *arguments, '--device=gpu', env=environment, status=USAGE)
    expect('has no GPU' in result.stderr, result.stderr)
    process.send_signal(signal.SIGTERM)
    process.wait(LIMIT)
    result = run('--socket', os.path.join(folder, 'nobody'), 'run', *arguments, status=NO_BROKER)
    expect('nobody' in result.stderr, result.stderr)
    long = os.path.join(folder, 'x' * 107)
    says = f'brokerctl: the socket path is longer than 107 bytes: {long}, which %s names\n'
    for command in (['run', *arguments], ['status'], ['devices', '--capabilities']):
        result = run(*command, env={**environment, 'RINGBROKER_SOCKET': long}, status=USAGE)
        expect(result.stderr == says % 'RINGBROKER_SOCKET', command, result.stderr)
    result = run('--socket', long, 'run', *arguments, env=environment, status=USAGE)
    expect(result.stderr == says % '--socket', result.stderr)
    for options, named, value in (([], 'RINGBROKER_ADMIN_SOCKET', long), (['--admin-socket', long], '--admin-socket', '')):
        result = run(*options, 'status', env={**environment, 'RINGBROKER_ADMIN_SOCKET': value}, status=USAGE)
        expect(result.stderr == says % named, result.stderr)
    for named, says in ((os.path.join(folder, 'no'), 'No such file'), (files.x, 'Not a directory')):
        result = run('run', *arguments, env={**os.environ, 'TMPDIR': named}, status=NO_BROKER)
        expect(f'cannot make a folder in {named}, which TMPDIR names: {says}' in result.stderr, result.stderr)
    # This path is too long for the name of a socket.
    report(*arguments, env={**os.environ, 'TMPDIR': os.path.join(folder, 'no' * 20)})


def check_broker_ends_meanwhile(files, folder):
    """A broker that ends meanwhile reports nothing about the model."""
    path = os.path.join(folder, 'killed')
    environment = {**os.environ, 'RINGBROKER_SOCKET': path}
    process = start_broker([BROKERD, '--socket', path, '--cache', folder, '--gpu=none', '--calibration=none'],
                           os.path.join(folder, 'log'), LIMIT)
    with start([CTL, 'run', '--json', files.model, f'--input={files.long}', '--repeat=1000000'],
               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        wait_for(lambda: any(json.loads(line).get('tasks') for line in
                             run('plans', '--json', env=environment).stdout.splitlines()), 'no task runs')
        process.kill()
        process.wait()
        out, said = running.communicate(timeout=LIMIT)
    expect(running.returncode == NO_BROKER, running.returncode, said)
    expect(said == 'brokerctl: the broker is gone: Connection reset by peer\n' and out == '', said, out)


class Mute:
    """A proxy to a broker that forwards only a limited number of each client's messages."""

    def __init__(self, path, broker_path, n_messages):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.hand_on, args=(broker_path, n_messages), daemon=True).start()

    def hand_on(self, broker_path, n_messages):
        client = self.listener.accept()[0]
        broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        broker.connect(broker_path)
        for _ in range(n_messages):
            for source, target in ((client, broker), (broker, client)):
                message, fds = socket.recv_fds(source, 1 << 16, 8)[:2]
                socket.send_fds(target, [message], fds)
                for fd in fds:
                    os.close(fd)
        client.recv(1 << 16)
        client.recv(1 << 16)
        self.listener.close()


def check_silent_broker(files, folder):
    """Each kind of request to a silent broker times out after --timeout seconds."""
    path = os.path.join(folder, 'stopped')
    environment = {**os.environ, 'RINGBROKER_SOCKET': path}
    process = start_broker([BROKERD, '--socket', path, '--cache', folder, '--gpu=none', '--calibration=none'],
                           os.path.join(folder, 'log'), LIMIT)
    arguments = [files.model, f'--input={files.x}', '--device=cpu']
    says = 'did not answer within %d s: it is starting or stopped, or has hung; --timeout=SECONDS waits for longer\n'
    # The broker stops answering at the greeting, at the list of devices, and during preparation.
    for n_messages in range(5):
        mute = os.path.join(folder, f'mute{n_messages}')
        Mute(mute, path, n_messages)
        result = run('--socket', mute, '--timeout=1', 'run', '--json', *arguments, status=NO_BROKER)
        expect('did not answer ' in result.stderr and result.stderr.count('\n') == 1, n_messages, result.stderr)
        expect(result.stdout == '', n_messages, result.stdout)
    process.send_signal(signal.SIGSTOP)
    for options, limit_s in (['--timeout=1'], 1), ([], 5):
        result = run(*options, 'run', *arguments, env=environment, status=NO_BROKER)
        expect(result.stderr.endswith(says % limit_s), result.stderr)
    process.kill()
    process.wait()


def check_capabilities():
    """Capabilities are reported by a broker that is started only for this."""
    def devices(*options, status=OK):
        result = run('devices', '--capabilities', '--json', *options, status=status)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        return [[each['device'] for each in entry['devices']] for entry in found if entry['type'] == 'operator']

    found = devices('--device=cpu')
    expect(len(found) > 100 and all(each == [0] for each in found), found[:3])
    expect(devices('--device', 'auto')[0][0] == 0, 'no CPU')
    if 'gpu' in DEVICES:
        expect(all(each and 0 not in each for each in devices('--device=gpu')), 'no GPU')
    result = run('devices', '--capabilities', '--device=tpu', status=USAGE)
    expect('auto, cpu or gpu, not tpu' in result.stderr, result.stderr)
    result = run('devices', '--capabilities', '--device=prefer-gpu', status=USAGE)
    expect('auto, cpu or gpu, not prefer-gpu' in result.stderr, result.stderr)
    result = run('devices', '--device=cpu', status=USAGE)
    expect('--device is for --capabilities' in result.stderr, result.stderr)
    for command, says, others in (('devices', 'with --capabilities: these devices only', 'the broker decides'),
                                  ('run', 'cpu, gpu: run on that device only', '--capabilities')):
        said = run(command, '--help').stdout
        expect(says in said and others not in said, said)
    result = run('devices', status=NO_BROKER)
    result = run('devices', '--capabilities', status=NO_BROKER,
                 env={**os.environ, 'RINGBROKER_SOCKET': '/tmp/there-is-no-such-socket'})
    expect('RINGBROKER_SOCKET' in result.stderr, result.stderr)


def check_private_broker_ends(files, folder):
    """The broker ends with brokerctl, however brokerctl ends, and leaves no files."""
    environment = {**os.environ, 'TMPDIR': folder}
    command = [CTL, 'run', files.model, f'--input={files.long}', '--repeat=1000000', '--device=cpu']
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        with start(command, stdout=subprocess.DEVNULL, env=environment) as process:
            wait_for(lambda: brokers(folder), 'there is no broker')
            time.sleep(0.2)
            process.send_signal(number)
            expect(process.wait(LIMIT) == -number, process.returncode)
            if number == signal.SIGKILL:
                wait_for(lambda: not os.listdir(folder), 'it leaves files behind')
        expect(not os.listdir(folder), number, 'leaves', os.listdir(folder))
        wait_for(lambda: not brokers(folder), 'it leaves a broker behind')
    report(files.model, f'--input={files.x}', env=environment)
    refused(files.model, f'--input={files.model}', says=['.npy'])
    expect(not os.listdir(folder) and not brokers(folder), os.listdir(folder))


def bar_of(what, *arguments):
    """Wait for the progress bar on a terminal."""
    ours, theirs = pty.openpty()
    seen = b''
    with start([CTL, 'run', *arguments], stdout=subprocess.DEVNULL, stderr=theirs,
               env={**os.environ, 'TERM': 'xterm'}) as process:
        os.close(theirs)
        end = time.monotonic() + LIMIT
        while what + b' [' not in seen and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                try:
                    seen += os.read(ours, 4096)
                except OSError:
                    break
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    os.close(ours)
    expect(re.search(what + rb' \[#* *\] +\d+%', seen), seen)


def check_progress(files):
    """A terminal has a progress bar, which is removed in the end; other outputs have none."""
    bar_of(b'running', files.model, f'--input={files.long}', '--repeat=1000000', '--device=cpu')
    result = run('run', files.model, f'--input={files.x}', '--repeat=20000', '--device=cpu')
    expect(result.stderr == '', result.stderr)
    if 'gpu' not in DEVICES:
        return
    # To find the node that the GPU does not support, brokerctl plans each node with its constant.
    n = 3000
    nodes = [onnx.node('Add' if i % 2 else 'Mul', [f'x{i}', 'c'], [f'x{i + 1}']) for i in range(n)]
    model = onnx.write(files.at('many.onnx'), onnx.model(
        [*nodes, onnx.node('Sin', ['d'], ['e'])], [('x0', onnx.FLOAT, [1 << 15]), ('d', onnx.DOUBLE, [1])],
        [(f'x{n}', onnx.FLOAT, [1 << 15]), ('e', onnx.DOUBLE, [1])],
        [onnx.tensor('c', onnx.FLOAT, [1 << 15], [1] * (1 << 15))]))
    x0 = onnx.npy(files.at('many.npy'), onnx.FLOAT, [1 << 15], [0] * (1 << 15))
    d = onnx.npy(files.at('one.npy'), onnx.DOUBLE, [1], [0])
    bar_of(b'planning nodes', model, f'--input=x0={x0}', f'--input=d={d}', '--device=gpu')


def main():
    os.environ.pop('RINGBROKER_SOCKET', None)
    os.environ.pop('RINGBROKER_ADMIN_SOCKET', None)
    # A program inherits the signals that its parent ignores, such as SIGHUP under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix='run-', dir='/tmp') as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        os.environ['XDG_CACHE_HOME'] = os.path.join(folder, 'cache')
        private = os.path.join(folder, 'tmp')
        os.mkdir(private)
        files = Files(folder)
        check_devices(files)
        check_files(files)
        check_resize(files)
        check_dependent_rows(files)
        check_values(files)
        check_different(files)
        check_mistakes(files)
        check_kinds(files)
        check_names(files)
        check_check_option(files)
        check_indices(files)
        check_unable(files)
        check_unavailable_gpu(files, folder)
        check_declared(files)
        check_cache(files)
        check_empty(files)
        check_hostile(files)
        check_profile(files)
        check_broker(files, folder)
        check_broker_ends_meanwhile(files, folder)
        check_silent_broker(files, folder)
        check_capabilities()
        check_private_broker_ends(files, private)
        check_progress(files)


main()
