//! Protocol data units: requests and responses without framing.

use std::fmt;

/// One of a device's four tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Single bits, read and written.
    Coils,
    /// Single bits, read only.
    Discrete,
    /// Words of 16 bits, read and written.
    Holding,
    /// Words of 16 bits, read only.
    Input,
}

impl Table {
    /// Returns whether the cells are bits. If not, they are 16-bit words.
    #[must_use]
    pub const fn is_bits(self) -> bool {
        matches!(self, Self::Coils | Self::Discrete)
    }

    /// Returns whether the table can be written.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Coils | Self::Holding)
    }

    /// Maximum number of cells that one request may read.
    #[must_use]
    pub const fn read_max(self) -> u16 {
        if self.is_bits() { 2000 } else { 125 }
    }

    /// Maximum number of cells that one request may write.
    #[must_use]
    pub const fn write_max(self) -> u16 {
        if self.is_bits() { 1968 } else { 123 }
    }

    const fn read_code(self) -> u8 {
        match self {
            Self::Coils => 1,
            Self::Discrete => 2,
            Self::Holding => 3,
            Self::Input => 4,
        }
    }
}

/// A request to a device. Addresses count from 0, as on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read cells of a table (functions 1 to 4).
    Read {
        /// The table.
        table: Table,
        /// The first cell.
        address: u16,
        /// Number of cells, 1 to [`Table::read_max`].
        count: u16,
    },
    /// Write one coil (function 5).
    WriteCoil {
        /// The coil.
        address: u16,
        /// On or off.
        on: bool,
    },
    /// Write one holding register (function 6).
    WriteRegister {
        /// The register.
        address: u16,
        /// Its value.
        value: u16,
    },
    /// Write coils in a row (function 15).
    WriteCoils {
        /// The first.
        address: u16,
        /// 1 to 1968 values.
        values: Vec<bool>,
    },
    /// Write holding registers in a row (function 16).
    WriteRegisters {
        /// The first.
        address: u16,
        /// 1 to 123 values.
        values: Vec<u16>,
    },
}

/// The response of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The bits read.
    Bits(Vec<bool>),
    /// The registers read.
    Registers(Vec<u16>),
    /// The write succeeded.
    Written,
    /// The device refused the request.
    Exception(Exception),
}

/// The exception code of a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exception(pub u8);

impl Exception {
    /// The specification's text for the code.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self.0 {
            1 => "illegal function",
            2 => "illegal data address",
            3 => "illegal data value",
            4 => "device failure",
            5 => "acknowledged, still working",
            6 => "device busy",
            8 => "memory parity error",
            10 => "gateway path unavailable",
            11 => "gateway target did not respond",
            _ => "exception that the specification does not name",
        }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exception {} ({})", self.0, self.text())
    }
}

impl fmt::Debug for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why bytes are not a request or response, or why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PduError {
    /// The number of cells is outside the limits of one request.
    #[error("{count} cells in one request; expected 1 to {max}")]
    Count {
        /// The number of cells.
        count: usize,
        /// The maximum number.
        max: u16,
    },
    /// The cells reach beyond the last address.
    #[error("{count} cells from address {address} reach beyond 65535")]
    Address {
        /// The first address.
        address: u16,
        /// The number of cells.
        count: u16,
    },
    /// A function that is not supported, or not the requested function.
    #[error("function {found}; expected {expected}")]
    Function {
        /// The received function code.
        found: u8,
        /// The expected function.
        expected: &'static str,
    },
    /// The data are too short or too long.
    #[error("{found} bytes of data; expected {expected}")]
    Length {
        /// The number of bytes received.
        found: usize,
        /// The number of bytes expected.
        expected: usize,
    },
    /// The echo of a write request differs from the request.
    #[error("the answer to a write does not repeat the request")]
    Echo,
    /// A coil value that means neither on nor off.
    #[error("coil value {0:#06x}; expected 0x0000 or 0xff00")]
    Coil(u16),
}

fn word(bytes: &[u8], at: usize) -> Result<u16, PduError> {
    let pair = bytes.get(at..at + 2).ok_or(PduError::Length { found: bytes.len(), expected: at + 2 })?;
    Ok(u16::from_be_bytes([pair[0], pair[1]]))
}

fn exactly(bytes: &[u8], expected: usize) -> Result<(), PduError> {
    if bytes.len() == expected { Ok(()) } else { Err(PduError::Length { found: bytes.len(), expected }) }
}

fn counted(count: usize, max: u16, address: u16) -> Result<u16, PduError> {
    let fits = u16::try_from(count).ok().filter(|count| (1..=max).contains(count));
    let count = fits.ok_or(PduError::Count { count, max })?;
    if u32::from(address) + u32::from(count) > 0x1_0000 {
        return Err(PduError::Address { address, count });
    }
    Ok(count)
}

fn pack(bits: &[bool]) -> impl Iterator<Item = u8> + '_ {
    bits.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)))
}

fn unpack(bytes: &[u8], count: usize) -> Vec<bool> {
    (0..count.min(bytes.len() * 8)).map(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

impl Request {
    /// The function code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Read { table, .. } => table.read_code(),
            Self::WriteCoil { .. } => 5,
            Self::WriteRegister { .. } => 6,
            Self::WriteCoils { .. } => 15,
            Self::WriteRegisters { .. } => 16,
        }
    }

    /// Checks the request against the specification's limits.
    ///
    /// # Errors
    /// The number of cells or an address is outside the limits.
    pub fn check(&self) -> Result<(), PduError> {
        match self {
            Self::Read { table, address, count } => counted((*count).into(), table.read_max(), *address).map(drop),
            Self::WriteCoils { address, values } => counted(values.len(), 1968, *address).map(drop),
            Self::WriteRegisters { address, values } => counted(values.len(), 123, *address).map(drop),
            Self::WriteCoil { .. } | Self::WriteRegister { .. } => Ok(()),
        }
    }

    /// Appends function code and data, at most 253 bytes if the request passes [`check`](Self::check).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.code());
        let mut put = |value: u16| out.extend(value.to_be_bytes());
        match self {
            Self::Read { address, count, .. } => {
                put(*address);
                put(*count);
            }
            Self::WriteCoil { address, on } => {
                put(*address);
                put(if *on { 0xff00 } else { 0 });
            }
            Self::WriteRegister { address, value } => {
                put(*address);
                put(*value);
            }
            Self::WriteCoils { address, values } => {
                put(*address);
                put(values.len() as u16);
                out.push(values.len().div_ceil(8) as u8);
                out.extend(pack(values));
            }
            Self::WriteRegisters { address, values } => {
                put(*address);
                put(values.len() as u16);
                out.push((values.len() * 2) as u8);
                out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
            }
        }
    }

    /// Decodes function code and data of a request, as a device does.
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn decode(pdu: &[u8]) -> Result<Self, PduError> {
        let (code, data) = pdu.split_first().ok_or(PduError::Length { found: 0, expected: 1 })?;
        let address = word(data, 0)?;
        let second = word(data, 2)?;
        let table = match code {
            1 => Table::Coils,
            2 => Table::Discrete,
            3 => Table::Holding,
            4 => Table::Input,
            5 => {
                exactly(data, 4)?;
                let on = match second {
                    0 => false,
                    0xff00 => true,
                    value => return Err(PduError::Coil(value)),
                };
                return Ok(Self::WriteCoil { address, on });
            }
            6 => {
                exactly(data, 4)?;
                return Ok(Self::WriteRegister { address, value: second });
            }
            15 => {
                let count = usize::from(counted(second.into(), 1968, address)?);
                exactly(data, 5 + count.div_ceil(8))?;
                return Ok(Self::WriteCoils { address, values: unpack(&data[5..], count) });
            }
            16 => {
                let count = usize::from(counted(second.into(), 123, address)?);
                exactly(data, 5 + count * 2)?;
                return Ok(Self::WriteRegisters { address, values: words(&data[5..]) });
            }
            found => return Err(PduError::Function { found: *found, expected: "1 to 6, 15 or 16" }),
        };
        exactly(data, 4)?;
        let count = counted(second.into(), table.read_max(), address)?;
        Ok(Self::Read { table, address, count })
    }
}

impl Response {
    /// Appends function code and data of the response to `request`, as a device does.
    pub fn encode(&self, request: &Request, out: &mut Vec<u8>) {
        match self {
            Self::Exception(exception) => out.extend([request.code() | 0x80, exception.0]),
            Self::Bits(bits) => {
                out.extend([request.code(), bits.len().div_ceil(8) as u8]);
                out.extend(pack(bits));
            }
            Self::Registers(values) => {
                out.extend([request.code(), (values.len() * 2) as u8]);
                out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
            }
            Self::Written => {
                let at = out.len();
                request.encode(out);
                out.truncate(at + 5);
            }
        }
    }

    /// Decodes function code and data of the response to `request`.
    ///
    /// # Errors
    /// The bytes are not a response to this request.
    pub fn decode(request: &Request, pdu: &[u8]) -> Result<Self, PduError> {
        let (code, data) = pdu.split_first().ok_or(PduError::Length { found: 0, expected: 1 })?;
        if *code == request.code() | 0x80 {
            exactly(data, 1)?;
            return Ok(Self::Exception(Exception(data[0])));
        }
        if *code != request.code() {
            return Err(PduError::Function { found: *code, expected: "the requested function" });
        }
        let Request::Read { table, count, .. } = request else {
            let mut expected = Vec::new();
            request.encode(&mut expected);
            exactly(data, 4)?;
            return if pdu == &expected[..5] { Ok(Self::Written) } else { Err(PduError::Echo) };
        };
        let count = usize::from(*count);
        let len = if table.is_bits() { count.div_ceil(8) } else { count * 2 };
        exactly(data, 1 + len)?;
        if usize::from(data[0]) != len {
            return Err(PduError::Length { found: data[0].into(), expected: len });
        }
        let cells = &data[1..];
        Ok(if table.is_bits() { Self::Bits(unpack(cells, count)) } else { Self::Registers(words(cells)) })
    }
}
