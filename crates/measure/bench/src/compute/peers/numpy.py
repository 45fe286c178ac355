"""numpy's product of a matrix and a vector, for comparison: the same protocol as openblas.c."""
import sys
import time

try:
    import numpy
except ImportError as missing:
    sys.exit(print(missing) or 1)

print("ready", numpy.__version__, flush=True)
made = None
for line in sys.stdin:
    layout, size, warm, times = line.split()
    size, warm, times = int(size), int(warm), int(times)
    if made != size:
        rows, columns = numpy.ogrid[:size, :size]
        by_rows = ((rows * 31 + columns * 17) % 101).astype(numpy.float32) / numpy.float32(50) - numpy.float32(1)
        matrices = {"r": by_rows, "c": numpy.asfortranarray(by_rows)}
        x, y = numpy.full(size, 0.5, numpy.float32), numpy.zeros(size, numpy.float32)
        made = size
    a = matrices[layout]
    for _ in range(warm):
        numpy.dot(a, x, out=y)
    begin = time.perf_counter_ns()
    for _ in range(times):
        numpy.dot(a, x, out=y)
    print(time.perf_counter_ns() - begin, float(y.sum(dtype=numpy.float64)), flush=True)
