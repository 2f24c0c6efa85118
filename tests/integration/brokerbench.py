#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerbench's interface, whatever the figures are.

    brokerbench.py BROKERBENCH [--all | --card AMDGPU_SIM]

The test checks the command line, the fields of the report, and that no broker and no file is left, also
after a stop or a kill. --all measures all rows of the benches that take long, --card those of a GPU, over a
simulated card.
"""
import array
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import onnxfile as onnx
from simulated import Cards
from started import expect, start, wait_for

FIELDS = ['bench', 'params', 'unit', 'p50', 'p99', 'baseline', 'baseline_p50', 'baseline_p99',
          'ratio', 'target', 'p999', 'baseline_p999']
BENCHES = ['nop-round-trip', 'nop-throughput', 'wake-latency', 'task-overhead', 'sessions',
           'mid', 'clients', 'matmul-cpu', 'matmul-library', 'matmul-int8', 'operators', 'nets', 'fusion',
           'device-tasks', 'matmul-vulkan', 'copied-bytes', 'starpu', 'cholesky', 'graphs', 'pipeline', 'cut', 'residency', 'ledger', 'decision',
           'churn', 'contention', 'probes', 'scrape', 'watched', 'brokertop', 'lease', 'time-lease']

# Seconds that no command line may exceed, however slow the machine is.
LIMIT = 120


def run(program, *arguments, **kwargs):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=LIMIT, check=False, **kwargs)


def measure(program, *arguments, **kwargs):
    """Return the rows of a run, of which there are none only for a reason."""
    result = run(program, '--json', *arguments, **kwargs)
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(rows or 'skipped' in result.stderr, 'neither a row nor a reason')
    return rows


def processes(folder, wanted):
    """Return the processes of this name whose files are in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                name = file.read().strip()
            with open(f'/proc/{pid}/environ', 'rb') as file:
                environment = file.read()
        except OSError:
            continue
        if name == wanted and folder.encode() in environment:
            found.append(int(pid))
    return found


def brokers(folder):
    return processes(folder, 'brokerd')


def test_command_line(program):
    listed = run(program, '--list')
    expect(listed.returncode == 0, '--list fails')
    names = [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(' ')]
    expect(names == BENCHES, f'--list names {names}')

    wrong = [['--frobnicate'], ['-x'], ['no-such-bench'], ['nop-round-trip', 'no-such-bench'],
             ['--seconds'], ['--seconds=x'], ['--seconds=0'], ['--seconds=-1'], ['--seconds=inf'],
             ['--seconds=1e9'], ['--seconds='], ['--json=yes'], ['']]
    for arguments in wrong:
        result = run(program, *arguments)
        expect(result.returncode == 2, f'{arguments}: exit status {result.returncode}, not 2')
        expect(result.stdout == '', f'{arguments}: output')
        expect(result.stderr.count('\n') == 1 and result.stderr.startswith('brokerbench: '),
               f'{arguments}: not one line: {result.stderr!r}')

    result = run(program, '--socket', '/nonexistent/socket', 'nop-round-trip')
    expect(result.returncode == 1, 'no broker, and no failure')
    expect(result.stderr.count('\n') == 1 and '/nonexistent/socket' in result.stderr,
           f'no broker: {result.stderr!r}')
    for option in ['--help', '--version']:
        result = run(program, option)
        expect(result.returncode == 0 and result.stdout and not result.stderr, option)


def test_report(program, folder):
    rows = measure(program, '--seconds=0.01', 'nop-round-trip', 'wake-latency')
    for row in rows:
        expect(list(row) == FIELDS, f'fields {list(row)}')
        expect(row['bench'] in ('nop-round-trip', 'wake-latency'), row['bench'])
        expect(0 < row['p50'] <= row['p99'], f'{row}: percentiles')
        expect(0 < row['baseline_p50'] <= row['baseline_p99'], f'{row}: percentiles')
        expect(abs(row['ratio'] * row['baseline_p50'] / row['p50'] - 1) < 1e-4, f'{row}: ratio')
        expect(row['target'] is None, f'{row}: target')
    table = run(program, '--seconds=0.01', 'nop-round-trip')
    expect(table.returncode == 0 and len(table.stdout.splitlines()) in (0, 2), table.stdout)
    expect(not brokers(folder) and not os.listdir(folder), 'something is left behind')


def test_models(program, folder):
    """Brokers over modelled devices run in brokerbench itself, with every row."""
    result = run(program, '--json', '--seconds=0.01', 'residency', 'ledger', 'decision')
    expect(result.returncode == 0 and not result.stderr, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    for row in rows:
        expect(list(row) == FIELDS, f'fields {list(row)}')
        expect(row['p50'] >= 0 and row['baseline_p50'] >= 0, f'{row}: percentiles')
        expect((row['ratio'] is None) == (row['baseline_p50'] == 0), f'{row}: ratio')
    rates = {(row['params'], row['baseline']) for row in rows if row['unit'] == '/s'}
    for pattern in ('2x0.75 1:1', '2x0.75 9:1', '2x0.75 phases', '3x0.6 4:2:1'):
        for baseline in ('lru', 'paging', 'stay', 'cpu'):
            expect((pattern, baseline) in rates, f'no row {pattern} beside {baseline}')
    expect(('2x0.4 4:1 pressure', 'unmanaged') in rates, 'no row under pressure')
    # The broker moved at least one plan of 6.4 GB. Paging moves no less.
    paging = [row for row in rows if row['params'] == '2x0.75 1:1 moved'
              and row['baseline'] == 'paging']
    expect(len(paging) == 1 and paging[0]['baseline_p50'] >= paging[0]['p50'] > 6, f'{paging}')
    ledger = [row['params'] for row in rows if row['bench'] == 'ledger']
    expect(len(ledger) == 6, f'rows {ledger}')
    decision = [row for row in rows if row['bench'] == 'decision']
    expect(len(decision) == 5, f'rows {decision}')
    expect(not os.listdir(folder), 'something is left behind')


def test_mid(program):
    """Each product has a row of times and one of processor time; then come a neighbour's NOPs and brokerd's share."""
    rows = measure(program, '--seconds=0.01', 'mid')
    if not rows:
        return
    for row in rows:
        expect(list(row) == FIELDS, f'fields {list(row)}')
        expect(row['p50'] <= row['p99'] <= row['p999'], f'{row}: percentiles')
    times = [row for row in rows if row['params'].startswith('n=') and row['unit'] == 'us']
    expect(len(times) == 58, f'{len(times)} rows of products')
    networks = [row for row in rows if row['params'].startswith('perceptron ')]
    expect(len(networks) == 8 and len(rows) == 69, f'{len(networks)} of {len(rows)} rows')
    times += networks
    for row, cpu in zip(times[::2], times[1::2]):
        expect(cpu['params'] == row['params'] + ' cpu', f'{row} is followed by {cpu}')
        is_line = re.match('n=(48|96|192|384|768) ', row['params'])
        expect((row['target'] is None) == bool(is_line), f'{row}: target')
        expect(row['baseline_p50'] > 0 and cpu['baseline_p50'] > 0, f'{row}, {cpu}')
        expect(cpu['p50'] > 0, f'{cpu}: processor time')
    for row in rows[-2:]:
        expect(row['unit'] == '%' and 0 <= row['p50'] <= 100, f'{row}: share')


def test_clients(program):
    """Crowds of clients have rows of times, of each client's rate and of processor time."""
    rows = measure(program, '--seconds=0.01', '--rows=n=64', 'clients')
    if rows:
        expect([row['params'] for row in rows] == [f'clients={n} n=64{kind}' for n in (1, 2, 16)
                                                   for kind in ('', ' rate', ' cpu')], f'rows {rows}')
        expect(all(row['p50'] > 0 and row['baseline_p50'] > 0 for row in rows), f'rows {rows}')


def test_mid_models(program, folder):
    """--model adds a network, whose results are compared; what is wrong with one is said in a sentence."""
    with tempfile.TemporaryDirectory(prefix='bm-', dir='/tmp') as models:
        half = os.path.join(models, 'half')
        os.mkdir(half)
        model = onnx.write(os.path.join(half, 'relu.onnx'), onnx.model(
            [onnx.node('Relu', ['x'], ['h']), onnx.node('MatMul', ['h', 'w'], ['y'])],
            [('x', onnx.FLOAT, [1, 64])], [('y', onnx.FLOAT, [1, 64])],
            [onnx.tensor('w', onnx.FLOAT, [64, 64], array.array('f', [0.5] * 64 * 64))]))
        given = onnx.npy(os.path.join(models, 'x.npy'), onnx.FLOAT, [1, 64],
                         array.array('f', [1.0] * 64).tobytes())
        rows = measure(program, '--seconds=0.01', f'--model={model},{given}', '--rows=half/', 'mid')
        names = [row['params'] for row in rows]
        if any('half/' in name for name in names):
            expect(names[:4] == [f'half/relu.onnx workers=1 {way}{cpu}' for way in ('waiting', 'polling')
                                 for cpu in ('', ' cpu')] and len(names) in (4, 8), names)
            expect(all(row['baseline_p50'] > 0 for row in rows), rows)
        for value, said in ((f'{models}/no.onnx', 'no.onnx'), (model, 'input x'),
                            (f'{model},{models}/no.npy', 'no.npy'), (f'{model},{given},{given}', 'input')):
            result = run(program, '--quick', '--seconds=0.01', f'--model={value}', '--rows=half/', 'mid')
            if 'skipped' not in result.stderr:
                expect(result.returncode == 1 and result.stderr.count('\n') == 1 and said in result.stderr,
                       f'--model={value}: {result.returncode}, {result.stderr!r}')
    expect(not os.listdir(folder), 'something is left behind')


def test_device(program):
    """A device that takes no processor has a row of times and one of processor time."""
    rows = measure(program, '--seconds=0.01', '--rows=time=50 us', 'device-tasks')
    if rows:
        expect([row['params'] for row in rows] == ['time=50 us', 'time=50 us cpu'], f'rows {rows}')
        expect(all(row['p50'] >= 50 and row['baseline_p50'] >= 50 for row in rows[:1]), f'{rows[0]}: times')


def test_cholesky(program):
    """Tasks that wait for each other: both sides' factors are compared; skipped without StarPU."""
    rows = measure(program, '--seconds=0.01', '--rows=side=64', 'cholesky')
    for row in rows:
        expect(row['params'].startswith('tiles=16x16 side=64 workers='), f'{row}: params')
        expect(row['p50'] > 0 and row['target'] == 0.9, f'{row}: figures')
    expect(len(rows) < 2, f'rows {rows}')


def test_graphs(program):
    """A plan in segments and as a whole: both sides' results are compared."""
    rows = measure(program, '--seconds=0.01', '--rows=side=64', 'graphs')
    expect([row['params'] for row in rows] == ['layers=64 side=64 rows=32',
                                               'layers=16 chains=4 side=64 rows=32'], f'rows {rows}')
    for row in rows:
        expect(row['p50'] > 0 and row['target'] == 1.05, f'{row}: figures')


def test_pipeline(program):
    """Segments by turns on a timed device and the CPU; a stream of micro-batches."""
    rows = measure(program, '--seconds=0.05', 'pipeline')
    expect([row['params'] for row in rows] == ['tasks=8 segments=8 rows=512',
                                               'tasks=1 segments=12 rows=512 micro-batches'], f'rows {rows}')
    # The device takes 20 us for a task and 1.9 us for a row, four times.
    expect(all(row['p50'] > 0 for row in rows) and rows[0]['baseline_p50'] > 3971000, f'{rows}: figures')


def test_cut(program):
    """Plans over the CPU and a timed device. The first is cut only if both are about as fast."""
    rows = measure(program, '--seconds=0.05', 'cut')
    names = [row['params'] for row in rows]
    expect(names[-2:] == ['memory=1/1.5 device=4', 'memory=1/1.5 device=4 streamed'], f'rows {rows}')
    expect(names[:-2] in ([], ['branches=2 device=1']), f'rows {rows}')
    expect(all(row['p50'] > 0 for row in rows), f'{rows}: figures')


def test_lease(program):
    """Targets are differences and times, reported as ratios; skipped without Vulkan; without ffmpeg,
    which takes long."""
    rows = measure(program, '--quick', '--seconds=0.01', 'lease',
                 env={**os.environ, 'PATH': '/nowhere'})
    for row in rows:
        base = row['baseline_p50']
        wanted = {'allocate': (base + 150) / base, 'budget': 2000 / base}
        kind = re.match('[a-z]+', row['params']).group()
        expect(abs(row['target'] / wanted[kind] - 1) < 1e-4, f'{row}: target')


def test_time_lease(program, folder, is_gpu=False):
    """Costs on every device; gains only on a GPU; skipped without Vulkan."""
    rows = measure(program, '--quick', '--seconds=0.01', 'time-lease')
    costs = ['record alone', 'record divided', 'part', 'part with its end', 'background alone']
    gains = [f'{what} {parts}' for parts in ('whole', 'parts=500us', 'parts=200us', 'parts=100us')
             for what in ('urgent beside', 'background beside urgent')]
    names = [row['params'] for row in rows]
    expect(names in ([], costs + gains) or (names == costs and not is_gpu), f'rows {names}')
    for row, more in zip(rows, (60, 60, 3000)):
        base = row['baseline_p50']
        expect(abs(row['target'] / ((base + more) / base) - 1) < 1e-4, f'{row}: target')
    for row in rows:
        expect(list(row) == FIELDS and row['p50'] > 0 and row['baseline_p50'] > 0, f'{row}')
    expect(not brokers(folder) and not os.listdir(folder), 'something is left behind')


def test_time_lease_fails(program, folder):
    """Without a driver the bench is skipped, and without one of its programs it fails: with one line."""
    result = run(program, 'time-lease', env={**os.environ, 'VK_ICD_FILENAMES': '/nowhere', 'VK_DRIVER_FILES': '/nowhere'})
    expect(result.returncode == 0 and result.stderr.count('\n') == 1 and 'skipped: ' in result.stderr, f'{result}')
    with start([program, '--seconds=60', '--rows=record alone', 'time-lease'], stdout=subprocess.PIPE,
               stderr=subprocess.PIPE, text=True) as process:
        def agents():
            return processes(folder, 'lease-agent')
        wait_for(lambda: len(agents()) == 2 or process.poll() is not None, 'no two programs are started')
        if process.poll() is None:
            os.kill(agents()[0], signal.SIGKILL)
        out, said = process.communicate(timeout=LIMIT)
        if 'skipped' not in said:
            expect(process.returncode == 1 and not out and said.count('\n') == 1 and 'killed by signal 9' in said, said)
    expect(not agents() and not brokers(folder) and not os.listdir(folder), 'something is left behind')


def test_operators(program):
    """Every operator is compared with oneDNN, if oneDNN is installed."""
    rows = measure(program, '--quick', '--seconds=0.01', 'operators')
    if not rows:
        return
    for row in rows:
        expect(list(row) == FIELDS, f'fields {list(row)}')
        expect(row['unit'] in ('GFLOP/s', 'GOP/s', 'GB/s'), f'{row}: unit')
        expect(0 < row['p99'] <= row['p50'] and row['baseline_p50'] > 0, f'{row}: percentiles')
        expect(row['target'] in (0.9, 1), f'{row}: target')
    for operator in ('MatMul', 'MatMul int8', 'Gemm', 'Conv', 'Conv int8', 'MaxPool', 'AveragePool',
                     'GlobalAveragePool', 'Softmax', 'LayerNorm', 'Gelu'):
        for target in (0.9, 1):
            expect(any(row['params'].startswith(operator + ' ') and row['target'] == target
                       for row in rows), f'no row of {operator} with target {target}')


def test_rows(program):
    """--rows selects rows by their params; a pattern that matches none is a usage error."""
    result = run(program, '--json', '--quick', '--seconds=0.01', '--rows=Softmax 1x10,', 'operators')
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(len(rows) == 1 or 'skipped' in result.stderr, f'{len(rows)} rows, {result.stderr}')
    expect(all(row['params'] == 'Softmax 1x10, 1 thread' for row in rows), f'{rows}: params')
    result = run(program, '--quick', '--seconds=0.01', '--rows=no such', 'operators')
    expect('skipped' in result.stderr or
           (result.returncode, result.stdout, result.stderr) ==
           (2, '', "brokerbench: no row has 'no such' in its params\n"), f'none: {result}')


def test_nets(program):
    """Networks with channels last and without: both results are compared."""
    result = run(program, '--json', '--seconds=0.01', 'nets')
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(len(rows) == 3 or 'skipped' in result.stderr, f'{len(rows)} rows, {result.stderr}')


def test_fusion(program, is_all):
    """Layers with fusion and without: both results are compared, on the CPU and on a GPU."""
    # A software GPU takes seconds for a large layer.
    wanted = [('', 16)] if is_all else [('cpu, ', 8), ('gpu, linear 16x64', 1), ('gpu, Conv 1x1', 1)]
    for rows_wanted, n in wanted:
        result = run(program, '--json', '--seconds=0.01', f'--rows={rows_wanted}', 'fusion')
        if 'skipped' not in result.stderr:
            expect(result.returncode == 0, f'failed: {result.stderr}')
            expect(len(result.stdout.splitlines()) == n, f'{result.stdout}, {result.stderr}')


def test_probes(program, folder, is_all):
    """The cost of watching the scheduler: every row, or a reason."""
    result = run(program, '--json', '--seconds=0.01', *([] if is_all else ['--quick']), 'probes')
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(len(rows) == 19 or 'skipped' in result.stderr, f'{len(rows)} rows, {result.stderr}')
    for row in rows:
        expect(list(row) == FIELDS, f'fields {list(row)}')
        expect(row['p50'] > 0 or row['unit'] == '%', f'{row}: percentiles')
    expect(not os.listdir(folder), 'something is left behind')


def test_scrape(program, folder):
    """Metrics of many tenants; skipped without the metrics library."""
    result = run(program, '--json', '--seconds=0.01', 'scrape')
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(len(rows) == 3 or 'skipped' in result.stderr, f'{len(rows)} rows, {result.stderr}')
    for row in rows:
        expect(list(row) == FIELDS and row['p50'] > 0 and row['baseline_p50'] > 0, f'{row}')
        expect((row['target'] is not None) == (row['params'] == 'tenants=100'), f'{row}: target')
    expect(not os.listdir(folder), 'something is left behind')


def test_brokertop(program, folder):
    """The memory and time that brokertop takes; skipped without enough users."""
    result = run(program, '--json', '--quick', 'brokertop')
    expect(result.returncode == 0, f'failed: {result.stderr}')
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expect(len(rows) == 2 or 'skipped' in result.stderr, f'{len(rows)} rows, {result.stderr}')
    for row, limit in zip(rows, (1, 50)):
        expect(list(row) == FIELDS and row['p50'] > 0 and row['baseline_p50'] > 0, f'{row}')
        expect(abs(row['target'] * row['baseline_p50'] / limit - 1) < 0.01, f'{row}: target')
    expect(not brokers(folder) and not os.listdir(folder), 'something is left behind')


def test_stopped(program, folder, number, after):
    """A signal ends a measurement, or the start of a broker; SIGKILL cannot be handled, but the broker
    ends and its files are removed."""
    with start([program, '--seconds=60', 'nop-throughput'], stdout=subprocess.DEVNULL,
               stderr=subprocess.PIPE, text=True) as process:
        def has_broker_or_ended():
            return brokers(folder) or process.poll() is not None
        wait_for(has_broker_or_ended, 'no broker is started')
        if process.poll() is not None:
            expect('skipped' in process.stderr.read(), 'ended by itself')
            return
        time.sleep(after)
        process.send_signal(number)
        expect(process.wait(60) == -number, f'signal {number}: exit {process.returncode}')
    if number == signal.SIGKILL:
        wait_for(lambda: not os.listdir(folder), 'SIGKILL: files are left behind')
    expect(not brokers(folder), f'signal {number}: a broker is left behind')
    expect(not os.listdir(folder), f'signal {number}: files are left behind')


def test_card(program, sim):
    with Cards(sim, 'polaris10,vram=4GiB') as cards, tempfile.TemporaryDirectory(prefix='bb-', dir='/tmp') as folder:
        cards.control('set', 'execution=timed', 'policy=fifo', 'job-ns=0', 'group-ns=10000')
        os.environ.update(cards.environment, TMPDIR=folder)
        test_time_lease(program, folder, is_gpu=True)


def main():
    program, is_all = os.path.abspath(sys.argv[1]), sys.argv[2:] == ['--all']
    if sys.argv[2:3] == ['--card']:
        test_card(program, sys.argv[3])
        return
    with tempfile.TemporaryDirectory(prefix='bb-', dir='/tmp') as folder:
        os.environ['TMPDIR'] = folder
        os.environ.pop('RINGBROKER_SOCKET', None)
        test_command_line(program)
        test_report(program, folder)
        test_models(program, folder)
        test_mid(program)
        test_clients(program)
        test_mid_models(program, folder)
        test_cholesky(program)
        test_graphs(program)
        test_pipeline(program)
        test_cut(program)
        test_lease(program)
        test_time_lease(program, folder)
        test_time_lease_fails(program, folder)
        test_device(program)
        if is_all:
            test_operators(program)
        test_rows(program)
        test_nets(program)
        test_fusion(program, is_all)
        test_probes(program, folder, is_all)
        test_scrape(program, folder)
        test_brokertop(program, folder)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            test_stopped(program, folder, number, 0)
            test_stopped(program, folder, number, 0.3)


main()
