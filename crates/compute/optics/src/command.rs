//! Datagram of a command to the mirror: one value per actuator, in nanometres of wavefront, little-endian.

const MAGIC: [u8; 4] = *b"AOC1";
/// Bytes before the actuators: magic (4), light source (1), zero (1), number of actuators (2), frame (8).
pub(crate) const HEADER: usize = 16;

/// Light source of the sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A star, seen through the atmosphere.
    #[default]
    Sky,
    /// A lamp in front of the mirror, without the atmosphere.
    Lamp,
    /// No light: the shutter is closed.
    Shut,
    /// Uniform light on all pixels.
    Flat,
}

impl Source {
    const ALL: [Self; 4] = [Self::Sky, Self::Lamp, Self::Shut, Self::Flat];
}

/// A command that borrows its datagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command<'a> {
    /// Number of the frame that it was computed from.
    pub frame: u64,
    /// Light source to select.
    pub source: Source,
    values: &'a [[u8; 4]],
}

/// A datagram that is not a command for this mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Magic or light source is invalid.
    #[error("a datagram of {0} bytes that does not begin with AOC1 and a source of light; expected a command")]
    Foreign(usize),
    /// A command for another mirror, or a truncated one.
    #[error("a command for {claimed} actuators in {found} bytes; expected {expected} actuators")]
    Actuators {
        /// Number of actuators in the header.
        claimed: usize,
        /// Bytes after the header.
        found: usize,
        /// Number of actuators of the mirror.
        expected: usize,
    },
    /// A value is infinite or not a number.
    #[error("actuator {0} is not finite; expected numbers")]
    NotFinite(usize),
    /// The buffer is too short.
    #[error("{found} bytes for a command; expected {expected}")]
    Room {
        /// Bytes of the buffer.
        found: usize,
        /// Bytes of the command.
        expected: usize,
    },
}

impl<'a> Command<'a> {
    /// Size of a command in bytes.
    #[must_use]
    pub const fn bytes(actuators: usize) -> usize {
        HEADER + 4 * actuators
    }

    /// Reads a datagram for a mirror of `actuators` actuators. Does not allocate. Accepts arbitrary bytes.
    ///
    /// # Errors
    /// The datagram is not a command for this mirror.
    pub fn read(bytes: &'a [u8], actuators: usize) -> Result<Self, CommandError> {
        let foreign = CommandError::Foreign(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<HEADER>().ok_or(foreign)?;
        let source = *Source::ALL.get(usize::from(head[4])).ok_or(foreign)?;
        if head[..4] != MAGIC {
            return Err(foreign);
        }
        let claimed = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let (values, over) = rest.as_chunks::<4>();
        if claimed != actuators || values.len() != actuators || !over.is_empty() {
            return Err(CommandError::Actuators { claimed, found: rest.len(), expected: actuators });
        }
        if let Some(wrong) = values.iter().position(|value| !f32::from_le_bytes(*value).is_finite()) {
            return Err(CommandError::NotFinite(wrong));
        }
        let frame = u64::from_le_bytes(std::array::from_fn(|byte| head[8 + byte]));
        Ok(Self { frame, source, values })
    }

    /// Values of the actuators, in nanometres.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f32> + use<'a> {
        self.values.iter().map(|value| f32::from_le_bytes(*value))
    }

    /// Writes a command and returns its size in bytes. Does not allocate.
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn write(frame: u64, source: Source, values: &[f32], to: &mut [u8]) -> Result<usize, CommandError> {
        let (found, expected) = (to.len(), Self::bytes(values.len()));
        let to = to.get_mut(..expected).ok_or(CommandError::Room { found, expected })?;
        to[..4].copy_from_slice(&MAGIC);
        to[4..6].copy_from_slice(&[source as u8, 0]);
        to[6..8].copy_from_slice(&(values.len() as u16).to_le_bytes());
        to[8..HEADER].copy_from_slice(&frame.to_le_bytes());
        for (to, value) in to[HEADER..].as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *to = value.to_le_bytes();
        }
        Ok(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_survives_a_round_trip_and_one_of_another_mirror_is_refused() {
        let mut bytes = [0; 64];
        let length = Command::write(9, Source::Lamp, &[1.0, -2.5, 3e3], &mut bytes).unwrap();
        let command = Command::read(&bytes[..length], 3).unwrap();
        assert_eq!((command.frame, command.source), (9, Source::Lamp));
        assert_eq!(command.values().collect::<Vec<_>>(), [1.0, -2.5, 3e3]);
        let refused = |bytes: &[u8], actuators| Command::read(bytes, actuators).unwrap_err().to_string();
        assert_eq!(refused(&bytes[..length], 4), "a command for 3 actuators in 12 bytes; expected 4 actuators");
        assert_eq!(refused(&bytes[..length - 1], 3), "a command for 3 actuators in 11 bytes; expected 3 actuators");
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(refused(&bytes[..length], 3), "actuator 1 is not finite; expected numbers");
        bytes[4] = 4;
        assert!(refused(&bytes[..length], 3).contains("expected a command"));
        assert!(
            Command::write(9, Source::Sky, &[0.0; 20], &mut bytes).unwrap_err().to_string().contains("expected 96")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), begun in any::<bool>()) {
            let mut bytes = bytes;
            if begun && bytes.len() > 8 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] %= 5;
            }
            let told = bytes.len().saturating_sub(HEADER) / 4;
            if let Ok(command) = Command::read(&bytes, told) {
                prop_assert_eq!(command.values().len(), told);
            }
        }
    }
}
