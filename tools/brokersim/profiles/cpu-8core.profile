# An AMD Ryzen 7 1700, the 8-core processor of the RX 580's year. Published: 8 cores, 3.0 GHz base,
# 3.2 GHz with all cores busy, two 128-bit FMA pipes (16 FLOP a cycle: 51 GFLOP/s a core), 512 KiB
# of L2 a core, 16 MiB of L3, DDR4-2667 on two channels (42.7 GB/s). Taken here: 70% of the peak in
# large products, 45 to 60% in the others; 36 GB/s of memory bandwidth for all cores together.
[device]
name = AMD Ryzen 7 1700 (8 cores)
source = https://en.wikichip.org/wiki/amd/ryzen_7/1700
servers = 8
servers-per-task = 8
share-min = 20us
task = 1us
node = 300ns
active-watts = 7 W

[rates]
matmul.flops = 4KiB: 12, 32KiB: 26, 256KiB: 34, 2MiB: 36 GFLOP/s
gemm.flops = 4KiB: 12, 32KiB: 26, 256KiB: 34, 2MiB: 36 GFLOP/s
convolution.flops = 4KiB: 8, 32KiB: 18, 256KiB: 24 GFLOP/s
softmax.flops = 6 GFLOP/s
activation.flops = 20 GFLOP/s
selection.flops = 1.5 GFLOP/s
pooling.flops = 8 GFLOP/s
others.flops = 12 GFLOP/s
transpose.bytes = 4KiB: 12, 256KiB: 8, 2MiB: 6, 128MiB: 2.5 GB/s
others.bytes = 4KiB: 40, 256KiB: 30, 2MiB: 18, 16MiB: 7, 128MiB: 4.5 GB/s
