# The graphics half of an AMD Ryzen 7 7840HS, a Radeon 780M. Published: 8.3 TFLOP/s where
# instructions pair (4.1 where they do not), memory shared with the processor (89.6 GB/s): no link.
# Taken here: 60% of the unpaired peak in large products, 65 GB/s.
[device]
name = AMD Radeon 780M
source = https://www.techpowerup.com/gpu-specs/radeon-780m.c4020
task = 9us
node = 1.2us
active-watts = 30 W

[rates]
matmul.flops = 4KiB: 30, 32KiB: 200, 256KiB: 900, 2MiB: 1900, 16MiB: 2500 GFLOP/s
gemm.flops = 4KiB: 30, 32KiB: 200, 256KiB: 900, 2MiB: 1900, 16MiB: 2500 GFLOP/s
convolution.flops = 4KiB: 30, 32KiB: 180, 256KiB: 800, 2MiB: 1700, 16MiB: 2200 GFLOP/s
softmax.flops = 32KiB: 80, 2MiB: 600 GFLOP/s
selection.flops = 32KiB: 15, 2MiB: 100 GFLOP/s
others.flops = 32KiB: 150, 2MiB: 1200 GFLOP/s
transpose.bytes = 4KiB: 5, 256KiB: 30, 2MiB: 42 GB/s
others.bytes = 4KiB: 8, 256KiB: 60, 2MiB: 75, 16MiB: 65 GB/s
