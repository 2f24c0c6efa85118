#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run "tools/demo graph", which compares the outputs itself.

    demo-graph.py SOURCE BUILD DATA

Exit status: 77 without the data.
"""
import os
import re
import sys
import tempfile
import xml.etree.ElementTree

from demorun import demo, expect_clean, expect_refused, fail, finish

SOURCE, BUILD, DATA = sys.argv[1:4]
BUDGETS_KIB = (5120, 2048, 7900)


def main():
    picture = os.path.join(BUILD, 'graph.svg')
    with tempfile.TemporaryDirectory() as scratch:
        status, output = finish(demo(SOURCE, BUILD, scratch, 'graph', '--data', DATA))
        expect_clean(scratch)
        expect_refused(SOURCE, BUILD, scratch, 'graph', '--images=5')
    if status:
        if status == 77:
            print(output)
            sys.exit(77)
        fail(f'the demo ended with {status}', output)
    budgets = [int(kib) for kib in re.findall(r'vram-max=(\d+)KiB', output)]
    found = [tuple(map(int, each)) for each in
             re.findall(r'^  (\d+) of (\d+) segments, (\d+) KiB, are in device memory$', output, re.MULTILINE)]
    if tuple(budgets) != BUDGETS_KIB or len(found) != len(budgets):
        fail('not three budgets', output)
    for kib, (n_resident, n_segments, resident_kib) in zip(budgets, found):
        if not (0 < n_resident < n_segments and kib / 2 <= resident_kib <= kib):
            fail(f'{resident_kib} of {kib} KiB', output)
    if len(re.findall(r'^  the time of a task: .* on CPU .* on GPU1 ', output, re.MULTILINE)) != 3:
        fail('a task ran on one device', output)
    if not re.search(r'^[1-9]\d* runs; the outputs of the last one are those of ONNX Runtime\.$', output, re.MULTILINE):
        fail('no runs', output)
    texts = [text.text for text in xml.etree.ElementTree.parse(picture).iter('{http://www.w3.org/2000/svg}text')]
    if not {'CPU', 'GPU1'} <= set(texts):
        fail(f'the picture has {texts}', output)
    os.unlink(picture)


main()
