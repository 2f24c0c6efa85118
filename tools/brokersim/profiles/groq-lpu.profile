# Groq's first LPU. Published: 188 TFLOP/s in half precision, 750 TOPS in int8, 230 MB of memory, all of it on
# the chip at 80 TB/s, PCIe 4.0 x16. Taken here: float at a quarter of half's rate; a plan's bindings and
# constants must fit 220 MiB, or the plan runs on the CPU.
[device]
name = Groq LPU (GroqChip 1)
source = https://groq.com/wp-content/uploads/2022/10/GroqChip-Processor-Product-Brief.pdf
task = 6us
node = 500ns
memory = 220MiB
active-watts = 200 W

[link]
up = 24 GB/s
down = 24 GB/s
latency = 4us

[rates]
matmul.flops = 4KiB: 500, 32KiB: 4000, 256KiB: 18000, 2MiB: 38000, 16MiB: 44000 GFLOP/s
gemm.flops = 4KiB: 500, 32KiB: 4000, 256KiB: 18000, 2MiB: 38000, 16MiB: 44000 GFLOP/s
convolution.flops = 4KiB: 400, 32KiB: 3000, 256KiB: 12000, 2MiB: 26000, 16MiB: 30000 GFLOP/s
selection.flops = 50 GFLOP/s
others.flops = 32KiB: 2000, 2MiB: 8000 GFLOP/s
others.bytes = 4KiB: 200, 256KiB: 6000, 2MiB: 20000, 16MiB: 40000 GB/s
