//! Packets of a camera, with or without Ethernet headers; commands of a loop; matrix files; image streams in shared
//! memory. Nothing panics, and written packets are read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use optics::gvsp::Packet;
use optics::{Assembly, Command, ethernet, matrix};
use ring::image::Head;

fuzz_target!(|input: (u16, Vec<Vec<u8>>)| {
    let (port, packets) = input;
    let mut assembly = Assembly::new(8, 2);
    for bytes in &packets {
        let datagram = ethernet::datagram(bytes, port).unwrap_or(bytes);
        if let Ok(packet) = Packet::read(datagram) {
            let mut again = vec![0; datagram.len() + 64];
            let length = packet.write(&mut again).expect("room for more than was read");
            assert_eq!(Packet::read(&again[..length]), Ok(packet));
            assembly.take(packet.block, port.into());
        }
        let _ = Command::read(bytes, 4);
        let _ = matrix::read(bytes, 2, 2);
        if let Ok(head) = Head::read(bytes) {
            let _ = head.bytes();
            assert!(head.is_of_the_same_image(&head));
        }
    }
    let _ = assembly.end();
});
