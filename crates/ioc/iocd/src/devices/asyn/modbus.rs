//! Records on a port of `drvModbusAsynConfigure`.
//!
//! The address is an offset in the block. The parameter selects the contents of the registers (`INT16`, `FLOAT32_BE`,
//! `STRING_HIGH=20` …) or a value of the port itself (`READ_OK` …). Inputs of a block that is read take the cells of its
//! last reading. With SCAN `I/O Intr` they are processed after each reading; digital values, whole arrays and texts only
//! after a change. Outputs write at once. Their initial value is read if the port has a poll time.
//!
//! Alarms, INVALID: TIMEOUT and COMM as for the DTYPs of Modbus; READ before the first reading; READ or WRITE if the device
//! refuses, or if a number does not fit.

use super::Interface;
use super::block::{Access, BINS, Block, Io, Subscriber, status};
use super::link::AsynLink;
use super::octet::text_of;
use crate::devices::modbus::number_of;
use crate::devices::{Interrupt, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, DurNs, Scalar, Stamp, Status, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::modbus::{Contents, DataType, Number, Request, Response, Step};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Value that a record reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameter {
    /// Cells, with the maximum length of a text.
    Data(Contents, Option<usize>),
    /// Reads the block when written.
    Read,
    PollDelay,
    ReadOk,
    WriteOk,
    IoErrors,
    LastIoTime,
    MaxIoTime,
    EnableHistogram,
    ReadHistogram,
    HistogramBinTime,
    HistogramTimeAxis,
}

const PARAMETERS: [(&str, Parameter); 11] = [
    ("MODBUS_READ", Parameter::Read),
    ("POLL_DELAY", Parameter::PollDelay),
    ("READ_OK", Parameter::ReadOk),
    ("WRITE_OK", Parameter::WriteOk),
    ("IO_ERRORS", Parameter::IoErrors),
    ("LAST_IO_TIME", Parameter::LastIoTime),
    ("MAX_IO_TIME", Parameter::MaxIoTime),
    ("ENABLE_HISTOGRAM", Parameter::EnableHistogram),
    ("READ_HISTOGRAM", Parameter::ReadHistogram),
    ("HISTOGRAM_BIN_TIME", Parameter::HistogramBinTime),
    ("HISTOGRAM_TIME_AXIS", Parameter::HistogramTimeAxis),
];

/// Whether a parameter is one of this driver.
pub(super) fn is_parameter(info: &str) -> bool {
    Parameter::parse(info, Contents::Numbers(DataType::Uint16)).is_ok()
}

impl Parameter {
    fn parse(info: &str, default: Contents) -> Result<Self, AttachError> {
        let (name, length) = info.split_once('=').map_or((info, None), |(name, length)| (name, Some(length)));
        let (name, length) = (name.trim(), length.map(str::trim));
        let bad = |expected: &str| AttachError::Unexpected {
            found: format!("parameter \"{info}\""),
            expected: expected.to_owned(),
        };
        let length = length.map(|text| text.parse::<usize>().map_err(|_| bad("NAME=LENGTH"))).transpose()?;
        if name.is_empty() || name.eq_ignore_ascii_case("MODBUS_DATA") {
            return Ok(Self::Data(default, length));
        }
        if let Some((_, found)) = PARAMETERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Ok(*found);
        }
        let expected = || {
            let names: Vec<_> = PARAMETERS.iter().map(|(name, _)| *name).collect();
            format!("MODBUS_DATA, a data type such as INT16, FLOAT32_BE or STRING_HIGH, or {}", names.join(" "))
        };
        name.parse().map(|contents| Self::Data(contents, length)).map_err(|_| bad(&expected()))
    }
}

/// The cells of a record.
struct Target {
    interface: Interface,
    parameter: Parameter,
    /// Offset in the block, or the address itself if the block has none.
    offset: u16,
    /// Mask of a digital value.
    mask: u32,
    record_type: String,
    /// Maximum number of elements.
    count: usize,
}

/// Attaches a record to a block.
pub(super) fn attach(
    interface: Interface,
    output: bool,
    link: &AsynLink,
    place: &Attaching<'_>,
    block: &Arc<Block>,
) -> Result<Served, AttachError> {
    let parameter = Parameter::parse(&link.info, block.spec.contents)?;
    let target = Target {
        interface,
        parameter,
        offset: 0,
        mask: link.mask.unwrap_or_default() as u32,
        record_type: place.record_type.to_owned(),
        count: place.count,
    };
    let target = target.fit(output, link.address, block)?;
    let raw_range = match (interface, parameter) {
        (Interface::Int32, Parameter::Data(contents, _)) => range(link.mask, contents),
        _ => None,
    };
    let target = Arc::new(target);
    let watch = Arc::new(Watching { target: target.clone(), interrupt: Mutex::default() });
    let device = ModbusRecord { block: block.clone(), target, output, watch };
    let interrupts = !output && block.spec.start.is_some();
    Ok(Served { device: Some(Box::new(device)), interrupts, raw_range, writes: output, ..Served::default() })
}

/// Lowest and highest raw value, from the number of bits (negative: with sign) or the data type.
fn range(bits: Option<i64>, contents: Contents) -> Option<(f64, f64)> {
    let signed = |bits: i64| Some((-(2f64.powi(bits as i32 - 1)), 2f64.powi(bits as i32 - 1) - 1.0));
    match (bits.unwrap_or_default(), contents) {
        (bits @ 1..=32, _) => Some((0.0, 2f64.powi(bits as i32) - 1.0)),
        (bits @ -32..=-1, _) => signed(-bits),
        (_, Contents::Numbers(DataType::Uint16)) => Some((0.0, 65_535.0)),
        (_, Contents::Numbers(DataType::Int16 | DataType::Int16Sm)) => signed(16),
        (_, Contents::Numbers(DataType::BcdUnsigned)) => Some((0.0, 9_999.0)),
        (_, Contents::Numbers(DataType::BcdSigned)) => Some((-9_999.0, 9_999.0)),
        _ => None,
    }
}

impl Target {
    /// Checks the record against the block and stores its offset.
    fn fit(mut self, output: bool, address: i32, block: &Block) -> Result<Self, AttachError> {
        let unsuited = |why: String| Err(AttachError::Unsuited { why });
        let spec = &block.spec;
        let Parameter::Data(contents, _) = self.parameter else { return self.fit_parameter(output) };
        if output && matches!(spec.access, Access::Reads(_)) {
            return unsuited(
                "the function of this port reads; outputs need a port with function 5, 6, 15 or 16".into(),
            );
        }
        let text = matches!(self.interface, Interface::OctetRead | Interface::OctetWrite);
        if !text
            && matches!(
                self.interface,
                Interface::OctetWriteBinary | Interface::OctetCommand | Interface::OctetAsk | Interface::Parm
            )
        {
            return unsuited("this DTYP needs a port that transfers bytes".to_owned());
        }
        match contents {
            Contents::Text { .. } if !text && self.interface != Interface::UInt32Digital => {
                return unsuited(format!("{contents} is a text; use asynOctetRead or asynOctetWrite"));
            }
            Contents::Numbers(_) if text => {
                let expected = "a text such as STRING_HIGH, STRING_LOW_HIGH or ZSTRING_HIGH".to_owned();
                return Err(AttachError::Unexpected { found: format!("parameter {contents}"), expected });
            }
            _ => {}
        }
        // In absolute addressing, the length limits one transfer.
        let (room, limit) = match spec.start {
            Some(_) => (i64::from(spec.length) - i64::from(address), i64::from(spec.length)),
            None => (65_536 - i64::from(address), 65_536),
        };
        let each = self.registers(block) as i64;
        if address < 0 || room < each {
            let found = format!("address {address} with {each} cells");
            return Err(AttachError::Unexpected { found, expected: format!("0 to {}", (limit - each).max(0)) });
        }
        self.offset = address as u16;
        let room = if spec.start.is_some() { room } else { i64::from(spec.length) };
        self.count = self.count.min((room / each).max(1) as usize);
        Ok(self)
    }

    fn fit_parameter(self, output: bool) -> Result<Self, AttachError> {
        let fits = match self.parameter {
            Parameter::Data(..) => true,
            Parameter::Read | Parameter::HistogramBinTime => output && self.interface == Interface::Int32,
            Parameter::PollDelay => self.interface == Interface::Float64,
            Parameter::EnableHistogram => self.interface == Interface::UInt32Digital,
            Parameter::ReadHistogram | Parameter::HistogramTimeAxis => {
                !output && matches!(self.interface, Interface::Int32Array | Interface::Float64Array)
            }
            _ => !output && self.interface == Interface::Int32,
        };
        if fits {
            return Ok(self);
        }
        let name = PARAMETERS.iter().find(|(_, known)| *known == self.parameter).map_or("", |(name, _)| name);
        let way = if output { "written" } else { "read" };
        Err(AttachError::Unsuited { why: format!("{name} is not {way} with this DTYP") })
    }

    /// Number of cells of one number.
    fn registers(&self, block: &Block) -> usize {
        match self.parameter {
            Parameter::Data(Contents::Numbers(data), _)
                if !block.spec.is_bits() && self.interface != Interface::UInt32Digital =>
            {
                data.registers()
            }
            _ => 1,
        }
    }

    /// Maximum number of cells that one reading needs.
    fn cells(&self, block: &Block) -> u16 {
        let cells = match self.parameter {
            Parameter::Data(Contents::Text { characters, .. }, length) => {
                self.text_max(length).div_ceil(characters.per_register())
            }
            _ => self.count.saturating_mul(self.registers(block)),
        };
        cells.clamp(1, block.spec.length.into()) as u16
    }

    /// Maximum length of a text that is read.
    fn text_max(&self, length: Option<usize>) -> usize {
        let most = match self.record_type.as_str() {
            "stringin" | "stringout" => 39,
            _ => self.count.saturating_sub(1),
        };
        length.map_or(most, |length| length.min(most))
    }

    /// The value in cells from the offset on; `None` if they hold none.
    fn value(&self, cells: &[u16], bits: bool) -> Option<Value> {
        let Parameter::Data(contents, length) = self.parameter else { return None };
        let data = match contents {
            _ if bits => DataType::Uint16,
            Contents::Numbers(data) => data,
            Contents::Text { characters, .. } if self.interface == Interface::OctetRead => {
                let text = characters.decode(cells, self.text_max(length));
                return Some(match self.record_type.as_str() {
                    "stringin" => Value::Scalar(Scalar::String(Str40::new(&text))),
                    _ => Value::Array(Array::U8(text)),
                });
            }
            Contents::Text { .. } => DataType::Uint16,
        };
        let numbers = || cells.chunks_exact(data.registers()).take(self.count).map(|chunk| data.decode(chunk));
        Some(match self.interface {
            Interface::UInt32Digital => return self.digital((*cells.first()?).into()),
            Interface::Int32Array => Value::Array(Array::I32(
                numbers().map(|number| number.map(|number| number.to_i64() as i32)).collect::<Option<_>>()?,
            )),
            Interface::Float64Array => {
                Value::Array(Array::F64(numbers().map(|number| number.map(Number::to_f64)).collect::<Option<_>>()?))
            }
            Interface::Float64 => Value::from(data.decode(cells)?.to_f64()),
            Interface::Int64 => Value::from(truncated(data.decode(cells)?)),
            Interface::Int32 => Value::from(truncated(data.decode(cells)?) as i32),
            Interface::OctetRead
            | Interface::OctetWrite
            | Interface::OctetWriteBinary
            | Interface::OctetCommand
            | Interface::OctetAsk
            | Interface::Parm => return None,
        })
    }

    /// Bits that the mask selects; 0 selects all.
    fn bits(&self) -> u32 {
        if self.mask == 0 { 0xffff } else { self.mask & 0xffff }
    }

    /// The raw value of a digital record. Multi-bit records have the lowest bit of the mask as bit 0.
    fn digital(&self, cell: u32) -> Option<Value> {
        let bits = cell & self.bits();
        let shifted = matches!(self.record_type.as_str(), "mbbi" | "mbbiDirect" | "mbbo" | "mbboDirect");
        let raw = if shifted { bits.checked_shr(self.bits().trailing_zeros())? } else { bits };
        Some(Value::from(raw as i32))
    }

    /// The sample for a state of the cells.
    fn sample(&self, cells: Result<&[u16], Status>, block_bits: bool, stamp: Stamp) -> DeviceSample {
        let cells = match cells {
            Ok(cells) => cells,
            Err(status) => return DeviceSample::failed(status),
        };
        match self.value(cells.get(usize::from(self.offset)..).unwrap_or_default(), block_bits) {
            Some(value) => DeviceSample::good(value, stamp),
            None => DeviceSample::failed(Status::Read),
        }
    }

    /// The steps that write a value; `None` if it does not fit.
    fn steps(&self, output: &Output, block: &Block) -> Option<Vec<Step>> {
        let (Parameter::Data(contents, length), Access::Writes { bits, many }) = (self.parameter, block.spec.access)
        else {
            return None;
        };
        let address = block.spec.start.unwrap_or_default().checked_add(self.offset)?;
        if self.interface == Interface::UInt32Digital {
            return Some(vec![self.digital_step(output, address, bits, many)]);
        }
        let numbers = self.numbers(output);
        if bits {
            let values: Vec<bool> = numbers.iter().map(|number| number.to_i64() != 0).collect();
            return Some(match many {
                true => vec![Step::Request(Request::WriteCoils { address, values })],
                false => {
                    let one = |(address, on)| Step::Request(Request::WriteCoil { address, on });
                    (address..).zip(values).map(one).collect()
                }
            });
        }
        let mut values = Vec::new();
        match contents {
            Contents::Text { characters, zero } => {
                let mut text = text_of(&output.value);
                text.extend(zero.then_some(0));
                text.truncate(length.unwrap_or(usize::MAX));
                values = characters.encode(&text);
            }
            Contents::Numbers(data) => {
                if !numbers.iter().all(|number| data.encode(*number, &mut values)) {
                    return None;
                }
            }
        }
        // A block has at most the cells that one request writes.
        let room = match block.spec.start {
            Some(_) => usize::from(block.spec.length - self.offset),
            None => block.spec.length.into(),
        };
        values.truncate(room);
        Some(match many {
            true => vec![Step::Request(Request::WriteRegisters { address, values })],
            false => {
                let one = |(address, value)| Step::Request(Request::WriteRegister { address, value });
                (address..).zip(values).map(one).collect()
            }
        })
    }

    /// Numbers of an output.
    fn numbers(&self, output: &Output) -> Vec<Number> {
        match (&output.value, self.interface) {
            (Value::Array(values), _) => {
                let all = (0..values.len().min(self.count)).filter_map(|at| values.get(at)).map(number_of);
                all.map(
                    |number| {
                        if self.interface == Interface::Int32Array { Number::Int(number.to_i64()) } else { number }
                    },
                )
                .collect()
            }
            (Value::Scalar(value), Interface::Float64) => vec![Number::Float(number_of(*value).to_f64())],
            (Value::Scalar(value), Interface::Int64) => vec![Number::Int(number_of(*value).to_i64())],
            (Value::Scalar(_), _) => vec![Number::Int(output.raw)],
        }
    }

    fn digital_step(&self, output: &Output, address: u16, bits: bool, many: bool) -> Step {
        let mask = self.bits();
        let value = match self.record_type.as_str() {
            "bo" | "busy" => {
                if output.raw != 0 {
                    mask
                } else {
                    0
                }
            }
            "mbbo" | "mbboDirect" => (output.raw as u32).wrapping_shl(mask.trailing_zeros()) & mask,
            _ => output.raw as u32 & mask,
        } as u16;
        Step::Request(match (bits, many) {
            (true, true) => Request::WriteCoils { address, values: vec![value != 0] },
            (true, false) => Request::WriteCoil { address, on: value != 0 },
            _ if mask != 0xffff => return Step::Bits { address, mask: mask as u16, value, many },
            (false, true) => Request::WriteRegisters { address, values: vec![value] },
            (false, false) => Request::WriteRegister { address, value },
        })
    }
}

/// A number without its fraction.
fn truncated(number: Number) -> i64 {
    match number {
        Number::Int(value) => value,
        Number::Float(value) => value as i64,
    }
}

/// Passes readings of a block to a record.
struct Watching {
    target: Arc<Target>,
    /// Set when the record is in service, with the kind of its next delivery and the last value.
    interrupt: Mutex<Option<Delivery>>,
}

struct Delivery {
    interrupt: Interrupt,
    bits: bool,
    /// The record is an output that waits for its initial value.
    starts: bool,
    output: bool,
    last: Option<DeviceSample>,
}

impl Subscriber for Watching {
    fn handle_reading(&self, cells: Result<&[u16], Status>) {
        // A panic while the lock is held cannot leave the value inconsistent.
        let mut place = self.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = place.as_mut() else { return };
        let fed = self.target.sample(cells, to.bits, now().wall);
        if to.output {
            if to.starts && fed.value.is_some() {
                to.starts = !to.interrupt.start_or_refuse(fed);
            }
            return;
        }
        let each = matches!(
            self.target.interface,
            Interface::Int32 | Interface::Int64 | Interface::Float64 | Interface::Float64Array
        );
        let same = to.last.as_ref().is_some_and(|last| (&last.value, last.alarm) == (&fed.value, fed.alarm));
        if each || !same {
            // If there is no room, the value is refused and counted. The next reading tries again.
            let taken = to.interrupt.feed_or_refuse(fed.clone());
            to.last = if taken && !each { Some(fed) } else { None };
        }
    }
}

/// The device of one record.
struct ModbusRecord {
    block: Arc<Block>,
    target: Arc<Target>,
    output: bool,
    watch: Arc<Watching>,
}

impl ModbusRecord {
    /// The value of a parameter of the port.
    fn parameter(&self, stamp: Stamp) -> DeviceSample {
        let number = |value: i32| Value::from(value);
        let value = self.block.with_counts(|counts| match self.target.parameter {
            Parameter::ReadOk => number(counts.reads as i32),
            Parameter::WriteOk => number(counts.writes as i32),
            Parameter::IoErrors => number(counts.errors as i32),
            Parameter::LastIoTime => number(counts.last_ms),
            Parameter::MaxIoTime => number(counts.max_ms),
            Parameter::EnableHistogram => number(counts.histogram.is_some().into()),
            Parameter::HistogramBinTime => number(counts.bin_ms),
            Parameter::HistogramTimeAxis => {
                Value::Array(Array::I32((0..BINS as i32).map(|bin| bin.saturating_mul(counts.bin_ms)).collect()))
            }
            Parameter::ReadHistogram => {
                let bins = counts.histogram.clone().unwrap_or_else(|| vec![0; BINS]);
                Value::Array(Array::I32(bins.into_iter().map(|count| count as i32).collect()))
            }
            Parameter::Data(..) | Parameter::Read | Parameter::PollDelay => Value::from(0.0),
        });
        match self.target.parameter {
            Parameter::PollDelay => {
                let seconds = self.block.poll().map_or(0.0, |poll| poll.0 as f64 / 1e9);
                DeviceSample::good(Value::from(seconds), stamp)
            }
            _ => DeviceSample::good(value, stamp),
        }
    }

    /// Writes a parameter of the port.
    fn set_parameter(&self, output: &Output, stamp: Stamp) -> DeviceSample {
        match self.target.parameter {
            Parameter::Read => self.block.read_soon(),
            Parameter::PollDelay => {
                let seconds = output.value.get(0).map(number_of).map_or(0.0, Number::to_f64);
                let ok = seconds > 0.0 && seconds < 1e6;
                self.block.set_poll(ok.then(|| DurNs(((seconds * 1e9) as i64).max(1_000_000))));
            }
            Parameter::EnableHistogram => self.block.with_counts(|counts| {
                counts.histogram = (output.raw != 0).then(|| vec![0; BINS]);
            }),
            Parameter::HistogramBinTime => self.block.with_counts(|counts| {
                counts.bin_ms = output.raw.clamp(1, 3_600_000) as i32;
                counts.histogram = counts.histogram.as_ref().map(|_| vec![0; BINS]);
            }),
            _ => return DeviceSample::failed(Status::Write),
        }
        DeviceSample::done(stamp)
    }

    fn read(&self, reply: Reply) {
        let bits = self.block.spec.is_bits();
        let (Access::Reads(table), None) = (self.block.spec.access, self.block.spec.start) else {
            let fed = self.block.with_cells(|cells, io| match io {
                Io::Never => DeviceSample::failed(Status::Read),
                Io::Good => self.target.sample(Ok(cells), bits, now().wall),
                Io::Failed(status) => DeviceSample::failed(status),
            });
            return reply.send(fed);
        };
        let (address, count) = (self.target.offset, self.target.cells(&self.block));
        let target = self.target.clone();
        let read = Step::Request(Request::Read { table, address, count });
        self.block.submit(vec![read], move |result| {
            let cells: Result<Vec<u16>, Status> = match result {
                Ok(Response::Registers(cells)) => Ok(cells),
                Ok(Response::Bits(bits)) => Ok(bits.into_iter().map(u16::from).collect()),
                Ok(_) => Err(Status::Read),
                Err(failure) => Err(status(&failure, false)),
            };
            let value = cells.and_then(|cells| target.value(&cells, table.is_bits()).ok_or(Status::Read));
            reply.send(match value {
                Ok(value) => DeviceSample::good(value, now().wall),
                Err(status) => DeviceSample::failed(status),
            });
        });
    }
}

impl RecordDevice for ModbusRecord {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        if !matches!(self.target.parameter, Parameter::Data(..)) {
            if self.output && matches!(self.target.parameter, Parameter::PollDelay | Parameter::HistogramBinTime) {
                // If there is no room, the record keeps the value in the database.
                interrupt.start_or_refuse(self.parameter(now().wall));
            }
            return;
        }
        let bits = self.block.spec.is_bits();
        let delivery = Delivery { interrupt, bits, starts: self.output, output: self.output, last: None };
        *self.watch.interrupt.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery);
        let weak: Weak<dyn Subscriber> = Arc::downgrade(&(self.watch.clone() as Arc<dyn Subscriber>));
        self.block.subscribe(weak);
        // A block that was read before is not read again for this record.
        let cells = self.block.with_cells(|cells, io| (io == Io::Good && self.output).then(|| cells.to_vec()));
        if let Some(cells) = cells {
            self.watch.handle_reading(Ok(&cells));
        }
    }

    fn request(&mut self, _: Now, output: Option<Output>, reply: Reply) {
        let stamp = now().wall;
        match (output, self.target.parameter) {
            (Some(output), Parameter::Data(..)) => match self.target.steps(&output, &self.block) {
                Some(steps) => {
                    let (block, written) = (self.block.clone(), steps.clone());
                    self.block.submit(steps, move |result| {
                        reply.send(match result {
                            Ok(_) => {
                                block.store(&written);
                                DeviceSample::done(now().wall)
                            }
                            Err(failure) => DeviceSample::failed(status(&failure, true)),
                        });
                    });
                }
                None => reply.send(DeviceSample::failed(Status::Write)),
            },
            (Some(output), _) => reply.send(self.set_parameter(&output, stamp)),
            (None, Parameter::Data(..)) => self.read(reply),
            (None, _) => reply.send(self.parameter(stamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::ModbusSpec;
    use super::*;
    use crate::devices::Ports;

    fn block(line: &str) -> Arc<Block> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Arc::new(Block::new("b", ModbusSpec::parse(&words).unwrap(), Ports::default(), Arc::default(), Arc::default()))
    }

    /// A record on a block, without attaching it.
    fn target(
        block: &Block,
        interface: Interface,
        link: &str,
        kind: &str,
        count: usize,
    ) -> Result<Target, AttachError> {
        let output = kind.ends_with("out") || matches!(kind, "ao" | "bo" | "mbbo" | "mbboDirect" | "aao" | "lso");
        let link = AsynLink::parse(link)?;
        let target = Target {
            interface,
            parameter: Parameter::parse(&link.info, block.spec.contents)?,
            offset: 0,
            mask: link.mask.unwrap_or_default() as u32,
            record_type: kind.to_owned(),
            count,
        };
        target.fit(output, link.address, block)
    }

    /// Examples of the modbus documentation, "EPICS device support", and its data types.
    #[test]
    fn cells_become_values_by_interface_and_data_type() {
        let block = block("L 0 3 100 10 UINT16 100");
        let cells = [0xfffe, 0x4060, 0, 0x0102, 0x6162, 0x6300, 0, 0, 0, 7];
        let value = |interface, link: &str, kind: &str, count| {
            let target = target(&block, interface, link, kind, count).unwrap();
            target.sample(Ok(&cells), false, Stamp::EPOCH).value.unwrap()
        };
        let (int, float) = (Interface::Int32, Interface::Float64);
        assert_eq!(value(int, "asyn(b,0)", "longin", 1), Value::from(65_534i32));
        assert_eq!(value(int, "asyn(b,0)INT16", "ai", 1), Value::from(-2i32));
        assert_eq!(value(int, "asyn(b,1)float32_be", "longin", 1), Value::from(3i32));
        assert_eq!(value(float, "asyn(b,1)FLOAT32_BE", "ai", 1), Value::from(3.5));
        assert_eq!(value(Interface::Int64, "asyn(b,0)UINT32_LE", "int64in", 1), Value::from(0x4060_fffe_i64));
        let digital = Interface::UInt32Digital;
        assert_eq!(value(digital, "asynMask(b,0,0xff00)", "mbbi", 1), Value::from(0xff_i32));
        assert_eq!(value(digital, "asynMask(b,0,0xff00)", "longin", 1), Value::from(0xff00_i32));
        assert_eq!(value(digital, "asynMask(b,0,1)", "bi", 1), Value::from(0i32));
        assert_eq!(value(Interface::Int32Array, "asyn(b,8)", "waveform", 5), Value::Array(Array::I32(vec![0, 7])));
        let floats = value(Interface::Float64Array, "asyn(b,1)FLOAT32_BE", "waveform", 1);
        assert_eq!(floats, Value::Array(Array::F64(vec![3.5])));
        let text = value(Interface::OctetRead, "asyn(b,4)STRING_HIGH_LOW", "stringin", 1);
        assert_eq!(text, Value::Scalar(Scalar::String("abc".into())));
        assert_eq!(
            value(Interface::OctetRead, "asyn(b,4)STRING_HIGH_LOW=2", "waveform", 20),
            Value::Array(Array::U8(b"ab".to_vec()))
        );
    }

    #[test]
    fn written_values_become_requests_of_the_function() {
        let steps = |line: &str, interface, link: &str, kind: &str, value: Value, raw| {
            let block = block(line);
            let target = target(&block, interface, link, kind, 8).unwrap();
            target.steps(&Output { value, raw, name: None, converted: false }, &block)
        };
        let register = |address, value| Step::Request(Request::WriteRegister { address, value });
        let registers =
            |address, values: &[u16]| Step::Request(Request::WriteRegisters { address, values: values.to_vec() });
        let (single, many) = ("L 0 6 100 10 UINT16 0", "L 0 16 100 10 UINT16 0");
        let write = |line, interface, link: &str, kind: &str, value| {
            steps(line, interface, link, kind, Value::from(value), value as i64)
        };
        assert_eq!(write(single, Interface::Int32, "asyn(b,2)", "longout", 7.0), Some(vec![register(102, 7)]));
        assert_eq!(write(single, Interface::Int32, "asyn(b,2)", "longout", 70_000.0), None);
        let float = write(single, Interface::Float64, "asyn(b,0)FLOAT32_BE", "ao", 3.5);
        assert_eq!(float, Some(vec![register(100, 0x4060), register(101, 0)]));
        let float = write(many, Interface::Float64, "asyn(b,0)FLOAT32_BE", "ao", 3.5);
        assert_eq!(float, Some(vec![registers(100, &[0x4060, 0])]));
        let digital = |line, mask: &str, kind: &str, raw: f64| {
            write(line, Interface::UInt32Digital, &format!("asynMask(b,1,{mask})"), kind, raw)
        };
        let bits = |mask, value, many| Step::Bits { address: 101, mask, value, many };
        assert_eq!(digital(single, "0x10", "bo", 1.0), Some(vec![bits(0x10, 0x10, false)]));
        assert_eq!(digital(many, "0xf0", "mbbo", 5.0), Some(vec![bits(0xf0, 0x50, true)]));
        assert_eq!(digital(single, "0", "longout", 9.0), Some(vec![register(101, 9)]));
        assert_eq!(digital(single, "0xffff", "longout", 9.0), Some(vec![register(101, 9)]));
        let coil = |address, on| Step::Request(Request::WriteCoil { address, on });
        assert_eq!(digital("L 0 5 100 10 0 0", "1", "bo", 1.0), Some(vec![coil(101, true)]));
        let array = steps(
            "L 0 15 100 10 0 0",
            Interface::Int32Array,
            "asyn(b,0)",
            "waveform",
            Value::Array(Array::I32(vec![1, 0, 5])),
            0,
        );
        assert_eq!(
            array,
            Some(vec![Step::Request(Request::WriteCoils { address: 100, values: vec![true, false, true] })])
        );
        let text = |info: &str| {
            let value = Value::Scalar(Scalar::String("abc".into()));
            steps(many, Interface::OctetWrite, &format!("asyn(b,0){info}"), "stringout", value, 0)
        };
        assert_eq!(text("STRING_HIGH_LOW"), Some(vec![registers(100, &[0x6162, 0x6300])]));
        assert_eq!(text("ZSTRING_LOW"), Some(vec![registers(100, &[0x61, 0x62, 0x63, 0])]));
    }

    #[test]
    fn a_record_that_does_not_fit_its_port_is_refused_with_the_reason() {
        let reads = block("L 0 3 100 10 UINT16 100");
        let refused =
            |interface, link: &str, kind: &str| target(&reads, interface, link, kind, 1).err().unwrap().to_string();
        assert!(refused(Interface::Int32, "asyn(b,0)", "longout").contains("function of this port reads"));
        assert!(refused(Interface::Int32, "asyn(b,10)", "longin").contains("expected 0 to 9"));
        assert!(refused(Interface::Float64, "asyn(b,9)FLOAT32_BE", "ai").contains("expected 0 to 8"));
        assert!(refused(Interface::Int32, "asyn(b,0)ACQUIRE", "bi").contains("expected MODBUS_DATA, a data type"));
        assert!(refused(Interface::Int32, "asyn(b,0)STRING_HIGH", "bi").contains("use asynOctetRead"));
        assert!(refused(Interface::OctetRead, "asyn(b,0)", "stringin").contains("expected a text such as STRING_HIGH"));
        assert!(refused(Interface::Float64, "asyn(b,0)READ_OK", "ai").contains("READ_OK is not read with this DTYP"));
    }

    #[test]
    fn the_number_of_bits_or_the_data_type_gives_the_raw_range() {
        let of = |name: &str| name.parse::<Contents>().unwrap();
        assert_eq!(range(Some(12), of("INT16")), Some((0.0, 4_095.0)));
        assert_eq!(range(Some(-12), of("UINT16")), Some((-2_048.0, 2_047.0)));
        assert_eq!(range(None, of("UINT16")), Some((0.0, 65_535.0)));
        assert_eq!(range(None, of("FLOAT32_BE")), None);
    }
}
