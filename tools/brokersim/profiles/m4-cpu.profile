# The processor cores of an Apple M4. Published: 4 performance cores at 4.4 GHz and 6 efficiency cores
# at 2.9 GHz, four 128-bit FMA pipes (32 FLOP a cycle) and half of that, 120 GB/s shared by all units.
# Taken here: ten equal servers of the average, 65% of the peak in large products.
[device]
name = Apple M4 (10 cores)
source = https://www.apple.com/newsroom/2024/05/apple-introduces-m4-chip/
servers = 10
servers-per-task = 10
share-min = 20us
task = 800ns
node = 200ns
active-watts = 2 W

[rates]
matmul.flops = 4KiB: 20, 32KiB: 42, 256KiB: 52, 2MiB: 55 GFLOP/s
gemm.flops = 4KiB: 20, 32KiB: 42, 256KiB: 52, 2MiB: 55 GFLOP/s
convolution.flops = 4KiB: 14, 32KiB: 30, 256KiB: 38 GFLOP/s
softmax.flops = 10 GFLOP/s
activation.flops = 30 GFLOP/s
selection.flops = 2.5 GFLOP/s
pooling.flops = 14 GFLOP/s
others.flops = 20 GFLOP/s
transpose.bytes = 4KiB: 20, 256KiB: 14, 16MiB: 6 GB/s
others.bytes = 4KiB: 60, 256KiB: 40, 2MiB: 25, 16MiB: 12, 128MiB: 9 GB/s
