# The processor's half of an AMD Ryzen 7 7840HS. Published: 8 Zen 4 cores, 3.8 GHz base, about 4.2 GHz
# with all cores busy within 54 W, 32 FLOP a cycle (134 GFLOP/s a core), 16 MiB of L3, DDR5-5600 on two
# channels (89.6 GB/s), which both halves share. Taken here: 60% of the peak, 60 GB/s.
[device]
name = AMD Ryzen 7 7840HS (8 cores)
source = https://www.techpowerup.com/cpu-specs/ryzen-7-7840hs.c2955
servers = 8
servers-per-task = 8
share-min = 20us
task = 1us
node = 250ns
active-watts = 4.5 W

[rates]
matmul.flops = 4KiB: 28, 32KiB: 60, 256KiB: 75, 2MiB: 80 GFLOP/s
gemm.flops = 4KiB: 28, 32KiB: 60, 256KiB: 75, 2MiB: 80 GFLOP/s
convolution.flops = 4KiB: 20, 32KiB: 45, 256KiB: 55 GFLOP/s
softmax.flops = 14 GFLOP/s
activation.flops = 45 GFLOP/s
selection.flops = 2.5 GFLOP/s
pooling.flops = 18 GFLOP/s
others.flops = 28 GFLOP/s
transpose.bytes = 4KiB: 24, 256KiB: 14, 2MiB: 9, 16MiB: 5, 128MiB: 4 GB/s
others.bytes = 4KiB: 70, 256KiB: 50, 2MiB: 30, 16MiB: 10, 128MiB: 7.5 GB/s
