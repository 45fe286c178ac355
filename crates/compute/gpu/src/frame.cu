// Compiled to frame.ptx (virtual architecture compute_70), which the driver compiles for the card: `nvcc -ptx -arch=compute_70 frame.cu`.

// Row-major matrix times vector. Each warp computes one row.
extern "C" __global__ void multiply(const float *matrix, const float *x, float *y, int rows, int columns)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float *of = matrix + (size_t)row * columns;
    float sum = 0;
    for (int column = lane; column < columns; column += 32)
        sum += of[column] * x[column];
    for (int from = 16; from > 0; from /= 2)
        sum += __shfl_down_sync(~0u, sum, from);
    if (lane == 0)
        y[row] = sum;
}

__device__ float whole(float value)
{
    for (int from = 16; from > 0; from /= 2)
        value += __shfl_down_sync(~0u, value, from);
    return value;
}

// Each warp computes one sub-aperture of 8 x 8 pixels. The slopes of a sub-aperture without light are 0.
extern "C" __global__ void centres(const unsigned short *image, int width, const int *corners, const float *dark, const float *gain,
                                   float threshold, float flux_min, float *slopes, int apertures)
{
    int aperture = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (aperture >= apertures)
        return;
    float flux = 0, x = 0, y = 0;
    for (int pixel = lane; pixel < 64; pixel += 32) {
        int line = pixel / 8, column = pixel % 8, at = corners[aperture] + line * width + column;
        float value = fmaxf((image[at] - dark[at]) * gain[at] - threshold, 0.0f);
        flux += value;
        x += value * (column - 3.5f);
        y += value * (line - 3.5f);
    }
    flux = whole(flux), x = whole(x), y = whole(y);
    if (lane == 0) {
        bool lit = flux > flux_min;
        slopes[2 * aperture] = lit ? x / flux : 0.0f;
        slopes[2 * aperture + 1] = lit ? y / flux : 0.0f;
    }
}
