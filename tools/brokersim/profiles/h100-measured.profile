# The card of h100 as brokerd 0.1 measured it, in plain Vulkan under NVIDIA's driver 580.159.04, with clients'
# memory imported (host-import), PCIe 5.0 x16. The 49 us of a small task are mostly the way to the device and
# back. Classes above 16 MiB have the rates of the 16 MiB class.
[device]
name = NVIDIA H100 80GB HBM3, measured
source = measured
servers = 1
servers-per-task = 1
share-min = 0 ns
task = 49200 ns
node = 4117 ns
memory = 85520809984

[link]
up = 65.84 GB/s
down = 41.5 GB/s
latency = 0 ns

[rates]
matmul.flops = 4KiB:2.941, 32KiB:25.42, 256KiB:499.2, 2MiB:3917, 16MiB:10810, 128MiB:10810 GFLOP/s
matmul.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:173.3, 16MiB:401.4, 128MiB:401.4 GB/s
gemm.flops = 4KiB:3.12, 32KiB:44.88, 256KiB:539.5, 2MiB:4810, 16MiB:11850, 128MiB:11850 GFLOP/s
gemm.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:173.3, 16MiB:401.4, 128MiB:401.4 GB/s
convolution.flops = 4KiB:6.711, 32KiB:37.49, 256KiB:467.4, 2MiB:4010, 16MiB:9951, 128MiB:9951 GFLOP/s
convolution.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:173.3, 16MiB:401.4, 128MiB:401.4 GB/s
elementwise.flops = 4KiB:2.941, 32KiB:25.42, 256KiB:499.2, 2MiB:3917, 16MiB:10810, 128MiB:10810 GFLOP/s
elementwise.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:173.3, 16MiB:401.4, 128MiB:401.4 GB/s
activation.flops = 4KiB:2.941, 32KiB:25.42, 256KiB:499.2, 2MiB:3917, 16MiB:10810, 128MiB:10810 GFLOP/s
activation.bytes = 4KiB:1.667, 32KiB:12.25, 256KiB:86.34, 2MiB:466.5, 16MiB:845.3, 128MiB:845.3 GB/s
pooling.flops = 4KiB:0.2013, 32KiB:2.262, 256KiB:17.11, 2MiB:38.98, 16MiB:42.51, 128MiB:42.51 GFLOP/s
pooling.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:194.9, 16MiB:401.4, 128MiB:401.4 GB/s
reduction.flops = 4KiB:2.941, 32KiB:25.42, 256KiB:499.2, 2MiB:3917, 16MiB:10810, 128MiB:10810 GFLOP/s
reduction.bytes = 4KiB:1.228, 32KiB:11.58, 256KiB:89.66, 2MiB:217.4, 16MiB:132.4, 128MiB:132.4 GB/s
softmax.flops = 4KiB:1.035, 32KiB:9.071, 256KiB:57.9, 2MiB:282.5, 16MiB:273.5, 128MiB:273.5 GFLOP/s
softmax.bytes = 4KiB:1.656, 32KiB:14.51, 256KiB:92.64, 2MiB:452.1, 16MiB:437.5, 128MiB:401.4 GB/s
transpose.flops = 4KiB:2.941, 32KiB:25.42, 256KiB:499.2, 2MiB:3917, 16MiB:10810, 128MiB:10810 GFLOP/s
transpose.bytes = 4KiB:1.258, 32KiB:9.274, 256KiB:87.8, 2MiB:454.7, 16MiB:688.8, 128MiB:688.8 GB/s
selection.flops = 4KiB:1.103, 32KiB:4.252, 256KiB:13.73, 2MiB:53.53, 16MiB:46.81, 128MiB:46.81 GFLOP/s
selection.bytes = 4KiB:1.562, 32KiB:11.91, 256KiB:90.93, 2MiB:173.3, 16MiB:401.4, 128MiB:401.4 GB/s
