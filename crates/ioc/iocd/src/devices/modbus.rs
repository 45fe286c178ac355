//! "Modbus TCP", "Modbus RTU" and "Modbus ASCII": cells of a device's tables, `@PORT TABLE ADDRESS [TYPE] unit=1 timeout=1s poll=…`.
//!
//! TABLE is `coil`, `discrete`, `holding` or `input`. ADDRESS counts from 0, as in the protocol. TYPE is a type name of
//! EPICS' modbus module (`UINT16`, `INT32_BE`, `FLOAT32_LE`, …); the default is `UINT16`. Whole numbers in one register are
//! raw: ASLO, AOFF and LINR scale them. `bit=N` reads one bit of a register. Array records transfer as many consecutive
//! numbers as they have capacity for. With `poll=`, SCAN may be `I/O Intr`: the cells are read with this period, and the
//! record is processed when the value or the alarm changes.
//!
//! All alarms are INVALID:
//!
//! - TIMEOUT: no answer in time
//! - COMM: no connection, or an invalid answer
//! - READ or WRITE: refused by the device, or a number that does not fit

use super::watch::Watch;
use super::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, DurNs, MonoNs, Scalar, Stamp, Status, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::Exchange;
use fieldbus::modbus::{DataType, Failure, Framing, Number, Request, Response, Table, Transaction};
use port::Job;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The device support for a framing.
pub(super) struct Modbus(pub(super) Framing);

/// Transaction numbers are unique within the IOC, so that a late answer matches no other transaction.
static NUMBER: AtomicU16 = AtomicU16::new(1);

/// Reserves transaction numbers and returns the first.
pub(super) fn numbers(count: u16) -> u16 {
    NUMBER.fetch_add(count, Ordering::Relaxed)
}

impl DeviceSupport for Modbus {
    fn name(&self) -> &'static str {
        match self.0 {
            Framing::Tcp => "Modbus TCP",
            Framing::Rtu => "Modbus RTU",
            Framing::Ascii => "Modbus ASCII",
        }
    }

    fn record_types(&self) -> &'static [&'static str] {
        &[
            "ai",
            "ao",
            "bi",
            "bo",
            "mbbi",
            "mbbo",
            "mbbiDirect",
            "mbboDirect",
            "longin",
            "longout",
            "int64in",
            "int64out",
            "waveform",
            "aai",
            "aao",
        ]
    }

    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError> {
        let (cells, poll) = Cells::parse(place, self.0, ports)?;
        let device = Modbuses { cells: Arc::new(cells), ports: ports.clone(), poll, watch: None };
        Ok(Served { device: Some(Box::new(device)), interrupts: poll.is_some(), ..Served::default() })
    }
}

/// The cells of a record.
struct Cells {
    framing: Framing,
    port: String,
    unit: u8,
    table: Table,
    address: u16,
    data: DataType,
    bit: Option<u8>,
    /// Number of cells to read.
    count: u16,
    array: bool,
    timeout: DurNs,
}

impl Cells {
    fn parse(place: &Attaching<'_>, framing: Framing, ports: &Ports) -> Result<(Self, Option<DurNs>), AttachError> {
        let mut options = Options::parse(place.address);
        let port = options.needed("a port")?.to_owned();
        ports.find(&port).map_err(|error| AttachError::Unusable { what: error.to_string() })?;
        let table = match options.needed("coil, discrete, holding or input")? {
            "coil" => Table::Coils,
            "discrete" => Table::Discrete,
            "holding" => Table::Holding,
            "input" => Table::Input,
            other => {
                let expected = "coil, discrete, holding or input".to_owned();
                return Err(AttachError::Unexpected { found: format!("table \"{other}\""), expected });
            }
        };
        if place.output && !table.is_writable() {
            let (found, expected) = ("this table can only be read".to_owned(), "coil or holding".to_owned());
            return Err(AttachError::Unexpected { found, expected });
        }
        let word = options.needed("an address from 0 to 65535")?;
        let digits = word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |hex| u16::from_str_radix(hex, 16).ok());
        let bad =
            || AttachError::Unexpected { found: format!("address \"{word}\""), expected: "0 to 65535".to_owned() };
        let address = digits.ok_or_else(bad)?;
        let data = match options.word() {
            Some(word) if table.is_bits() => {
                let why = "coils and discrete inputs have no type".to_owned();
                return Err(AttachError::Unreadable { found: format!("\"{word}\""), why });
            }
            Some(word) => {
                word.parse::<DataType>().map_err(|error| AttachError::Unusable { what: error.to_string() })?
            }
            None => DataType::Uint16,
        };
        let bit = options.text("bit").map(|text| match text.parse() {
            Ok(bit) if bit < 16 && !table.is_bits() && !place.output => Ok(bit),
            _ => {
                let expected = "0 to 15, for reading a register".to_owned();
                Err(AttachError::Unexpected { found: format!("bit={text}"), expected })
            }
        });
        let bit = bit.transpose()?;
        let unit = options.value("unit", 1)?;
        let timeout = options.time("timeout", DurNs::from_secs(1))?;
        let polls = !place.output && options.text("poll").is_some();
        let poll = if polls { Some(options.time("poll", DurNs::ZERO)?) } else { None };
        options.finish()?;
        let each = if table.is_bits() { 1 } else { data.registers() };
        let wanted = place.count.saturating_mul(each);
        let most = usize::from(if place.output { table.write_max() } else { table.read_max() });
        if wanted > most {
            let found = format!("{} numbers of {each} cells are more than one request holds", place.count);
            return Err(AttachError::Unexpected { found, expected: format!("at most {}", most / each) });
        }
        let array = matches!(place.record_type, "waveform" | "aai" | "aao");
        let count = wanted as u16;
        let cells = Self { framing, port, unit, table, address, data, bit, count, array, timeout };
        if !place.output {
            cells.reading().check().map_err(|error| AttachError::Unusable { what: error.to_string() })?;
        }
        Ok((cells, poll))
    }

    fn reading(&self) -> Request {
        Request::Read { table: self.table, address: self.address, count: self.count }
    }

    /// The write request for an output; `None` if a number does not fit.
    fn writing(&self, output: &Output) -> Option<Request> {
        let numbers: Vec<Number> = match &output.value {
            Value::Array(values) => (0..values.len()).filter_map(|at| values.get(at)).map(number_of).collect(),
            // A single register holds the raw value, several registers hold the value itself.
            Value::Scalar(_) if self.data.registers() == 1 => vec![Number::Int(output.raw)],
            Value::Scalar(value) => vec![number_of(*value)],
        };
        let address = self.address;
        if self.table.is_bits() {
            let bits: Vec<bool> = numbers.iter().map(|number| number.to_i64() != 0).collect();
            return Some(match bits[..] {
                [on] => Request::WriteCoil { address, on },
                _ => Request::WriteCoils { address, values: bits },
            });
        }
        let mut values = Vec::new();
        let fits = numbers.iter().all(|number| self.data.encode(*number, &mut values));
        fits.then(|| match values[..] {
            [value] => Request::WriteRegister { address, value },
            _ => Request::WriteRegisters { address, values },
        })
    }

    /// Converts an answer to a sample for the record.
    fn meaning(&self, answer: Option<Result<Response, Failure>>, stamp: Stamp, writes: bool) -> DeviceSample {
        let refused = if writes { Status::Write } else { Status::Read };
        let response = match answer {
            Some(Ok(response)) => response,
            Some(Err(Failure::Timeout(_))) => return DeviceSample::failed(Status::Timeout),
            Some(Err(Failure::Exception(_))) => return DeviceSample::failed(refused),
            Some(Err(Failure::Closed(why))) => return DeviceSample::lost(&why),
            Some(Err(_)) | None => return DeviceSample::failed(Status::Comm),
        };
        let value = match response {
            Response::Written => return DeviceSample::done(stamp),
            Response::Bits(bits) if self.array => Value::Array(Array::U8(bits.into_iter().map(u8::from).collect())),
            Response::Bits(bits) => Value::from(i32::from(bits.first() == Some(&true))),
            Response::Registers(values) if self.array => {
                let size = self.data.registers();
                let numbers: Option<Vec<Number>> = values.chunks(size).map(|chunk| self.data.decode(chunk)).collect();
                let Some(numbers) = numbers else { return DeviceSample::failed(Status::Read) };
                let whole: Option<Vec<i64>> = numbers
                    .iter()
                    .map(|number| if let Number::Int(value) = number { Some(*value) } else { None })
                    .collect();
                Value::Array(match whole {
                    Some(values) => Array::I64(values),
                    None => Array::F64(numbers.into_iter().map(Number::to_f64).collect()),
                })
            }
            Response::Registers(values) => match (self.bit, self.data.decode(&values)) {
                (Some(bit), _) => Value::from(i32::from(values.first().copied().unwrap_or_default() >> bit & 1)),
                (None, Some(Number::Int(value))) => match i32::try_from(value) {
                    Ok(raw) if self.data.registers() == 1 => Value::from(raw),
                    _ => Value::from(value),
                },
                (None, Some(Number::Float(value))) => Value::from(value),
                (None, None) => return DeviceSample::failed(Status::Read),
            },
            Response::Exception(_) => return DeviceSample::failed(refused),
        };
        DeviceSample::good(value, stamp)
    }
}

/// The number in a scalar; not a number if a text is none.
pub(super) fn number_of(scalar: Scalar) -> Number {
    match scalar {
        Scalar::F32(value) => Number::Float(value.into()),
        Scalar::F64(value) => Number::Float(value),
        Scalar::I8(value) => Number::Int(value.into()),
        Scalar::U8(value) => Number::Int(value.into()),
        Scalar::I16(value) => Number::Int(value.into()),
        Scalar::U16(value) | Scalar::Enum(value) => Number::Int(value.into()),
        Scalar::I32(value) => Number::Int(value.into()),
        Scalar::U32(value) => Number::Int(value.into()),
        Scalar::I64(value) => Number::Int(value),
        Scalar::U64(value) => i64::try_from(value).map_or(Number::Float(value as f64), Number::Int),
        Scalar::String(text) => Number::Float(text.to_str().trim().parse().unwrap_or(f64::NAN)),
    }
}

/// The device of one record.
struct Modbuses {
    cells: Arc<Cells>,
    ports: Ports,
    poll: Option<DurNs>,
    watch: Option<Watch>,
}

impl Modbuses {
    fn submit(&self, request: Request, recipient: Recipient) {
        let number = numbers(1);
        let cells = &self.cells;
        let made = Transaction::new(cells.framing, number, cells.unit, request, cells.timeout);
        let Ok(transaction) = made else { return recipient.end(&cells.clone(), None) };
        // It may wait for other transactions for up to ten times its own timeout.
        let latest = now().mono + DurNs(cells.timeout.0.saturating_mul(10));
        let job = Pending { transaction, cells: cells.clone(), latest, recipient };
        if let Ok(port) = self.ports.open(&cells.port)
            && let Err(job) = port.submit_or_refuse(Box::new(job))
        {
            job.missed("too many wait for the port");
        }
    }
}

impl RecordDevice for Modbuses {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        self.watch = Some(Watch::new(interrupt));
    }

    fn request(&mut self, _: Now, output: Option<Output>, reply: Reply) {
        let writes = output.is_some();
        let request = match &output {
            Some(output) => self.cells.writing(output),
            None => Some(self.cells.reading()),
        };
        match request {
            Some(request) => self.submit(request, Recipient::Reply { reply, writes }),
            None => reply.send(DeviceSample::failed(Status::Write)),
        }
    }

    fn period(&self) -> Option<DurNs> {
        self.poll
    }

    fn poll(&mut self, _: Now) {
        let Some(watch) = self.watch.clone().filter(Watch::begin) else { return };
        self.submit(self.cells.reading(), Recipient::Interrupt(watch));
    }
}

/// Recipient of an answer.
enum Recipient {
    Reply { reply: Reply, writes: bool },
    Interrupt(Watch),
}

impl Recipient {
    fn end(self, cells: &Cells, answer: Option<Result<Response, Failure>>) {
        let stamp = now().wall;
        match self {
            Self::Reply { reply, writes } => reply.send(cells.meaning(answer, stamp, writes)),
            Self::Interrupt(watch) => watch.end(cells.meaning(answer, stamp, false)),
        }
    }
}

struct Pending {
    transaction: Transaction,
    cells: Arc<Cells>,
    latest: MonoNs,
    recipient: Recipient,
}

impl Job for Pending {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.transaction
    }

    fn latest(&self) -> Option<MonoNs> {
        Some(self.latest)
    }

    fn done(self: Box<Self>) {
        let answer = self.transaction.result();
        self.recipient.end(&self.cells, answer);
    }

    fn missed(self: Box<Self>, _: &str) {
        let limit = self.cells.timeout;
        self.recipient.end(&self.cells, Some(Err(Failure::Timeout(limit))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Alarm, FieldType};
    use db::RecId;

    fn cells(address: &str, record_type: &str, count: usize) -> Result<Cells, AttachError> {
        let ports = Ports::default();
        ports.add("plc", "127.0.0.1:502".parse().unwrap()).unwrap();
        let place = Attaching {
            shard: 0,
            record: RecId(1),
            name: "r",
            record_type,
            output: matches!(record_type, "ao" | "bo" | "longout" | "aao"),
            address,
            elements: FieldType::F64,
            count,
        };
        Cells::parse(&place, Framing::Tcp, &ports).map(|(cells, _)| cells)
    }

    #[test]
    fn addresses_become_requests() {
        let read = |table, address, count| Request::Read { table, address, count };
        let check = |address: &str, kind: &str, count, expected| {
            assert_eq!(cells(address, kind, count).unwrap().reading(), expected, "{address}");
        };
        check("plc holding 100", "ai", 1, read(Table::Holding, 100, 1));
        check("plc input 0x10 FLOAT32_BE", "ai", 1, read(Table::Input, 16, 2));
        check("plc holding 100 FLOAT64_LE", "waveform", 10, read(Table::Holding, 100, 40));
        check("plc coil 7", "bi", 1, read(Table::Coils, 7, 1));
        check("plc discrete 0 unit=3 poll=50ms", "waveform", 2000, read(Table::Discrete, 0, 2000));
    }

    #[test]
    fn written_values_have_the_type_of_the_address() {
        let write = |address: &str, kind: &str, value: Value, raw| {
            cells(address, kind, 8).unwrap().writing(&Output { value, raw, name: None, converted: false })
        };
        let one = |value: u16| Some(Request::WriteRegister { address: 5, value });
        assert_eq!(write("plc holding 5", "ao", Value::from(1.5), 150), one(150));
        assert_eq!(write("plc holding 5 INT16", "longout", Value::from(-2i32), -2), one(0xfffe));
        assert_eq!(write("plc holding 5", "longout", Value::from(70_000i32), 70_000), None);
        let many = |values: &[u16]| Some(Request::WriteRegisters { address: 5, values: values.to_vec() });
        assert_eq!(write("plc holding 5 FLOAT32_BE", "ao", Value::from(3.5), 4), many(&[0x4060, 0]));
        assert_eq!(write("plc holding 5", "aao", Value::Array(Array::I16(vec![1, 2])), 0), many(&[1, 2]));
        let coil = Some(Request::WriteCoil { address: 5, on: true });
        assert_eq!(write("plc coil 5", "bo", Value::Scalar(Scalar::U16(1)), 1), coil);
    }

    #[test]
    fn answers_become_values_and_failures_alarms() {
        let meaning = |address: &str, kind: &str, count, answer| {
            cells(address, kind, count).unwrap().meaning(Some(answer), Stamp::EPOCH, false)
        };
        let registers = |values: &[u16]| Ok(Response::Registers(values.to_vec()));
        let value = |address: &str, answer| meaning(address, "ai", 1, answer).value.unwrap();
        assert_eq!(value("plc holding 0 INT16", registers(&[0xfffe])), Value::from(-2i32));
        assert_eq!(value("plc holding 0 FLOAT32_BE", registers(&[0x4060, 0])), Value::from(3.5));
        assert_eq!(value("plc holding 0 bit=3", registers(&[8])), Value::from(1i32));
        assert_eq!(value("plc coil 0", Ok(Response::Bits(vec![true]))), Value::from(1i32));
        let array = meaning("plc holding 0", "waveform", 3, registers(&[1, 2, 3]));
        assert_eq!(array.value, Some(Value::Array(Array::I64(vec![1, 2, 3]))));
        let status = |failure| meaning("plc holding 0", "ai", 1, Err(failure)).alarm.status;
        assert_eq!(status(Failure::Timeout(DurNs::ZERO)), Status::Timeout);
        assert_eq!(status(Failure::Closed(String::new())), Status::Comm);
        assert_eq!(status(Failure::Exception(fieldbus::modbus::Exception(2))), Status::Read);
        assert_eq!(meaning("plc holding 0", "ai", 1, registers(&[1])).alarm, Alarm::NONE);
    }

    #[test]
    fn a_malformed_address_is_refused_with_the_expected_form() {
        let refused = |address: &str, kind: &str, count| cells(address, kind, count).err().unwrap().to_string();
        assert!(refused("", "ai", 1).contains("expected a port"));
        assert!(refused("plx holding 1", "ai", 1).contains("no port \"plx\"; there are plc"));
        assert!(refused("plc register 1", "ai", 1).contains("expected coil, discrete, holding or input"));
        assert!(refused("plc input 1", "ao", 1).contains("can only be read"));
        assert!(refused("plc holding 70000", "ai", 1).contains("expected 0 to 65535"));
        assert!(refused("plc holding 1 FLOAT16", "ai", 1).contains("FLOAT16"));
        assert!(refused("plc holding 1", "waveform", 126).contains("at most 125"));
        assert!(refused("plc holding 65535 INT32_BE", "ai", 1).contains("reach beyond 65535"));
        assert!(refused("plc holding 1 poll=1s", "ao", 1).contains("poll="));
    }
}
