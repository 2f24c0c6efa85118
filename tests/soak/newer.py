#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Software that is newer than Debian 12's: a loader and a driver, with all tests of the layer, and with
products of cooperative matrices; llama.cpp and vkmark in leases, llama.cpp in parts, and with memory that moves.
$RBK_TEST_NEWER is the folder that tests/soak/newer-programs has filled.

    newer.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL VULKAN_TILES NAME [TORTURE_CLIENT]

NAME is loader, matrices, llama, llama-parts, llama-sleep or vkmark. llama-parts needs a layer that was built with headers as
new as the driver.

llama.cpp computes with $RBK_TEST_MODEL, a GGUF file of at most 400 MiB, or else with a random model,
which suffices to show the placement of its memory.
"""
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

INTEGRATION = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration')
NEWER = os.path.abspath(os.environ.get('RBK_TEST_NEWER', '/nonexistent'))
LIBRARIES = os.path.join(NEWER, 'usr/lib/x86_64-linux-gnu')
LINKER = os.path.join(LIBRARIES, 'ld-linux-x86-64.so.2')
DRIVER = os.path.join(NEWER, 'usr/share/vulkan/icd.d/lvp_icd.json')
BACKENDS = os.path.join(LIBRARIES, 'ggml/backends0')
if not os.path.exists(LINKER):
    print('skipped: $RBK_TEST_NEWER names no folder that tests/soak/newer-programs has filled')
    sys.exit(77)


def newer(program):
    """Return the command that runs @program on the newer libraries."""
    return [LINKER, '--library-path', f'{LIBRARIES}:{LIBRARIES}/llama', program]


def wrap(folder, program):
    """Return a script in @folder that runs @program on the newer driver."""
    path = os.path.join(folder, os.path.basename(program))
    with open(path, 'w', encoding='utf-8') as file:
        file.write('#!/bin/sh\n' + ''.join(f'export {name}={DRIVER}\n' for name in
                                          ('VK_DRIVER_FILES', 'VK_ICD_FILENAMES'))
                   + f'exec {" ".join(newer(program))} "$@"\n')
    os.chmod(path, 0o755)
    return path


# The broker and its clients need the same driver: a software device is identified by its version.
WRAPPERS = tempfile.TemporaryDirectory(prefix='rbk-newer-')
sys.argv[1:3] = [wrap(WRAPPERS.name, os.path.abspath(program)) for program in sys.argv[1:3]]
sys.path.insert(0, INTEGRATION)

from leaserig import MIB, Broker, Layers, expect
from divided import compare
from unmodified import Ended, display, half, run

LIMIT_S = 1500
SPEED_PAIRS = 8
ON_DRIVER = {'VK_DRIVER_FILES': DRIVER, 'VK_ICD_FILENAMES': DRIVER}


def loader():
    """Run all tests of the layer on the newer loader and driver."""
    done = subprocess.run([sys.executable, '-B', os.path.join(INTEGRATION, 'lease-layer.py'),
                           *sys.argv[1:5]], check=False)
    expect(done.returncode == 0, 'the layer fails with the newer loader')


def matrices():
    """Products of float16 use cooperative matrices with correct results, and the broker reports that."""
    for variant in ('plain', 'shared'):
        done = subprocess.run([*newer(os.path.abspath(sys.argv[6])), variant], check=False,
                              env={**os.environ, **ON_DRIVER, 'RBK_TEST_MATRICES': '1'})
        expect(done.returncode == 0, variant, 'products of matrices are wrong')
    done = subprocess.run([sys.argv[1], '--list-devices=json', '--gpu', 'software', '--cache', 'none'],
                          check=True, capture_output=True, text=True)
    device = json.loads(done.stdout)['devices'][1]
    expect(re.fullmatch(r'\d+x\d+x\d+(,.*)?', device['cooperative_matrices']), device)
    expect('MatMul_float16' in device['tiles'], device)


# ---- llama.cpp -----------------------------------------------------------------------------

WIDTH, HIDDEN, HEADS, WORDS, BLOCKS = 256, 512, 4, 4096, 4
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
TENSOR_F32, TENSOR_F16 = 0, 1


def text_of(text):
    return struct.pack('<Q', len(text)) + text.encode()


def entry(name, kind, value):
    if kind == STRING:
        return text_of(name) + struct.pack('<I', kind) + text_of(value)
    return text_of(name) + struct.pack('<I', kind) + struct.pack('<f' if kind == FLOAT32 else '<I', value)


def list_of(name, kind, items):
    return text_of(name) + struct.pack('<IIQ', ARRAY, kind, len(items)) + b''.join(items)


def words():
    return ['<unk>', '<s>', '</s>', *(f'<0x{byte:02X}>' for byte in range(256)),
            *(f't{number}' for number in range(WORDS - 259))]


def tensors():
    yield 'token_embd.weight', (WIDTH, WORDS)
    yield 'output_norm.weight', (WIDTH,)
    yield 'output.weight', (WIDTH, WORDS)
    for block in range(BLOCKS):
        for name, shape in (('attn_norm', (WIDTH,)), ('attn_q', (WIDTH, WIDTH)),
                            ('attn_k', (WIDTH, WIDTH)), ('attn_v', (WIDTH, WIDTH)),
                            ('attn_output', (WIDTH, WIDTH)), ('ffn_norm', (WIDTH,)),
                            ('ffn_gate', (WIDTH, HIDDEN)), ('ffn_up', (WIDTH, HIDDEN)),
                            ('ffn_down', (HIDDEN, WIDTH))):
            yield f'blk.{block}.{name}.weight', shape


def write_model(path):
    """Write a model of llama's architecture, of some 9 MiB, as a GGUF file of version 3."""
    entries = [entry('general.architecture', STRING, 'llama'),
               *(entry('llama.' + name, UINT32, value) for name, value in (
                   ('context_length', 512), ('embedding_length', WIDTH), ('block_count', BLOCKS),
                   ('feed_forward_length', HIDDEN), ('attention.head_count', HEADS),
                   ('attention.head_count_kv', HEADS), ('vocab_size', WORDS),
                   ('rope.dimension_count', WIDTH // HEADS))),
               entry('llama.attention.layer_norm_rms_epsilon', FLOAT32, 1e-5),
               entry('tokenizer.ggml.model', STRING, 'llama'),
               list_of('tokenizer.ggml.tokens', STRING, [text_of(word) for word in words()]),
               list_of('tokenizer.ggml.scores', FLOAT32,
                       [struct.pack('<f', -number) for number in range(WORDS)]),
               # Token types: unknown, control, control, bytes, words.
               list_of('tokenizer.ggml.token_type', INT32,
                       [struct.pack('<i', kind) for kind in
                        [2, 3, 3] + [6] * 256 + [1] * (WORDS - 259)])]
    random.seed(1)
    some = b''.join(struct.pack('<e', random.gauss(0, .02)) for _ in range(32768))
    about, data = b'', b''
    n_tensors = 0
    for name, shape in tensors():
        kind = TENSOR_F16 if len(shape) == 2 else TENSOR_F32
        about += text_of(name) + struct.pack('<I', len(shape)) + b''.join(
            struct.pack('<Q', size) for size in shape) + struct.pack('<IQ', kind, len(data))
        n_bytes = 2 * shape[0] * shape[1] if kind == TENSOR_F16 else 4 * shape[0]
        one = some * (n_bytes // len(some) + 1) if kind == TENSOR_F16 else \
            struct.pack('<f', 1) * shape[0]
        data += one[:n_bytes] + bytes(-n_bytes % 32)
        n_tensors += 1
    head = b'GGUF' + struct.pack('<IQQ', 3, n_tensors, len(entries)) + b''.join(entries) + about
    with open(path, 'wb') as file:
        file.write(head + bytes(-len(head) % 32) + data)


def on_card(ended):
    """Return the MiB of the model on the device, according to llama.cpp's last report."""
    found = re.findall(r'Vulkan0 model buffer size = +([\d.]+) MiB', ended.err)
    return float(found[-1]) if found else 0.0


def model_path(layers):
    """Return the path of the model, which is made unless there is one."""
    path = os.environ.get('RBK_TEST_MODEL')
    if not path:
        path = os.path.join(layers.folder, 'model.gguf')
        write_model(path)
    return path


def completion(model, prompt, n):
    # llama.cpp looks for its backends where it is started.
    return ['env', '-C', BACKENDS, *newer(os.path.join(NEWER, 'usr/bin/llama-completion')),
            '-m', model, '-p', prompt, '-n', str(n), '-no-cnv', '--temp', '0', '-c', '128', '-b',
            '32', '-ub', '32', '--no-warmup', '-fa', 'off']


def llama(broker, layers):
    """With enough room the model is on the card; with less llama.cpp adapts, or reports that it cannot."""
    model = model_path(layers)
    # llama.cpp compiles for the processor only once.
    more = {**ON_DRIVER, **layers.add_card(), 'limit_s': LIMIT_S}
    command = [*completion(model, 't1', 1), '-v']
    whole = Ended(broker, layers, 448 * MIB, [*command, '-ngl', '99'], **more)
    whole.expect_well('with room')
    expect(on_card(whole) > 0, 'nothing is on the card:', whole.err[-4000:])
    # llama.cpp keeps a margin beside its own memory, which brokerctl sets.
    part = os.path.getsize(model) // 2 // MIB * MIB
    fitted = Ended(broker, layers, 32 * MIB + part, command, **more)
    fitted.expect_well('fitting itself')
    print('of', on_card(whole), 'MiB a lease of', 32 * MIB + part, 'bytes has', on_card(fitted),
          flush=True)
    expect(on_card(fitted) < on_card(whole), 'it did not fit itself:', fitted.err[-4000:])
    small = Ended(broker, layers, part, [*command, '-ngl', '99'], **more)
    expect(small.status == 1 and 'model' in small.err, small.status, small.err[-2000:])
    tell_speed(broker, layers, [*command, '-ngl', '99', '-t', '1', '--ignore-eos'], more)


def llama_parts(broker, layers):
    """llama.cpp says the same while its command buffers are divided."""
    torture = wrap(WRAPPERS.name, os.path.abspath(sys.argv[8]))
    command = [*completion(model_path(layers), 't1 t2 t3 t4', 24), '-ngl', '99', '--ignore-eos']
    more = {**ON_DRIVER, **layers.add_card(), 'limit_s': LIMIT_S}
    ended = Ended(broker, layers, 256 * MIB, command, ['--max-part=50us'], **more)
    if 'not divided' in ended.err:
        print('skipped:', ended.err[ended.err.index('command buffers are not divided'):].splitlines()[0])
        sys.exit(77)
    expect(compare(broker, layers, torture, 'llama.cpp', command, **more) > 0, 'llama.cpp was never divided')


def hold_often(broker, must_end, seen):
    """Hold each program whose memory can be moved until it has moved, and let it go on, again and again."""
    def brokerctl(*arguments):
        return subprocess.run([sys.argv[5], f'--socket={broker.socket}', *arguments], check=False, capture_output=True,
                              text=True).stdout

    def leases():
        return [json.loads(line) for line in brokerctl('leases', '--json').splitlines()]

    while not must_end.wait(0.2):
        for lease in leases():
            if lease['movable_bytes'] == 0:
                continue
            brokerctl('lease', 'sleep', '--hold', str(lease['lease']))
            end = time.monotonic() + 10
            while time.monotonic() < end and not must_end.is_set():
                moved = [each['moved_bytes'] for each in leases() if each['lease'] == lease['lease']]
                if not moved or moved[0] > 0:
                    seen.extend(moved)
                    break
                time.sleep(0.05)
            brokerctl('lease', 'wake', str(lease['lease']))


def llama_sleep(broker, layers):
    """llama.cpp says the same while all of its memory goes away and comes back between its submissions."""
    command = [*completion(model_path(layers), 't1 t2 t3 t4', 112), '-ngl', '99', '--ignore-eos']
    more = {**ON_DRIVER, **layers.add_card(), 'RBK_FAKE_CARD_SPARSE': 'queues', 'limit_s': LIMIT_S}
    plain = run(command, layers, **more)
    expect(plain.returncode == 0, plain.returncode, plain.stderr[-2000:])
    must_end, seen = threading.Event(), []
    holder = threading.Thread(target=hold_often, args=(broker, must_end, seen))
    holder.start()
    try:
        ended = Ended(broker, layers, 448 * MIB, command, ['--sleep'], RINGBROKER_LEASE_LOG='-', **more)
    finally:
        must_end.set()
        holder.join()
    ended.expect_well('llama.cpp')
    expect(ended.out == plain.stdout, 'llama.cpp prints', ended.out[-1000:], 'not', plain.stdout[-1000:])
    moves = re.findall(r'(\d+) bytes have moved back in (\d+) us; (\d+)', ended.err)
    expect(moves and len(seen) > 0, 'nothing was moved', ended.err[-3000:])
    print(f'llama.cpp: moved {len(moves)} times, at most {max(int(move[0]) for move in moves) / MIB:.1f} MiB, back in '
          f'{statistics.median(int(move[1]) for move in moves) / 1000:.1f} ms (median)', flush=True)


def tokens_per_s(err):
    found = re.findall(r'\beval time =.*?([\d.]+) tokens per second', err)
    expect(found, 'no speed is told:', err[-2000:])
    return float(found[-1])


def tell_speed(broker, layers, command, more):
    """Run by turns with a lease and without. Other load on the machine is unknown, so speeds are
    printed, not judged."""
    command = [*command, '-n', '100']
    speeds = {'without': [], 'with': []}
    for turn in range(2 * SPEED_PAIRS):
        # The order of a round is: without the layer, with, with, without.
        if turn % 4 in (1, 2):
            ended = Ended(broker, layers, 448 * MIB, command, **more)
            ended.expect_well('for its speed')
            speeds['with'].append(tokens_per_s(ended.err))
        else:
            done = run(command, layers, **more)
            expect(done.returncode == 0, done.stderr[-2000:])
            speeds['without'].append(tokens_per_s(done.stderr))
    medians = {how: statistics.median(values) for how, values in speeds.items()}
    # Two consecutive runs see about the same load of the machine.
    ratio = statistics.median(a / b for a, b in zip(speeds['with'], speeds['without']))
    print(f"tokens/s: {medians['with']:.2f} with the layer, {medians['without']:.2f} without it, medians of "
          f"{SPEED_PAIRS} runs each; ratio of two in a row {ratio:.3f}", flush=True)


def vkmark(broker, layers):
    """vkmark draws, and reports scenes that it cannot draw."""
    with display() as where:
        command = [*newer(os.path.join(NEWER, 'usr/bin/vkmark')), '-s', '200x200', '--winsys', 'xcb', '--winsys-dir',
                   os.path.join(LIBRARIES, 'vkmark'), '--data-dir',
                   os.path.join(NEWER, 'usr/share/vkmark'), '-b', 'vertex:duration=1']
        more = {**ON_DRIVER, 'DISPLAY': where, 'limit_s': LIMIT_S}
        drawn = Ended(broker, layers, 64 * MIB, command, **more)
        drawn.expect_well('vkmark')
        expect(re.search(r'FPS: [1-9]', drawn.out), drawn.out)
        small = Ended(broker, layers, half(drawn), command, **more)
        small.expect_refused('vkmark')
        expect(not re.search(r'FPS: [1-9]', small.out), small.out)


def main():
    if sys.argv[7] in ('loader', 'matrices'):
        {'loader': loader, 'matrices': matrices}[sys.argv[7]]()
        return
    with Broker() as broker, Layers() as layers:
        {'llama': llama, 'llama-parts': llama_parts, 'llama-sleep': llama_sleep, 'vkmark': vkmark}[sys.argv[7]](broker, layers)


main()
