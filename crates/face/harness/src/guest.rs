//! A guest operating system of 512 bytes.

use std::fs;
use std::path::Path;

/// Creates a disk whose first sector is the whole system. It prints a message on its first serial line, and powers off when its power button is
/// pressed. A `deaf` guest ignores the button and loops forever.
pub fn disk(path: &Path, deaf: bool) {
    let mut sector: Vec<u8> = vec![
        0x31, 0xc0, 0x8e, 0xd8, 0xbe, 0x2d, 0x7c, // ds = 0, si = the text behind the code
        0xac, 0x84, 0xc0, 0x74, 0x06, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf5, // each byte to the serial line
        0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // PM1 enable: power button
        0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, // PM1 status: was it pressed
        0x74, 0xfa, 0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // PM1 control: power off
        0xfa, 0xf4, 0xeb, 0xfc, // halt
    ];
    if deaf {
        sector[32] = 0xeb;
    }
    sector.extend(b"the guest is \x1b[2Jup\r\n\0");
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    fs::write(path, sector).unwrap();
}
