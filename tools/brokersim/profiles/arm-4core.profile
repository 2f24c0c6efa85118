# Four Cortex-A72 cores of a Raspberry Pi 4 (BCM2711). Published: 1.5 GHz, one 128-bit FMA pipe (8 FLOP
# a cycle: 12 GFLOP/s a core), 1 MiB of L2, LPDDR4-3200 on 32 bits (12.8 GB/s). Taken here: 65% of the
# peak in large products, 5 GB/s for all cores together.
[device]
name = Broadcom BCM2711 (4 Cortex-A72)
source = https://www.raspberrypi.com/documentation/computers/processors.html
servers = 4
servers-per-task = 4
share-min = 60us
task = 3us
node = 1us
active-watts = 1 W

[rates]
matmul.flops = 4KiB: 3, 32KiB: 6, 256KiB: 7.5 GFLOP/s
gemm.flops = 4KiB: 3, 32KiB: 6, 256KiB: 7.5 GFLOP/s
convolution.flops = 4KiB: 2, 32KiB: 4, 256KiB: 5 GFLOP/s
softmax.flops = 0.8 GFLOP/s
activation.flops = 3 GFLOP/s
selection.flops = 0.4 GFLOP/s
pooling.flops = 1.5 GFLOP/s
others.flops = 2 GFLOP/s
transpose.bytes = 4KiB: 2, 256KiB: 1.2, 2MiB: 0.6 GB/s
others.bytes = 4KiB: 8, 256KiB: 5, 2MiB: 1.5, 16MiB: 1.2 GB/s
