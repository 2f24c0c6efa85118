#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may include whom.

    rooms.py ROOT          checks every #include of the tree
    rooms.py --self-test   checks that a forbidden one is caught

A room is shm, shm/operators, libclient, libclient/layer, libclient/onnx, bpf, or a folder of broker/. Each may include itself, and what the table lists.
Tests and tools may include what they test.
"""
import os
import re
import sys

import tree

# shm is the bottom: everybody may include it, and it includes nothing of ours.
ROOMS = {
    'shm': set(),
    'operators': {'shm'},
    'libclient': {'shm'},
    'onnx': {'shm', 'libclient', 'operators'},
    'layer': {'shm', 'libclient'},
    'bpf': set(),
    'util': {'shm'},
    'loop': {'shm', 'util'},
    'tenant': {'shm', 'util'},
    'plan': {'shm', 'operators', 'util'},
    'telemetry': {'shm', 'util', 'bpf'},
    'place': {'shm', 'operators', 'util', 'plan'},
    'cpu': {'shm', 'operators', 'util', 'plan'},
    'vulkan': {'shm', 'operators', 'util', 'plan'},
    'session': {'shm', 'operators', 'util', 'loop', 'tenant', 'plan'},
    'dispatch': {'shm', 'util', 'loop', 'session', 'plan', 'place'},
    'control': {'shm', 'util', 'session', 'tenant', 'dispatch'},
}

# Headers that rooms may include beside those of the rooms that they may: tasks are counted where they
# complete, straight into the pages that telemetry makes.
SHARED = {
    'broker/stats/stats.h': {'session', 'dispatch'},
}

# Folders that put rooms together.
FREE = {'broker', 'tests', 'tools'}

# Libraries that one room wraps for all others.
LIBRARIES = [
    (re.compile(r'^liburing(\.h$|/)'), 'liburing', {'loop'} | {'tests', 'tools'}),
    (re.compile(r'^(volk\.h|volk\.c)$|^vulkan/|^vk_video/'), 'Vulkan',
     {'vulkan', 'layer'} | {'tests', 'tools'}),
    (re.compile(r'^(libdrm/.*|xf86drm\.h|amdgpu\.h|amdgpu_drm\.h|drm\.h|drm/.*)$'), 'libdrm',
     {'telemetry'} | {'tests', 'tools'}),
    (re.compile(r'^bpf/|\.skel\.h$'), 'libbpf', {'bpf', 'telemetry'} | {'tests', 'tools'}),
    (re.compile(r'^protobuf-c/|^onnx\.pb-c\.h$'), 'protobuf-c', {'onnx'} | {'tests', 'tools'}),
    (re.compile(r'^microhttpd\.h$'), 'libmicrohttpd', {'control'} | {'tests', 'tools'}),
    (re.compile(r'^ini\.h$'), 'inih', {'place', 'tenant'} | {'tests', 'tools'}),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE)
SOURCES = ('.c', '.h', '.inc')


def room_of(path):
    """The room that a file of the tree is in; None: none, such as a shader."""
    parts = path.split('/')
    if parts[0] == 'broker':
        return parts[1] if len(parts) > 2 else 'broker'
    if parts[:2] in (['libclient', 'layer'], ['libclient', 'onnx'], ['shm', 'operators']):
        return parts[1] if len(parts) > 2 else parts[0]
    return parts[0] if parts[0] in ROOMS or parts[0] in FREE else None


def target_of(root, path, room, name, is_quoted):
    """The room that a name included by a file of @room is in; None: not ours, or shared with it."""
    folders = ['', 'broker', 'shm', 'libclient']
    if is_quoted:
        folders.insert(0, os.path.dirname(path))
    for folder in folders:
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return None if room in SHARED.get(candidate, ()) else room_of(candidate)
    if is_quoted and '/' in name:
        # Made at build time: its folder tells.
        parts = name.split('/')
        if parts[0] == 'broker' and len(parts) > 2:
            parts = parts[1:]
        return parts[0] if parts[0] in ROOMS else name
    return None


def check(root):
    problems = []
    for path in tree.files(root):
        if not path.endswith(SOURCES):
            continue
        room = room_of(path)
        if room is None:
            continue
        if room not in ROOMS and room not in FREE:
            problems.append(f'{path}: {room} is not a room of the table in tests/house/rooms.py')
            continue
        text, _ = tree.without_comments(tree.read(root, path))
        for match in INCLUDE.finditer(text):
            line = text.count('\n', 0, match.start()) + 1
            name, is_quoted = match.group(2), match.group(1) == '"'
            at = f'{path}:{line}'
            if not is_quoted:
                for pattern, library, allowed in LIBRARIES:
                    if pattern.match(name) and room not in allowed:
                        problems.append(f'{at}: {room} includes <{name}>; only '
                                        f'{", ".join(sorted(allowed - FREE))} may use {library}')
            target = target_of(root, path, room, name, is_quoted)
            if target is None or target == room or room in FREE:
                continue
            if target not in ROOMS[room]:
                problems.append(f'{at}: {room} may not include {name}, which is in {target}')
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    paths = [path for path in tree.files(sys.argv[1]) if path.endswith(SOURCES) and room_of(path)]
    tree.report(check(sys.argv[1]), len(paths), 'files')


HOUSE = {'bpf/layout.h': '', 'broker/util/log.h': '', 'broker/plan/plan.h': '', 'broker/vulkan/device.h': '',
         'broker/cpu/cpu.h': '', 'shm/operators/op.h': '',
         'broker/telemetry/telemetry.h': '', 'broker/stats/stats.h': '', 'broker/session/session.h': '', 'shm/ring.h': '',
         'shm/ringbroker/abi.h': '', 'libclient/ringbroker.h': '', 'libclient/layer/layer.h': '', 'tests/unit/help.h': ''}

CASES = [
    (f'{path}: {text}', {**HOUSE, path: text + '\n'}, expected) for path, text, expected in [
        ('broker/dispatch/a.c', '#include "plan/plan.h"', None),
        ('broker/dispatch/a.c', '#include <ringbroker/abi.h>', None),
        ('broker/dispatch/a.c', '/*\n#include "vulkan/device.h"\n*/', None),
        ('broker/dispatch/a.c', '#include "vulkan/device.h"', 'a.c:1: dispatch may not include'),
        ('broker/dispatch/a.c', '\n# include "cpu/cpu.h"', 'a.c:2: dispatch may not include'),
        ('broker/dispatch/a.c', '#include "../cpu/cpu.h"', 'which is in cpu'),
        ('broker/dispatch/a.c', '#include "broker/cpu/cpu.h"', 'which is in cpu'),
        ('broker/dispatch/a.c', '#include <cpu/cpu.h>', 'which is in cpu'),
        ('broker/dispatch/a.c', '#include "vulkan/generated.h"', 'which is in vulkan'),
        ('broker/cpu/a.c', '#include "broker/vulkan/generated.h"', 'which is in vulkan'),
        ('broker/vulkan/a.c', '#include "broker/vulkan/generated.h"', None),
        ('broker/dispatch/a.c', '#include "tests/unit/help.h"', 'which is in tests'),
        ('broker/cpu/a.c', '#include "session/session.h"', 'which is in session'),
        ('broker/dispatch/a.c', '#include "stats/stats.h"', None),
        ('broker/dispatch/a.c', '#include "telemetry/telemetry.h"', 'which is in telemetry'),
        ('broker/cpu/a.c', '#include "stats/stats.h"', 'which is in telemetry'),
        ('broker/cpu/a.c', '#include "cpu.h"', None),
        ('broker/cpu/a.c', '#include "made-at-build-time.h"', None),
        ('broker/util/a.c', '#include "plan/plan.h"', 'which is in plan'),
        ('broker/plan/a.h', '#include "libclient/ringbroker.h"', 'which is in libclient'),
        ('broker/plan/a.h', '#include <ringbroker.h>', 'which is in libclient'),
        ('libclient/layer/a.c', '#include <vulkan/vulkan_core.h>', None),
        ('libclient/layer/a.c', '#include <ringbroker.h>', None),
        ('libclient/layer/a.c', '#include "util/log.h"', 'which is in util'),
        ('libclient/a.c', '#include <vulkan/vulkan_core.h>', 'libclient includes <vulkan/vulkan_core.h>'),
        ('libclient/a.c', '#include "libclient/layer/layer.h"', 'which is in layer'),
        ('shm/a.h', '#include "util/log.h"', 'which is in util'),
        ('shm/a.h', '#include "shm/operators/op.h"', 'which is in operators'),
        ('shm/operators/a.c', '#include "plan/plan.h"', 'which is in plan'),
        ('shm/operators/a.c', '#include "shm/ring.h"', None),
        ('broker/plan/a.c', '#include "shm/operators/op.h"', None),
        ('libclient/onnx/a.c', '#include "shm/operators/op.h"', None),
        ('libclient/a.c', '#include "shm/operators/op.h"', 'which is in operators'),
        ('libclient/a.c', '#include "shm/ring.h"', None),
        ('libclient/a.c', '#include <protobuf-c/protobuf-c.h>', 'only onnx may use protobuf-c'),
        ('libclient/onnx/a.c', '#include <protobuf-c/protobuf-c.h>', None),
        ('libclient/onnx/a.c', '#include "shm/operators/op.h"', None),
        ('libclient/a.c', '#include "util/log.h"', 'which is in util'),
        ('broker/loop/a.c', '#include <liburing.h>', None),
        ('broker/session/a.c', '#include <liburing.h>', 'only loop may use liburing'),
        ('libclient/a.c', '#include <liburing/io_uring.h>', 'only loop may use liburing'),
        ('broker/vulkan/a.c', '#include <volk.h>', None),
        ('broker/dispatch/a.c', '#include <volk.h>', 'only layer, vulkan may use Vulkan'),
        ('broker/plan/a.c', '#include <vulkan/vulkan_core.h>', 'only layer, vulkan may use Vulkan'),
        ('broker/telemetry/a.c', '#include <amdgpu.h>', None),
        ('broker/vulkan/a.c', '#include <xf86drm.h>', 'only telemetry may use libdrm'),
        ('broker/telemetry/a.c', '#include <bpf/libbpf.h>', None),
        ('broker/telemetry/a.c', '#include "../../bpf/layout.h"', None),
        ('broker/dispatch/a.c', '#include <bpf/bpf.h>', 'only bpf, telemetry may use libbpf'),
        ('broker/place/a.c', '#include "../../bpf/layout.h"', 'place may not include'),
        ('broker/tenant/a.c', '#include <ini.h>', None),
        ('broker/place/a.c', '#include <ini.h>', None),
        ('broker/control/a.c', '#include <microhttpd.h>', None),
        ('broker/control/a.c', '#include "vulkan/device.h"', 'which is in vulkan'),
        ('broker/session/a.c', '#include <microhttpd.h>', 'only control may use libmicrohttpd'),
        ('broker/session/a.c', '#include <ini.h>', 'only place, tenant may use inih'),
        ('broker/attic/a.c', 'int a;', 'attic is not a room'),
        ('broker/main.c', '#include "vulkan/device.h"', None),
        ('tests/unit/a.c', '#include "vulkan/device.h"', None),
        ('tools/a.c', '#include <volk.h>', None),
    ]
]

if __name__ == '__main__':
    main()
