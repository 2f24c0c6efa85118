# Published: 96 cores, 2.4 GHz base, 3.55 GHz with all cores busy, AVX-512 at 32 FLOP a cycle (114
# GFLOP/s a core), 384 MiB of L3, DDR5-4800 on twelve channels (460.8 GB/s). Taken here: 70% of the
# peak in large products, 380 GB/s for all cores together.
[device]
name = AMD EPYC 9654 (96 cores)
source = https://en.wikichip.org/wiki/amd/epyc/9654
servers = 96
servers-per-task = 96
share-min = 20us
task = 1.5us
node = 400ns
active-watts = 3 W

[rates]
matmul.flops = 4KiB: 25, 32KiB: 55, 256KiB: 75, 2MiB: 80 GFLOP/s
gemm.flops = 4KiB: 25, 32KiB: 55, 256KiB: 75, 2MiB: 80 GFLOP/s
convolution.flops = 4KiB: 18, 32KiB: 40, 256KiB: 50 GFLOP/s
softmax.flops = 12 GFLOP/s
activation.flops = 40 GFLOP/s
selection.flops = 2 GFLOP/s
pooling.flops = 16 GFLOP/s
others.flops = 25 GFLOP/s
transpose.bytes = 4KiB: 20, 256KiB: 12, 16MiB: 7, 128MiB: 3 GB/s
others.bytes = 4KiB: 60, 256KiB: 50, 2MiB: 30, 16MiB: 12, 128MiB: 4 GB/s
