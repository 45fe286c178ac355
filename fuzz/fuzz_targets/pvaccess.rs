//! PVAccess: arbitrary bytes as types, values, sets of fields and streams of messages. Nothing panics, and a decoded value
//! encodes to bytes that decode to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pva::codec::{Order, Reader, TypeTable, Value, Writer};
use pva::wire::{self, Inbox, Side};

fn decode(bytes: &[u8], order: Order) {
    let mut table = TypeTable::default();
    let mut reader = Reader::new(bytes, order);
    while let Ok(ty) = reader.ty(&mut table) {
        let Ok(mask) = reader.mask() else { return };
        let mut value = Value::zero(&ty);
        if reader.fields_of(&ty, &mask, &mut value, &mut table).is_err() {
            return;
        }
        let mut out = Writer::new(order);
        out.ty(&ty);
        out.value(&value);
        let mut again = Reader::new(&out.bytes, order);
        let read = again.ty(&mut TypeTable::default());
        assert_eq!(read.as_ref(), Ok(&ty));
        // A number that is not a number differs from itself, so bytes are compared. A value may decode only with more
        // bytes, because fields without bytes are limited.
        if let Ok(value) = again.value(&ty) {
            let mut second = Writer::new(order);
            second.ty(&ty);
            second.value(&value);
            assert_eq!(second.bytes, out.bytes);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    for order in [Order::Little, Order::Big] {
        decode(bytes, order);
        let _ = Reader::new(bytes, order).status();
    }
    let mut inbox = Inbox::new(Side::Client, 256);
    for piece in bytes.chunks(61) {
        inbox.feed(piece);
        while let Ok(Some(message)) = inbox.next_message() {
            assert!(message.payload.len() <= 256);
        }
    }
    let _ = wire::datagram(bytes, None).count();
});
