//! Contents of registers as the EPICS modbus module names them: numbers and texts.

use super::data::{DataType, NoDataType};
use std::fmt;
use std::str::FromStr;

/// Placement of characters in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Characters {
    /// One character per register, in the high byte.
    High,
    /// One character per register, in the low byte.
    Low,
    /// Two characters per register, the high byte first.
    HighLow,
    /// Two characters per register, the low byte first.
    LowHigh,
}

const CHARACTERS: [(&str, Characters); 4] = [
    ("HIGH", Characters::High),
    ("LOW", Characters::Low),
    ("HIGH_LOW", Characters::HighLow),
    ("LOW_HIGH", Characters::LowHigh),
];

/// Contents of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Numbers.
    Numbers(DataType),
    /// A text.
    Text {
        /// Placement of its characters.
        characters: Characters,
        /// Whether a written text ends with a zero byte.
        zero: bool,
    },
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(data) => data.fmt(f),
            Self::Text { characters, zero } => {
                let name = CHARACTERS.iter().find(|(_, known)| known == characters).map_or("", |(name, _)| name);
                write!(f, "{}STRING_{name}", if *zero { "Z" } else { "" })
            }
        }
    }
}

impl FromStr for Contents {
    type Err = NoDataType;

    /// A name of the modbus module, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, NoDataType> {
        let upper = text.to_ascii_uppercase();
        let (zero, rest) = match upper.strip_prefix("ZSTRING_") {
            Some(rest) => (true, Some(rest)),
            None => (false, upper.strip_prefix("STRING_")),
        };
        let found = rest.and_then(|rest| CHARACTERS.iter().find(|(name, _)| *name == rest));
        match found {
            Some((_, characters)) => Ok(Self::Text { characters: *characters, zero }),
            None => upper.parse().map(Self::Numbers).map_err(|_| NoDataType::new(text)),
        }
    }
}

impl Contents {
    /// Contents by the number that the modbus module uses since its release 3-1.
    #[must_use]
    pub fn numbered(number: usize) -> Option<Self> {
        const PLAIN: [&str; 5] = ["INT16", "INT16SM", "BCD_UNSIGNED", "BCD_SIGNED", "UINT16"];
        const WIDE: [&str; 6] = ["INT32", "UINT32", "INT64", "UINT64", "FLOAT32", "FLOAT64"];
        const ORDERS: [&str; 4] = ["LE", "LE_BS", "BE", "BE_BS"];
        let name = match number {
            0..5 => PLAIN[number].to_owned(),
            5..29 => format!("{}_{}", WIDE[(number - 5) / 4], ORDERS[(number - 5) % 4]),
            29..37 => format!("{}STRING_{}", if number < 33 { "" } else { "Z" }, CHARACTERS[(number - 29) % 4].0),
            _ => return None,
        };
        name.parse().ok()
    }
}

impl Characters {
    /// Number of characters in one register.
    #[must_use]
    pub const fn per_register(self) -> usize {
        match self {
            Self::High | Self::Low => 1,
            Self::HighLow | Self::LowHigh => 2,
        }
    }

    /// The text in registers, up to its first zero byte and at most `max` bytes.
    #[must_use]
    pub fn decode(self, registers: &[u16], max: usize) -> Vec<u8> {
        let bytes = registers.iter().flat_map(|register| {
            let [high, low] = register.to_be_bytes();
            let (first, second) = match self {
                Self::High => (high, None),
                Self::Low => (low, None),
                Self::HighLow => (high, Some(low)),
                Self::LowHigh => (low, Some(high)),
            };
            [Some(first), second].into_iter().flatten()
        });
        bytes.take_while(|byte| *byte != 0).take(max).collect()
    }

    /// The registers of a text. A last register that is not full has a zero byte.
    #[must_use]
    pub fn encode(self, text: &[u8]) -> Vec<u16> {
        let pair = |pair: &[u8]| (pair[0], pair.get(1).copied().unwrap_or_default());
        text.chunks(self.per_register())
            .map(|chunk| match (self, pair(chunk)) {
                (Self::High, (byte, _)) => u16::from_be_bytes([byte, 0]),
                (Self::Low, (byte, _)) => byte.into(),
                (Self::HighLow, (first, second)) => u16::from_be_bytes([first, second]),
                (Self::LowHigh, (first, second)) => u16::from_be_bytes([second, first]),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and numbers of drvModbusAsyn.h, in its order.
    #[test]
    fn each_number_of_the_modbus_module_has_its_name() {
        let name = |number| Contents::numbered(number).unwrap().to_string();
        let some = [0, 4, 5, 6, 8, 9, 21, 24, 28, 29, 32, 33, 36].map(name);
        let expected = [
            "INT16",
            "UINT16",
            "INT32_LE",
            "INT32_LE_BS",
            "INT32_BE_BS",
            "UINT32_LE",
            "FLOAT32_LE",
            "FLOAT32_BE_BS",
            "FLOAT64_BE_BS",
            "STRING_HIGH",
            "STRING_LOW_HIGH",
            "ZSTRING_HIGH",
            "ZSTRING_LOW_HIGH",
        ];
        assert_eq!(some, expected);
        assert_eq!(Contents::numbered(37), None);
        for number in 0..37 {
            assert_eq!(name(number).to_lowercase().parse(), Ok(Contents::numbered(number).unwrap()));
        }
        assert!("STRING".parse::<Contents>().unwrap_err().to_string().contains("\"STRING\""));
    }

    #[test]
    fn texts_fill_registers_in_each_placement_and_end_at_a_zero_byte() {
        let all = [Characters::High, Characters::Low, Characters::HighLow, Characters::LowHigh];
        let encoded = all.map(|characters| characters.encode(b"abc"));
        let expected =
            [vec![0x6100, 0x6200, 0x6300], vec![0x61, 0x62, 0x63], vec![0x6162, 0x6300], vec![0x6261, 0x0063]];
        assert_eq!(encoded, expected);
        for (characters, registers) in all.into_iter().zip(&encoded) {
            assert_eq!(characters.decode(registers, 9), b"abc");
            assert_eq!(characters.decode(registers, 2), b"ab");
        }
        assert_eq!(Characters::HighLow.decode(&[0x6100, 0x6263], 9), b"a");
    }
}
