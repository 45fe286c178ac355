//! Boot sectors: guests of 512 bytes for a PC's BIOS. Each prints a line on its first serial port, then idles or computes.

use crate::Failed;
use std::path::Path;

/// Load address of a BIOS.
const ORIGIN: u16 = 0x7c00;
/// Size of the disk image, the minimum of QEMU.
const DISK_BYTES: usize = 1 << 20;

/// Sleeps until its power button is pressed, and powers off.
pub(crate) const IDLE: &[u8] = &[
    0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // PM1 enable: power button
    0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, // PM1 status: was it pressed
    0x74, 0xfa, 0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // PM1 control: power off
    0xfa, 0xf4, 0xeb, 0xfc, // halt
];

/// Computes for a share of the time, in percent, until its power button is pressed: it computes for that share of each 55 ms of the timer and
/// sleeps for the rest.
pub(crate) fn busy(percent: u32) -> Vec<u8> {
    let asleep = u16::try_from(0x1_0000 * (100 - percent.min(100)) / 100).unwrap_or(u16::MAX);
    let mut code = vec![
        0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, // a stack, and interrupts
        0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // PM1 enable: power button
        0xb9, 0x00, 0x10, 0xe2, 0xfe, // 4096 turns
        0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, 0x75, 0x15, // PM1 status: it was pressed
        0xb0, 0x00, 0xe6, 0x43, 0xe4, 0x40, 0x88, 0xc3, 0xe4, 0x40, 0x88, 0xc7, // bx = the timer's count
        0x81, 0xfb,
    ];
    code.extend(asleep.to_le_bytes());
    code.extend([
        0x73, 0xe0, // above that: again
        0xf4, 0xeb, 0xdd, // else after the next interrupt
        0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xfa, 0xf4, // PM1 control: power off
    ]);
    code
}

/// Writes a disk image whose first sector is the whole system.
pub(crate) fn write(path: &Path, line: &str, then: &[u8]) -> Result<(), Failed> {
    std::fs::write(path, image(line, then)).map_err(Failed::file(path))
}

fn image(line: &str, then: &[u8]) -> Vec<u8> {
    let mut image: Vec<u8> = vec![
        0x31, 0xc0, 0x8e, 0xd8, 0xbe, 0x00, 0x00, // ds = 0, si = the text behind the code
        0xac, 0x84, 0xc0, 0x74, 0x06, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf5, // each byte to the serial port
    ];
    image.extend(then);
    let text = ORIGIN + image.len() as u16;
    image[5..7].copy_from_slice(&text.to_le_bytes());
    image.extend(line.bytes().chain(*b"\r\n\0"));
    image.resize(510, 0);
    image.extend([0x55, 0xaa]);
    image.resize(DISK_BYTES, 0);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_at_the_address_in_the_code_and_the_sector_is_bootable() {
        for then in [IDLE.to_vec(), busy(70), busy(100)] {
            let image = image("up", &then);
            let at = usize::from(u16::from_le_bytes([image[5], image[6]]) - ORIGIN);
            assert_eq!(&image[at..at + 5], b"up\r\n\0");
            assert_eq!((&image[510..512], image.len()), (&[0x55, 0xaa][..], DISK_BYTES));
        }
    }

    #[test]
    fn the_share_is_the_part_of_the_timer_count_above_the_limit() {
        let limit = |percent| u16::from_le_bytes([busy(percent)[41], busy(percent)[42]]);
        assert_eq!((limit(100), limit(70), limit(0)), (0, 19_660, u16::MAX));
    }
}
