/* Drives QEMU's teaching device: device uio|vfio ADDRESS. Reads its identity, and lets it interrupt fifty times. */
#include <stdio.h>
#include <string.h>
#include <tahti.h>

#define IDENTITY 0
#define RAISE 0x60
#define ACKNOWLEDGE 0x64

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int uio = strcmp(argv[1], "uio") == 0;
    tahti_device *device = uio ? tahti_uio_open(argv[2]) : tahti_vfio_open(argv[2], TAHTI_MSI, 0);
    uint64_t bytes = 0;
    volatile uint32_t *registers = device ? tahti_device_registers(device, 0, &bytes) : NULL;
    if (!registers || tahti_device_registers(device, 0, NULL) != registers) {
        fprintf(stderr, "%s\n", tahti_error());
        return 1;
    }
    if ((registers[IDENTITY / 4] & 0xffff) != 0x00ed || bytes < 4096 || tahti_device_fd(device) < 0)
        return 3;
    for (int i = 0; i < 50; i++) {
        if (tahti_device_enable(device) != 0)
            return 4;
        registers[RAISE / 4] = 1;
        if (tahti_device_wait(device, i % 2 ? 200000 : 0, 30000000000) != 1)
            return 5;
        registers[ACKNOWLEDGE / 4] = 1;
    }
    if (tahti_device_enable(device) != 0 || tahti_device_wait(device, 0, 20000000) != 0)
        return 6;
    tahti_device_close(device);
    if (tahti_uio_open("uio99") || tahti_vfio_open(argv[2], 7, 0))
        return 7;
    printf("%s: %s\n", argv[1], tahti_error());
    return 0;
}
