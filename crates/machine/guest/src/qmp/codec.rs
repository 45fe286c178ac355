//! Decodes QMP lines. Pure, bounded, and never panics, whatever the input.

use serde_json::Value;

/// Maximum line length. QEMU's longest answers to the commands used here have a few kilobytes.
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// Texts from QEMU are cut to this length when they are stored.
const TEXT_CHARS_MAX: usize = 200;

/// The reason why QEMU refuses a command, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A message from QEMU.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The first line of a connection.
    Greeting,
    /// The answer to a command.
    Answer {
        /// The command's number.
        id: Option<u64>,
        /// The result.
        result: Result<Value, Refusal>,
    },
    /// An event with its name.
    Event(String),
}

/// Input that is not QMP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The line is too long.
    #[error("a line has more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The line is not a QMP message.
    #[error("a line is no message of QMP: {0:?}")]
    Line(String),
}

/// Decoder from bytes to messages.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    /// No line end before this position.
    looked: usize,
}

impl Decoder {
    /// Adds bytes. If the caller takes all messages each time, the buffer holds the bytes of one call and at most one
    /// line before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes arrive. After an error the rest of the input has no meaning.
    ///
    /// # Errors
    /// The input is not QMP.
    pub fn next_message(&mut self) -> Result<Option<Message>, Malformed> {
        loop {
            let Some(end) = self.held[self.looked..].iter().position(|byte| *byte == b'\n') else {
                self.looked = self.held.len();
                return if self.looked > LINE_BYTES_MAX { Err(Malformed::TooLong) } else { Ok(None) };
            };
            let end = self.looked + end;
            let line: Vec<u8> = self.held.drain(..=end).collect();
            self.looked = 0;
            if line.len() > LINE_BYTES_MAX {
                return Err(Malformed::TooLong);
            }
            let line = line.trim_ascii();
            if !line.is_empty() {
                return message(line).map(Some);
            }
        }
    }
}

fn message(line: &[u8]) -> Result<Message, Malformed> {
    let malformed = || Malformed::Line(cut(&String::from_utf8_lossy(line)));
    // serde_json limits the nesting depth.
    let mut value: Value = serde_json::from_slice(line).map_err(|_| malformed())?;
    let id = value["id"].as_u64();
    if value["QMP"].is_object() {
        return Ok(Message::Greeting);
    }
    if let Some(name) = value["event"].as_str() {
        return Ok(Message::Event(cut(name)));
    }
    if value["error"].is_object() {
        let text = value["error"]["desc"].as_str().unwrap_or("no reason given");
        return Ok(Message::Answer { id, result: Err(Refusal(cut(text))) });
    }
    match value.as_object_mut().and_then(|object| object.remove("return")) {
        Some(result) => Ok(Message::Answer { id, result: Ok(result) }),
        None => Err(malformed()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// A command as a line.
#[must_use]
pub fn command(id: u64, name: &str, arguments: Option<&Value>) -> String {
    match arguments {
        Some(arguments) => format!("{}\n", serde_json::json!({ "execute": name, "arguments": arguments, "id": id })),
        None => format!("{}\n", serde_json::json!({ "execute": name, "id": id })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAID: &str = "{\"QMP\":{\"version\":{}}}\r\n{\"return\":{},\"id\":1}\r\n\r\n{\"event\":\"STOP\",\"data\":{}}\n\
                        {\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"},\"id\":2}\n";

    fn all(pieces: &[&[u8]]) -> Vec<Result<Message, Malformed>> {
        let (mut decoder, mut out) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece);
            while let Some(next) = decoder.next_message().transpose() {
                let is_end = next.is_err();
                out.push(next);
                if is_end {
                    return out;
                }
            }
        }
        out
    }

    #[test]
    fn lines_become_messages() {
        let answer = |id, result| Message::Answer { id: Some(id), result };
        let expected = [
            Message::Greeting,
            answer(1, Ok(serde_json::json!({}))),
            Message::Event("STOP".into()),
            answer(2, Err(Refusal("no".into()))),
        ];
        assert_eq!(all(&[SAID.as_bytes()]), expected.map(Ok));
    }

    #[test]
    fn a_line_that_is_not_a_qmp_message_is_refused_and_shown_truncated() {
        for line in ["HTTP/1.1 400\n", "[]\n", "{}\n", "3\n", "{\"return\"\n", "\u{0}\n"] {
            assert!(matches!(all(&[line.as_bytes()])[..], [Err(Malformed::Line(_))]), "{line:?}");
        }
        let Err(Malformed::Line(shown)) = &all(&[&[b'x'; 9999], b"\n"])[0] else { panic!() };
        assert_eq!(shown.len(), TEXT_CHARS_MAX);
        let deep = "[".repeat(100_000) + "\n";
        assert!(matches!(all(&[deep.as_bytes()])[..], [Err(Malformed::Line(_))]));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let chunk = vec![b' '; 4096];
        let pieces = vec![&chunk[..]; LINE_BYTES_MAX / 4096 + 1];
        assert_eq!(all(&pieces), [Err(Malformed::TooLong)]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(pieces in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            all(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn messages_do_not_depend_on_the_sizes_of_pieces(at in 0..SAID.len(), next in 0..SAID.len()) {
            let (first, second) = (at.min(next), at.max(next));
            let bytes = SAID.as_bytes();
            prop_assert_eq!(all(&[&bytes[..first], &bytes[first..second], &bytes[second..]]), all(&[bytes]));
        }
    }
}
