/* Drives QEMU's educational device: device uio|vfio|pin ADDRESS. Reads its identity, waits for fifty of its interrupts,
 * and lets it copy memory by DMA. */
#include <stdio.h>
#include <string.h>
#include <tahti.h>

#define IDENTITY 0
#define RAISE 0x60
#define ACKNOWLEDGE 0x64
/* Registers of the device's DMA, 8 bytes each: source, destination, number of bytes, command. Bits of the command: 1
 * start, 2 from the device, 4 interrupt at the end. */
#define FROM (0x80 / 8)
#define TO (0x88 / 8)
#define COUNT (0x90 / 8)
#define COMMAND (0x98 / 8)
#define BUFFER 0x40000
/* Address of our memory as seen by the device, which has 28 address bits. */
#define OURS 0x100000
/* Less than the device's buffer: QEMU ends if the buffer is filled to its last byte. */
#define WORDS 256

static int copies(tahti_device *device, volatile uint32_t *registers) {
    volatile uint64_t *wide = (volatile uint64_t *)registers, *ours = tahti_device_memory(device, OURS, 8192);
    if (!ours || tahti_device_memory(device, OURS, 4096) || tahti_device_memory(device, 2 * OURS, 100))
        return 0;
    for (int i = 0; i < WORDS; i++)
        ours[i] = 7 * i + 1;
    for (int out = 0; out < 2; out++) {
        if (tahti_device_enable(device) != 0)
            return 0;
        wide[FROM] = out ? BUFFER : OURS;
        wide[TO] = out ? OURS + 4096 : BUFFER;
        wide[COUNT] = 8 * WORDS;
        wide[COMMAND] = out ? 1 | 2 | 4 : 1 | 4;
        if (tahti_device_wait(device, 0, 30000000000) != 1)
            return 0;
        registers[ACKNOWLEDGE / 4] = 0x100;
    }
    for (int i = 0; i < WORDS; i++)
        if (ours[512 + i] != ours[i])
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int uio = strcmp(argv[1], "uio") == 0;
    tahti_device *device = uio ? tahti_uio_open(argv[2]) : tahti_vfio_open(argv[2], strcmp(argv[1], "pin") ? TAHTI_MSI : TAHTI_PIN, 0);
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
    if (uio ? tahti_device_memory(device, OURS, 4096) != NULL : !copies(device, registers)) {
        fprintf(stderr, "%s\n", tahti_error());
        return 8;
    }
    tahti_device_close(device);
    if (tahti_uio_open("uio99") || tahti_vfio_open(argv[2], 7, 0))
        return 7;
    printf("%s: %s\n", argv[1], tahti_error());
    return 0;
}
