#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rooms that each room may include, and the functions and objects that sources may use.

    rooms.py ROOT          checks every #include of the tree, and the uses of names within its folders
    rooms.py --self-test   checks that a forbidden one is caught

    rooms.py --graph ROOT  counts rooms, lines, and the arrows between rooms, draws them as a table, and lists circles

A room is shm, shm/operators, libclient, libclient/layer, libclient/onnx, bpf, or a folder of broker/, which holds no source
itself. Each may include itself, and what the table lists, which are rooms further down: so there are no circles. Headers do
not include each other in a circle either. Tests and tools may include what they test.

Within a folder the sources have an order as well: no file uses a function or object of another that, directly or through
others, uses one of its own. The order is read from the text, so that nothing needs to be built: a use is the name, in a body,
an initializer, or an inline function or macro that is used. The names that macros paste together are not seen.
"""
import collections
import functools
import os
import re
import sys

import tree

# Rooms from the bottom to the top. A room may include itself and the rooms that it lists, which come above it
# in this table. Entries that are no longer used must be removed.
ROOMS = {
    'shm': set(),
    'operators': {'shm'},
    'libclient': {'shm'},
    'onnx': {'shm', 'operators', 'libclient'},
    'layer': {'shm', 'libclient'},
    'bpf': set(),
    'util': {'shm'},
    'loop': {'shm', 'util'},
    'tenant': {'shm', 'util'},
    'plan': {'shm', 'operators', 'util'},
    'telemetry': {'shm', 'util'},
    'stats': {'shm', 'util'},
    'lease': {'shm', 'bpf', 'util', 'loop', 'tenant', 'telemetry'},
    'memory': {'shm', 'util', 'loop', 'tenant', 'plan', 'telemetry', 'lease'},
    'place': {'shm', 'operators', 'util', 'plan'},
    'cpu': {'shm', 'operators', 'util', 'plan'},
    'vulkan': {'shm', 'util', 'plan'},
    'calibrate': {'shm', 'util', 'plan', 'place', 'vulkan'},
    'session': {'shm', 'operators', 'util', 'loop', 'tenant', 'plan', 'stats', 'lease', 'memory'},
    'dispatch': {'shm', 'util', 'loop', 'plan', 'memory', 'place', 'session'},
    'contention': {'shm', 'bpf', 'util', 'loop', 'tenant', 'stats', 'cpu', 'session', 'dispatch'},
    'control': {'shm', 'util', 'loop', 'tenant', 'plan', 'telemetry', 'stats', 'memory', 'place', 'session', 'dispatch',
                'contention'},
    'daemon': {'shm', 'util', 'loop', 'tenant', 'plan', 'telemetry', 'lease', 'memory', 'place', 'cpu', 'vulkan', 'session',
               'dispatch', 'contention', 'calibrate', 'control'},
}

# These folders include the rooms that they test or are built of.
FREE = {'tests', 'tools'}

# Libraries that one room wraps for all other rooms.
LIBRARIES = [
    (re.compile(r'^liburing(\.h$|/)'), 'liburing', {'loop'} | {'tests', 'tools'}),
    (re.compile(r'^(volk\.h|volk\.c)$|^vulkan/|^vk_video/'), 'Vulkan',
     {'vulkan', 'layer'} | {'tests', 'tools'}),
    (re.compile(r'^(libdrm/.*|xf86drm\.h|amdgpu\.h|amdgpu_drm\.h|drm\.h|drm/.*)$'), 'libdrm',
     {'telemetry'} | {'tests', 'tools'}),
    (re.compile(r'^bpf/|\.skel\.h$'), 'libbpf', {'bpf', 'contention'} | {'tests', 'tools'}),
    (re.compile(r'^protobuf-c/|^onnx\.pb-c\.h$'), 'protobuf-c', {'onnx'} | {'tests', 'tools'}),
    (re.compile(r'^microhttpd\.h$'), 'libmicrohttpd', {'control'} | {'tests', 'tools'}),
    (re.compile(r'^ini\.h$'), 'inih', {'calibrate', 'tenant'} | {'tests', 'tools'}),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE)
SOURCES = ('.c', '.h', '.inc')

DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.MULTILINE)
DEFINE = re.compile(r'[ \t]*#[ \t]*define[ \t]+(\w+)(.*)', re.DOTALL)
# The text before a function's body ends with its name, or MACRO(NAME), and its parameters.
FUNCTION = re.compile(r'(\w+(?:\(\w+\))?)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*$')
# A non-static object, before its initializer if there is one.
OBJECT = re.compile(r'(?!.*\b(?:static|extern|typedef)\b)[^(){}=]*\b(\w+)\s*(?:\[[^\]]*\]\s*)*[=;]', re.DOTALL)
CLEANUP = re.compile(r'\bDEFINE_CLEANUP\([^,]*,\s*(\w+)\)')
# A name of neither a member nor a type.
NAME = re.compile(r'(?<![.\w])(?<!->)(?<!struct )(?<!enum )(?<!union )([A-Za-z_]\w*)(?=(\(\w+\))?)')


@functools.lru_cache(maxsize=None)
def text_of(path):
    """Return a file's text without comments."""
    return tree.without_comments(tree.read('', path))[0]


def room_of(path):
    """Return the room of a file; None for files without a room, such as shaders."""
    parts = path.split('/')
    if parts[0] == 'broker':
        return parts[1] if len(parts) > 2 else 'broker'
    if parts[:2] in (['libclient', 'layer'], ['libclient', 'onnx'], ['shm', 'operators']):
        return parts[1] if len(parts) > 2 else parts[0]
    return parts[0] if parts[0] in ROOMS or parts[0] in FREE else None


def find(root, path, name, is_quoted):
    """Return the file of this tree that @path includes by @name; None if it is foreign or generated."""
    folders = ['', 'broker', 'shm', 'libclient']
    if is_quoted:
        folders.insert(0, os.path.dirname(path))
    for folder in folders:
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def target_of(root, path, name, is_quoted):
    """Return the room of the file that @path includes by @name; None if it is foreign."""
    found = find(root, path, name, is_quoted)
    if found:
        return room_of(found)
    if is_quoted and '/' in name:
        # A generated file: its folder shows the room.
        parts = name.split('/')
        if parts[0] == 'broker' and len(parts) > 2:
            parts = parts[1:]
        return parts[0] if parts[0] in ROOMS else name
    return None


def includes(root):
    """Yield each include of the tree: file, line, room, name, and whether it is quoted."""
    for path in tree.files(root):
        if not path.endswith(SOURCES) or room_of(path) is None:
            continue
        text = text_of(os.path.join(root, path))
        for match in INCLUDE.finditer(text):
            yield path, text.count('\n', 0, match.start()) + 1, room_of(path), match.group(2), match.group(1) == '"'


def circles(edges):
    """Return the nodes that reach themselves by @edges, in groups that reach each other."""
    reached = {}
    for start in edges:
        found, todo = set(), [start]
        while todo:
            new = edges.get(todo.pop(), set()) - found
            found |= new
            todo += new
        reached[start] = found
    return sorted({tuple(sorted(other for other in found if start in reached.get(other, ())))
                   for start, found in reached.items() if start in found})


def headers(root):
    """Return the headers that each header includes."""
    found = {}
    for path, _, _, name, is_quoted in includes(root):
        target = find(root, path, name, is_quoted)
        if path.endswith('.h') and target:
            found.setdefault(path, set()).add(target)
    return found


def bodies(path):
    """Return the texts of external functions and objects by name; of internal functions and macros by
    name; and all other text."""
    external, internal, rest = collections.defaultdict(list), collections.defaultdict(list), []

    def define(match):
        macro = DEFINE.match(match.group())
        if macro:
            internal[macro[1]].append(macro[2])
        return ''

    text = DIRECTIVE.sub(define, text_of(path))
    for match in CLEANUP.finditer(text):
        internal[match[1] + 'p'].append(match[1])
    start = depth = 0
    for match in re.finditer('[{};]', text):
        depth += {'{': 1, '}': -1, ';': 0}[match.group()]
        if match.group() == '{' and depth == 1:
            head = text[start:match.start()]
        if depth > 0 or match.group() == '{':
            continue
        function = FUNCTION.search(head.rstrip()) if match.group() == '}' and '=' not in head else None
        if function:
            is_own = re.search(r'\bstatic\b|INLINE\b', head[:function.start()])
            (internal if is_own else external)[function[1]].append(text[start:match.end()])
        elif match.group() == ';':
            rest.append(text[start:match.end()])
            made = OBJECT.match(rest[-1].partition('=')[0] + '=')
            if made:
                external[made[1]].append('')
        else:
            continue
        start = match.end()
    return external, internal, rest


def uses(root):
    """Return for each source the sources of its folder whose functions and objects it uses, with their
    names."""
    parsed = {path: bodies(os.path.join(root, path)) for path in tree.files(root)
              if path.endswith(SOURCES) and room_of(path) not in FREE - {'tools'} | {None}}
    defined, inline = collections.defaultdict(set), collections.defaultdict(list)
    for path, (external, internal, _) in parsed.items():
        for name, texts in external.items():
            defined[os.path.dirname(path), name].add(path)
        for name, texts in [] if path.endswith('.c') else [*internal.items(), *external.items()]:
            inline[name] += texts
    found = {}
    for path, (external, internal, rest) in parsed.items():
        if not path.endswith('.c'):
            continue
        found[path] = collections.defaultdict(set)
        # Each program of a folder has its own main().
        seen = {*external, *internal, 'main'}
        todo = sum([*external.values(), *internal.values()], rest)
        while todo:
            for match in NAME.finditer(todo.pop()):
                for name in {match[1], match[1] + (match[2] or '')} - seen:
                    seen.add(name)
                    todo += inline.get(name, ())
                    for other in defined.get((os.path.dirname(path), name), ()):
                        found[path][other].add(name)
    return found


def use_circles(root):
    """Return the folders whose sources use each other in a circle, and these sources."""
    used = uses(root)
    found = []
    for circle in circles({path: set(others) for path, others in used.items()}):
        texts = [f'{os.path.basename(path)} -> {os.path.basename(other)} ({", ".join(sorted(used[path][other]))})'
                 for path in circle for other in sorted(used[path]) if other in circle]
        found.append((os.path.dirname(circle[0]), '; '.join(texts)))
    return found


def arrows(root):
    """Return the number of includes from each room to another."""
    count = collections.Counter()
    for path, _, room, name, is_quoted in includes(root):
        target = target_of(root, path, name, is_quoted)
        if target and target != room and room not in FREE:
            count[room, target] += 1
    return count


def check(root):
    problems = []
    names = list(ROOMS)
    for room, allowed in ROOMS.items():
        problems += [f'tests/house/rooms.py: {room} lists {name}, which is not further down'
                     for name in sorted(allowed) if name not in names[:names.index(room)]]
    for path in tree.files(root):
        room = room_of(path)
        if path.endswith(SOURCES) and room and room not in ROOMS and room not in FREE:
            problems.append(f'{path}: {room} is not a room of the table in tests/house/rooms.py')
    for path, line, room, name, is_quoted in includes(root):
        at = f'{path}:{line}'
        if not is_quoted:
            for pattern, library, allowed in LIBRARIES:
                if pattern.match(name) and room not in allowed:
                    problems.append(f'{at}: {room} includes <{name}>; only '
                                    f'{", ".join(sorted(allowed - FREE))} may use {library}')
        target = target_of(root, path, name, is_quoted)
        if target and target != room and room in ROOMS and target not in ROOMS[room]:
            problems.append(f'{at}: {room} may not include {name}, which is in {target}')
    problems += [f'{circle[0]}: includes itself by {", ".join(circle[1:] or circle)}' for circle in circles(headers(root))]
    problems += [f'{folder}: a circle of uses: {text}' for folder, text in use_circles(root)]
    return problems


def unused(root):
    """Return the table's entries that no include needs."""
    used = arrows(root)
    return [f'tests/house/rooms.py: {room} includes nothing of {name}' for room, allowed in ROOMS.items()
            for name in sorted(allowed) if not used[room, name]]


def draw(root):
    used = arrows(root)
    lines = collections.Counter()
    for path in tree.files(root):
        if path.endswith(SOURCES) and room_of(path) in ROOMS:
            lines[room_of(path)] += tree.read(root, path).count('\n')
    for room in ROOMS:
        targets = ', '.join(f'{name} {used[room, name]}' for name in ROOMS if used[room, name])
        print(f'{room:<12}{lines[room]:>7}  {targets}')
    print(f'{len(ROOMS)} rooms, {len(used)} arrows, '
          f'{sum(1 for _, target in used if target not in ("shm", "util"))} of them not to shm or util, '
          f'{len(circles(headers(root)))} circles of headers')
    for folder, text in use_circles(root):
        print(f'{folder}: a circle of uses:', *text.split('; '), sep='\n    ')


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    if sys.argv[1] == '--graph':
        draw(sys.argv[2])
        return
    paths = [path for path in tree.files(sys.argv[1]) if path.endswith(SOURCES) and room_of(path)]
    tree.report(check(sys.argv[1]) + unused(sys.argv[1]), len(paths), 'files')


HOUSE = {'bpf/layout.h': '', 'broker/util/log.h': '', 'broker/plan/plan.h': '', 'broker/vulkan/device.h': '',
         'broker/cpu/cpu.h': '', 'shm/operators/op.h': '', 'broker/daemon/options.h': '',
         'broker/plan/cycle.h': '#include "plan/plan.h"\n',
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
        ('broker/session/a.c', '#include "stats/stats.h"', None),
        ('broker/dispatch/a.c', '#include "telemetry/telemetry.h"', 'which is in telemetry'),
        ('broker/cpu/a.c', '#include "stats/stats.h"', 'which is in stats'),
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
        ('broker/contention/a.c', '#include <bpf/libbpf.h>', None),
        ('broker/contention/a.c', '#include "../../bpf/layout.h"', None),
        ('broker/dispatch/a.c', '#include <bpf/bpf.h>', 'only bpf, contention may use libbpf'),
        ('broker/place/a.c', '#include "../../bpf/layout.h"', 'place may not include'),
        ('broker/tenant/a.c', '#include <ini.h>', None),
        ('broker/calibrate/a.c', '#include <ini.h>', None),
        ('broker/control/a.c', '#include <microhttpd.h>', None),
        ('broker/control/a.c', '#include "vulkan/device.h"', 'which is in vulkan'),
        ('broker/session/a.c', '#include <microhttpd.h>', 'only control may use libmicrohttpd'),
        ('broker/session/a.c', '#include <ini.h>', 'only calibrate, tenant may use inih'),
        ('broker/attic/a.c', 'int a;', 'attic is not a room'),
        ('broker/main.c', 'int a;', 'broker is not a room'),
        ('broker/daemon/a.c', '#include "vulkan/device.h"', None),
        ('broker/vulkan/a.c', '#include "daemon/options.h"', 'which is in daemon'),
        ('broker/plan/b.h', '#include "plan/b.h"', 'broker/plan/b.h: includes itself by broker/plan/b.h'),
        ('broker/plan/plan.h', '#include "cycle.h"', 'broker/plan/cycle.h: includes itself by broker/plan/plan.h'),
        ('tests/unit/a.c', '#include "vulkan/device.h"', None),
        ('tools/a.c', '#include <volk.h>', None),
    ]
] + [
    (f'{folder}: {one} {two}', {**HOUSE, f'{folder}/one.c': one + '\n', f'{folder}/two.c': two + '\n', **more}, expected)
    for folder, one, two, more, expected in [
        ('broker/plan', 'int one(void) { return 1; }', 'int two(void) { return one(); }', {}, None),
        ('broker/plan', 'int one(void) { return two(); }', 'int two(void) { return one(); }', {},
         'one.c -> two.c (two); two.c -> one.c (one)'),
        ('tools/brokerctl', 'int one(int a) { return two(a); }', 'int two(int a) { return one(a); }', {}, 'tools/brokerctl: a circle'),
        ('broker/plan', 'int one(void) { return two(); }', 'int two(void) { return three(); }',
         {'broker/plan/three.c': 'int three(void) { return one(); }\n'}, 'three.c -> one.c (one)'),
        ('broker/plan', 'static int (*const ops[])(void) = {two};\nint one(void) { return ops[0](); }',
         'int two(void) { return one(); }', {}, 'one.c -> two.c (two)'),
        ('broker/plan', 'int one(void) { return inner(); }', 'int two(void) { return one(); }',
         {'broker/plan/two.h': 'int two(void);\nstatic inline int inner(void) { return two(); }\n'}, 'one.c -> two.c (two)'),
        ('broker/plan', 'int one(void) { return INNER(1); }', 'int two(void) { return one(); }',
         {'broker/plan/two.h': '#define INNER(a) \\\n\ttwo()\n'}, 'one.c -> two.c (two)'),
        ('broker/plan', 'int one(void) { _cleanup_(twop) int *a; }', 'int two(void) { return one(); }',
         {'broker/plan/two.h': 'DEFINE_CLEANUP(int *, two)\n'}, 'one.c -> two.c (two)'),
        ('broker/plan', 'void LEVEL(one)(int a[static 1]) { LEVEL(two)(a); }', 'void LEVEL(two)(int a[static 1]) { LEVEL(one)(a); }',
         {}, 'one.c -> two.c (LEVEL(two))'),
        ('broker/plan', 'static int two(void) { return 1; }\nint one(void) { return two(); }', 'int two(void) { return one(); }', {}, None),
        ('broker/plan', 'const struct op one = {two};', 'int two(void) { return one.a; }', {}, 'two.c -> one.c (one)'),
        ('broker/plan', 'int one[4];\nvoid *get(void) { return two; }', 'int two;\nint *get_one(void) { return one; }', {},
         'one.c -> two.c (two)'),
        ('broker/plan', 'static int one[] = {1};\nint *get(void) { return two; }', 'struct one {\n\tint one;\n};\nint *two(int one);',
         {}, None),
        ('broker/plan', 'int one(struct two *a) { return a->two + a[0].two; }', 'int two(void) { return one(); }', {}, None),
        ('broker/plan', '/* as two() */\nint one(void) { return puts("two"); }', 'int two(void) { return one(); }', {}, None),
        ('broker/plan', 'int one(void) { return 1; }', 'int two(void) { return one(); }',
         {'broker/util/one.c': 'int one(void) { return two(); }\n'}, None),
        ('tests/unit', 'int one(void) { return two(); }', 'int two(void) { return one(); }', {}, None),
        ('libclient/onnx', 'int one(void) { return two(); }', 'int two(void) { return one(); }', {}, 'libclient/onnx: a circle'),
    ]
]

if __name__ == '__main__':
    main()
