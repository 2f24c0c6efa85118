#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that know nothing of leases, run by brokerctl exec on the software device: within a lease
they work as without one; beyond it they end, or report the failure.

    programs.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL ffmpeg|vkcube|mpv
"""
import sys

from leaserig import MIB, Broker, Layers, expect
from unmodified import Ended, display, half, need, run

WHICH = sys.argv[6]

FILTERS = {
    'scale_vulkan': ('scale_vulkan=w=640:h=360', '1280x720', 10),
    'avgblur_vulkan': ('avgblur_vulkan=sizeX=2:sizeY=2', '160x120', 5),
}


def ffmpeg(broker, layers):
    """ffmpeg writes the same pictures, or none."""
    need('ffmpeg')
    for name, (text, size, n_frames) in FILTERS.items():
        command = ['ffmpeg', '-hide_banner', '-nostdin', '-loglevel', 'error',
                   '-init_hw_device', 'vulkan=v', '-filter_hw_device', 'v', '-f', 'lavfi',
                   '-i', f'testsrc2=size={size}:rate=10', '-frames:v', str(n_frames), '-vf',
                   f'format=yuv420p,hwupload,{text},hwdownload,format=yuv420p',
                   '-f', 'framemd5', '-']
        plain = run(command, layers)
        frames = [line for line in plain.stdout.splitlines() if not line.startswith('#')]
        if plain.returncode != 0 or len(frames) != n_frames:
            print(f'skipped: ffmpeg has no {name} here:', plain.stderr[-500:])
            sys.exit(77)
        leased = Ended(broker, layers, 64 * MIB, command)
        leased.expect_well(name)
        expect(leased.out == plain.stdout, name, 'other pictures:', plain.stdout, leased.out)
        small = Ended(broker, layers, half(leased), command)
        small.expect_refused(name)
        expect(small.status == 1 and 'VK_ERROR_OUT_OF_DEVICE_MEMORY' in small.err, name,
               small.status, small.err)
        print(name, 'used', leased.report['peak_bytes'], 'bytes')


def vkcube(broker, layers):
    """vkcube draws, or ends by its own assertion."""
    need('vkcube')
    with display() as where:
        command = ['vkcube', '--suppress_popups', '--c', '20', '--width', '200', '--height', '200']
        shown = Ended(broker, layers, 16 * MIB, command, DISPLAY=where)
        shown.expect_well('vkcube')
        small = Ended(broker, layers, half(shown), command, DISPLAY=where)
        small.expect_refused('vkcube')
        expect(small.status != 0, 'it goes on')


def mpv(broker, layers):
    """mpv needs a card. Beyond its lease it continues without a picture, and reports that."""
    need('mpv')
    card = layers.add_card()
    with display() as where:
        command = ['mpv', '--no-config', '--vo=gpu-next', '--gpu-api=vulkan', '--no-audio',
                   '--frames=5', 'av://lavfi:testsrc2=size=160x120']
        played = Ended(broker, layers, 64 * MIB, command, DISPLAY=where, **card)
        if 'no suitable device' in played.out + played.err:
            print('skipped: mpv takes no device here')
            sys.exit(77)
        played.expect_well('mpv')
        expect('VO: [gpu-next]' in played.out, played.out)
        small = Ended(broker, layers, half(played), command, DISPLAY=where, **card)
        small.expect_refused('mpv')


def main():
    need(WHICH)
    with Broker() as broker, Layers() as layers:
        {'ffmpeg': ffmpeg, 'vkcube': vkcube, 'mpv': mpv}[WHICH](broker, layers)


main()
