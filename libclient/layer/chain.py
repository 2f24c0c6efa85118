#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the sizes of the structures that may extend VkDeviceCreateInfo.

    chain.py VK_XML OUTPUT

VK_XML is Vulkan's registry, of the version of the headers.
"""
import sys
from xml.etree import ElementTree


def main():
    registry = ElementTree.parse(sys.argv[1])
    lines = []
    for struct in registry.iterfind("types/type[@category='struct']"):
        kind = struct.find('member').get('values') if struct.find('member') is not None else None
        if kind and 'VkDeviceCreateInfo' in struct.get('structextends', '').split(','):
            lines.append((kind, struct.get('name')))
    protected = {kind.get('name') for extension in registry.iterfind('extensions/extension')
                 if extension.get('platform') or extension.get('supported') == 'disabled'
                 for kind in extension.iterfind('require/type')}
    with open(sys.argv[2], 'w') as out:
        out.write('/* Written by chain.py: the structures that extend VkDeviceCreateInfo. */\n#define CHAIN_STRUCTS(X) \\\n')
        out.write(' \\\n'.join(f'\tX({kind}, {name})' for kind, name in lines if name not in protected) + '\n')


main()
