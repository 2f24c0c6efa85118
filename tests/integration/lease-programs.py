#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Other projects' programs compute and draw the same while the layer divides their command buffers.

    lease-programs.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL TORTURE_CLIENT [ffmpeg|vkcube|mpv...]

ffmpeg's pictures are compared, and those that mpv shows; vkcube must not cause messages of the validation layer
that it does not cause by itself. tests/soak/newer.py does the same with llama.cpp.
"""
import os
import re
import shutil
import socket
import sys
import time

import started
from divided import ALONE, compare, each_mode
from leaserig import MIB, Broker, Layers, await_true, divided, expect
from unmodified import CTL, display, environment, run

TORTURE = os.path.abspath(sys.argv[6])
VALIDATION = {'VK_INSTANCE_LAYERS': 'VK_LAYER_KHRONOS_validation',
              'VK_LAYER_ENABLES': 'VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT'}
# Not overlay_vulkan and blend_vulkan: ffmpeg 5.1's pictures differ from run to run. avgblur_vulkan reads shared memory
# that it has not written if the size is no multiple of 32.
FILTERS = ('hflip_vulkan', 'scale_vulkan=w=640:h=384', 'avgblur_vulkan=sizeX=9:sizeY=9', 'chromaber_vulkan=dist_x=2:dist_y=-1.5',
           'gblur_vulkan=sigma=2:size=11', 'libplacebo=w=640:h=384:upscaler=ewa_lanczos',
           'scale_vulkan=w=800:h=448,gblur_vulkan=sigma=1:size=5,hflip_vulkan,transpose_vulkan,chromaber_vulkan')


def ffmpeg_command(text, n_frames):
    return ['ffmpeg', '-hide_banner', '-nostdin', '-loglevel', 'error', '-init_hw_device', 'vulkan=v', '-filter_hw_device',
            'v', '-f', 'lavfi', '-i', 'testsrc2=size=320x192:rate=10', '-frames:v', str(n_frames), '-vf',
            f'format=yuv420p,hwupload,{text},hwdownload,format=yuv420p', '-f', 'framemd5', '-']


def messages(done_out, done_err):
    return set(re.findall(r'(?:VUID|UNASSIGNED|SYNC-HAZARD)-[\w-]+', done_out + done_err))


def validate(broker, layers, what, command, **more):
    """Compare the validation layer's messages about the program with those about the program and the layer."""
    more |= VALIDATION
    plain = run(command, layers, **more)
    before = messages(plain.stdout, plain.stderr)
    done = run([CTL, '--socket', broker.socket, 'exec', '--vram=256MiB', *ALONE['parts of 50 us'], '--', *command], layers,
               **more)
    new = messages(done.stdout, done.stderr) - before
    expect(done.returncode == 0 and not new, what, 'under validation:', done.returncode, *new, done.stderr[-2000:])


def ffmpeg(broker, layers):
    n_parts = 0
    for text in FILTERS:
        name = '+'.join(re.findall(r'\w+_vulkan|libplacebo', text))
        if run(ffmpeg_command(text, 1), layers).returncode != 0:
            print('skipped: ffmpeg has no', name, 'here')
            continue
        found = compare(broker, layers, TORTURE, name, ffmpeg_command(text, 10))
        expect(found > 0, name, 'was never divided')
        validate(broker, layers, name, ffmpeg_command(text, 2))
        n_parts += found
    return n_parts


def vkcube(broker, layers):
    """It draws in one render pass, which is never divided."""
    command = ['vkcube', '--suppress_popups', '--c', '30', '--width', '200', '--height', '200']
    with display() as where:
        for mode, ended in each_mode(broker, layers, TORTURE, 16 * MIB, command, DISPLAY=where):
            ended.expect_well('vkcube', mode)
            expect(divided(ended.err)[0] == 0, 'vkcube is divided', ended.err[-2000:])
            print('vkcube,', mode, 'draws', flush=True)
        validate(broker, layers, 'vkcube', command, DISPLAY=where)
    return 0


class Shown:
    """mpv, paused. @options: of brokerctl exec; None: without the layer."""

    def __init__(self, broker, layers, where, options):
        self.path = os.path.join(layers.folder, 'mpv')
        command = ['mpv', '--no-config', '--vo=gpu-next', '--gpu-api=vulkan', '--no-audio', '--pause', '--osd-level=0',
                   '--profile=gpu-hq', '--deband=no', f'--input-ipc-server={self.path}', '--really-quiet',
                   'av://lavfi:testsrc2=size=160x120:rate=5:duration=10']
        if options:
            command = [CTL, '--socket', broker.socket, 'exec', '--vram=256MiB', *options, '--', *command]
        self.log = open(os.path.join(layers.folder, 'mpv-log'), 'w+', encoding='utf-8')
        self.process = started.start(command, stderr=self.log, env=environment(
            layers, DISPLAY=where, RINGBROKER_LEASE_LOG='-', **layers.add_card()))
        await_true('mpv listens', lambda: os.path.exists(self.path) or self.process.poll() is not None)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(self.path)

    def step(self):
        self.connection.send(b'frame-step\n')

    def end(self):
        self.connection.send(b'quit\n')
        expect(self.process.wait(60) == 0, 'mpv has failed')
        self.connection.close()
        os.unlink(self.path)
        self.log.seek(0)
        with self.log:
            return self.log.read()


def picture(layers):
    with open(os.path.join(layers.folder, 'Xvfb_screen0'), 'rb') as file:
        return file.read()


def settled(layers, before):
    """Return the picture once it has not changed for a second. @before: the one before it."""
    last, since = before, time.monotonic()
    while last == before or time.monotonic() < since + 1:
        now = picture(layers)
        if now != last:
            last, since = now, time.monotonic()
        expect(time.monotonic() < since + 60, 'mpv shows nothing')
        time.sleep(.05)
    return last


def mpv(broker, layers):
    with display(layers.folder) as where:
        expected = [picture(layers)]
        plain = Shown(broker, layers, where, None)
        for _ in range(4):
            expected.append(settled(layers, expected[-1]))
            plain.step()
        plain.end()
        n_parts = 0
        for mode, options in ALONE.items():
            shown = Shown(broker, layers, where, options)
            for right in expected[1:]:
                await_true(f'mpv, {mode}, shows another picture', lambda right=right: picture(layers) == right)
                shown.step()
            found = divided(shown.end())[0]
            print(f'mpv, {mode}: divided {found} times', flush=True)
            n_parts += found
    return n_parts


def main():
    wanted = sys.argv[7:] or ['ffmpeg', 'vkcube', 'mpv']
    wanted = [name for name in wanted if shutil.which(name)]
    if not wanted:
        print('skipped: ffmpeg, vkcube and mpv are not installed')
        sys.exit(77)
    for name in wanted:
        with Broker() as broker, Layers() as layers:
            n_parts = {'ffmpeg': ffmpeg, 'vkcube': vkcube, 'mpv': mpv}[name](broker, layers)
            expect(n_parts > 0 or name == 'vkcube', name, 'was never divided')


main()
