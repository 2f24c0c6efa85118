# The machine with the card of h100-measured, as brokerd 0.1 measured it: a virtual machine with 16 processors
# with AVX-512. Rates are those of one processor while the 15 others work.
[device]
name = Intel Xeon, 16 processors, measured
source = measured
servers = 16
servers-per-task = 16
share-min = 60000 ns
task = 21.62 ns
node = 10.38 ns
memory = 0

[rates]
matmul.flops = 4KiB:34.57, 32KiB:56.57, 256KiB:67.71, 2MiB:72.07, 16MiB:81.25, 128MiB:81.25 GFLOP/s
matmul.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
gemm.flops = 4KiB:29.26, 32KiB:53.62, 256KiB:66.23, 2MiB:76.49, 16MiB:71.39, 128MiB:71.39 GFLOP/s
gemm.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
convolution.flops = 4KiB:3.576, 32KiB:12.29, 256KiB:28.11, 2MiB:52.51, 16MiB:65.65, 128MiB:65.65 GFLOP/s
convolution.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
elementwise.flops = 4KiB:34.57, 32KiB:56.57, 256KiB:67.71, 2MiB:72.07, 16MiB:81.25, 128MiB:81.25 GFLOP/s
elementwise.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
activation.flops = 4KiB:34.57, 32KiB:56.57, 256KiB:67.71, 2MiB:72.07, 16MiB:81.25, 128MiB:81.25 GFLOP/s
activation.bytes = 4KiB:91.02, 32KiB:87.61, 256KiB:67.32, 2MiB:13.46, 16MiB:13.87, 128MiB:13.87 GB/s
pooling.flops = 4KiB:0.5967, 32KiB:2.093, 256KiB:2.727, 2MiB:2.324, 16MiB:3.671, 128MiB:3.671 GFLOP/s
pooling.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
reduction.flops = 4KiB:34.57, 32KiB:56.57, 256KiB:67.71, 2MiB:72.07, 16MiB:81.25, 128MiB:81.25 GFLOP/s
reduction.bytes = 4KiB:12.8, 32KiB:18.39, 256KiB:19.46, 2MiB:10.69, 16MiB:10.61, 128MiB:10.61 GB/s
softmax.flops = 4KiB:4.876, 32KiB:4.976, 256KiB:4.948, 2MiB:4.113, 16MiB:4.101, 128MiB:4.101 GFLOP/s
softmax.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
transpose.flops = 4KiB:34.57, 32KiB:56.57, 256KiB:67.71, 2MiB:72.07, 16MiB:81.25, 128MiB:81.25 GFLOP/s
transpose.bytes = 4KiB:21.92, 32KiB:25.78, 256KiB:22.31, 2MiB:8.108, 16MiB:6.456, 128MiB:6.456 GB/s
selection.flops = 4KiB:1.229, 32KiB:1.251, 256KiB:1.079, 2MiB:0.7365, 16MiB:0.8931, 128MiB:0.8931 GFLOP/s
selection.bytes = 4KiB:124, 32KiB:108.1, 256KiB:84.7, 2MiB:12.33, 16MiB:18.48, 128MiB:18.48 GB/s
