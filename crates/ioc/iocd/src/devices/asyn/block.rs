//! Ports of `drvModbusAsynConfigure`: a block of registers or coils that is read as a whole, or written.

use super::link::whole;
use super::poller::Poller;
use crate::devices::Ports;
use crate::devices::modbus::numbers;
use crate::engine::now;
use base::{DurNs, MonoNs, Status};
use fieldbus::Exchange;
use fieldbus::modbus::{Chain, Contents, Failure, Framing, Request, Response, Step, Table};
use port::Job;
use port::trace::{DEVICE, DRIVER, Trace};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Time until a failed block is read again.
const RETRY: DurNs = DurNs::from_secs(1);
/// Number of bins of the histogram of times.
pub(super) const BINS: usize = 200;

/// An argument of a command for a port to Modbus devices is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadArgument {
    #[error("expected the name of a port")]
    NoPort,
    #[error("{what} \"{word}\"; expected {low} to {high}")]
    Number { what: &'static str, word: String, low: i64, high: i64 },
    #[error("link type {0}; expected 0 (TCP), 1 (RTU), 2 (ASCII) or 3 (UDP)")]
    LinkType(i64),
    #[error("function {0} is not available; use 3, 4, 6 or 16")]
    Unavailable(i64),
    #[error("function {0}; expected 1, 2, 3, 4, 5, 6, 15 or 16")]
    Function(i64),
    #[error("{length} cells from {start} reach beyond 65535")]
    Cells { length: u16, start: String },
    #[error("data type {0}; expected 0 to 36 or a name such as INT16")]
    Contents(String),
    #[error(transparent)]
    Name(#[from] fieldbus::modbus::NoDataType),
}

impl BadArgument {
    fn number(what: &'static str, word: &str, low: i64, high: i64) -> Self {
        Self::Number { what, word: word.to_owned(), low, high }
    }
}

/// Framing and times of a port to Modbus devices (`modbusInterposeConfig`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interpose {
    pub(crate) framing: Framing,
    /// Maximum time until an answer.
    pub(crate) timeout: DurNs,
    /// Pause before each request.
    pub(crate) delay: DurNs,
}

impl Default for Interpose {
    fn default() -> Self {
        Self { framing: Framing::Tcp, timeout: DurNs::from_secs(2), delay: DurNs::ZERO }
    }
}

impl Interpose {
    /// Parses the arguments of `modbusInterposeConfig` after the port.
    pub(crate) fn parse(args: &[String]) -> Result<Self, BadArgument> {
        let number = |at: usize, what: &'static str| match args.get(at).map(|word| (word, whole(word))) {
            None => Ok(0),
            Some((_, Some(number))) if (0..=3_600_000).contains(&number) => Ok(number),
            Some((word, _)) => Err(BadArgument::number(what, word, 0, 3_600_000)),
        };
        let framing = match number(0, "link type")? {
            // Datagrams have the header of TCP.
            0 | 3 => Framing::Tcp,
            1 => Framing::Rtu,
            2 => Framing::Ascii,
            other => return Err(BadArgument::LinkType(other)),
        };
        let timeout = match number(1, "time limit")? {
            0 => Self::default().timeout,
            ms => DurNs::from_ms(ms),
        };
        Ok(Self { framing, timeout, delay: DurNs::from_ms(number(2, "pause")?) })
    }
}

/// The cells of a block and how they are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read periodically.
    Reads(Table),
    /// Written, each cell with its own request (functions 5 and 6) or several with one (15 and 16).
    Writes { bits: bool, many: bool },
}

/// Arguments of `drvModbusAsynConfigure`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModbusSpec {
    /// Port that transfers the bytes.
    pub(super) line: String,
    pub(super) unit: u8,
    function: i64,
    pub(super) access: Access,
    /// First cell; `None` for absolute addresses.
    pub(super) start: Option<u16>,
    /// Number of cells.
    pub(super) length: u16,
    /// Contents if a record names none.
    pub(super) contents: Contents,
    /// Time between readings. For blocks that are written: they are read once.
    poll: Option<DurNs>,
    plc: String,
}

impl ModbusSpec {
    /// Parses the arguments after the name: LINE UNIT FUNCTION START LENGTH TYPE POLL PLC. Scripts for old releases have no
    /// UNIT.
    pub(crate) fn parse(args: &[String]) -> Result<Self, BadArgument> {
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        if args.len() == 7 && whole(args[6]).is_none() {
            args.insert(1, "0");
        }
        let line = args.first().filter(|line| !line.is_empty()).ok_or(BadArgument::NoPort)?;
        let number =
            |at: usize, what: &'static str, low: i64, high: i64| match args.get(at).map(|word| (*word, whole(word))) {
                Some((_, Some(number))) if (low..=high).contains(&number) => Ok(number),
                found => Err(BadArgument::number(what, found.map_or("", |(word, _)| word), low, high)),
            };
        let unit = number(1, "unit", 0, 255)? as u8;
        let function = number(2, "function", 0, 255)?;
        let (access, most) = match function {
            1 => (Access::Reads(Table::Coils), 2000),
            2 => (Access::Reads(Table::Discrete), 2000),
            3 => (Access::Reads(Table::Holding), 125),
            4 => (Access::Reads(Table::Input), 125),
            5 | 15 => (Access::Writes { bits: true, many: function == 15 }, 1968),
            6 | 16 => (Access::Writes { bits: false, many: function == 16 }, 123),
            17 | 23 | 123 | 223 => return Err(BadArgument::Unavailable(function)),
            _ => return Err(BadArgument::Function(function)),
        };
        let start = match number(3, "start", -1, 65_535)? {
            -1 => None,
            start => Some(start as u16),
        };
        let length = number(4, "length", 1, most)? as u16;
        if start.is_some_and(|start| u32::from(start) + u32::from(length) > 0x1_0000) {
            return Err(BadArgument::Cells { length, start: args[3].to_owned() });
        }
        let word = args.get(5).copied().unwrap_or_default();
        let contents = match whole(word).or(if word.is_empty() { Some(0) } else { None }) {
            Some(number) => usize::try_from(number).ok().and_then(Contents::numbered),
            None => Some(word.parse::<Contents>()?),
        };
        let contents = contents.ok_or_else(|| BadArgument::Contents(word.to_owned()))?;
        let poll = match args.get(6) {
            Some(_) => number(6, "poll time in ms", 0, 86_400_000)?,
            None => 0,
        };
        let poll = (poll > 0).then(|| DurNs::from_ms(poll));
        let plc = args.get(7).copied().unwrap_or_default().to_owned();
        Ok(Self { line: (*line).to_owned(), unit, function, access, start, length, contents, poll, plc })
    }

    /// Port that transfers the bytes.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// Whether the cells are bits.
    pub(super) fn is_bits(&self) -> bool {
        match self.access {
            Access::Reads(table) => table.is_bits(),
            Access::Writes { bits, .. } => bits,
        }
    }

    /// The request that reads the whole block.
    fn reading(&self) -> Option<Request> {
        let start = self.start?;
        let (table, start) = match self.access {
            Access::Reads(table) => (table, start),
            // The outputs of Wago's couplers are read at another address than they are written.
            Access::Writes { bits, .. } => {
                let shift = if self.plc.contains("Wago") { 0x200 } else { 0 };
                (if bits { Table::Coils } else { Table::Holding }, start.checked_add(shift)?)
            }
        };
        Some(Request::Read { table, address: start, count: self.length })
    }
}

/// State of the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Io {
    /// Not read yet.
    #[default]
    Never,
    Good,
    Failed(Status),
}

/// Counters of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: u32,
    pub(super) writes: u32,
    pub(super) errors: u32,
    /// Times of exchanges in ms.
    pub(super) last_ms: i32,
    pub(super) max_ms: i32,
    /// Times of exchanges by bin, if counting is enabled.
    pub(super) histogram: Option<Vec<u32>>,
    pub(super) bin_ms: i32,
}

/// Receives each reading of a block.
pub(super) trait Subscriber: Send + Sync {
    /// The cells, or why there are none.
    fn handle_reading(&self, cells: Result<&[u16], Status>);
}

#[derive(Default)]
struct State {
    cells: Vec<u16>,
    io: Io,
    subscribers: Vec<Weak<dyn Subscriber>>,
    poll: Option<DurNs>,
    /// Time of the next reading.
    next: Option<MonoNs>,
    /// A reading is in progress.
    busy: bool,
    active: bool,
    counts: Counts,
}

/// A block of registers or coils.
pub(crate) struct Block {
    name: String,
    pub(super) spec: ModbusSpec,
    ports: Ports,
    poller: Arc<Poller>,
    pub(crate) trace: Arc<Trace>,
    state: Mutex<State>,
}

impl Block {
    pub(crate) fn new(name: &str, spec: ModbusSpec, ports: Ports, poller: Arc<Poller>, trace: Arc<Trace>) -> Self {
        let cells = vec![0; spec.length.into()];
        let counts = Counts { bin_ms: 1, ..Counts::default() };
        let state = Mutex::new(State { cells, poll: spec.poll, counts, ..State::default() });
        Self { name: name.to_owned(), spec, ports, poller, trace, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Line of a report.
    pub(crate) fn report(&self) -> String {
        let state = self.lock();
        let spec = &self.spec;
        let start = spec.start.map_or_else(|| "absolute".to_owned(), |start| start.to_string());
        let io = match state.io {
            Io::Never => "not read yet".to_owned(),
            Io::Good => "good".to_owned(),
            Io::Failed(status) => format!("failed: {}", status.name()),
        };
        format!(
            "{} Modbus of {}: unit {}, function {}, start {start}, length {}, {}, poll {}, {io}; reads {}, writes {}, errors {}, last {} ms, longest {} ms",
            self.name,
            spec.line,
            spec.unit,
            spec.function,
            spec.length,
            spec.contents,
            state.poll.map_or_else(|| "none".to_owned(), |poll| poll.to_string()),
            state.counts.reads,
            state.counts.writes,
            state.counts.errors,
            state.counts.last_ms,
            state.counts.max_ms,
        )
    }

    /// Adds a record. The first starts the readings.
    pub(super) fn subscribe(self: &Arc<Self>, subscriber: Weak<dyn Subscriber>) {
        let first = {
            let mut state = self.lock();
            state.subscribers.retain(|known| known.strong_count() > 0);
            state.subscribers.push(subscriber);
            if state.next.is_none() && state.poll.is_some() && !state.active {
                state.next = Some(now().mono);
            }
            !std::mem::replace(&mut state.active, true)
        };
        if first {
            self.poller.add(self.clone());
        }
    }

    /// Calls `with` with the cells and their state.
    pub(super) fn with_cells<T>(&self, with: impl FnOnce(&[u16], Io) -> T) -> T {
        let state = self.lock();
        with(&state.cells, state.io)
    }

    /// Calls `with` with the counters.
    pub(super) fn with_counts<T>(&self, with: impl FnOnce(&mut Counts) -> T) -> T {
        with(&mut self.lock().counts)
    }

    /// Time between readings.
    pub(super) fn poll(&self) -> Option<DurNs> {
        self.lock().poll
    }

    /// Changes the time between readings.
    pub(super) fn set_poll(&self, poll: Option<DurNs>) {
        let mut state = self.lock();
        state.poll = poll;
        state.next = poll.map(|poll| now().mono + poll);
        drop(state);
        self.poller.ring();
    }

    /// Reads the block soon.
    pub(super) fn read_soon(&self) {
        self.lock().next = Some(now().mono);
        self.poller.ring();
    }

    /// Starts a reading if one is due. Returns the time of the next one.
    pub(super) fn poll_if_due(self: &Arc<Self>, instant: MonoNs) -> Option<MonoNs> {
        let request = self.spec.reading()?;
        {
            let mut state = self.lock();
            let next = state.next.filter(|_| !state.busy)?;
            if next > instant {
                return Some(next);
            }
            state.busy = true;
            state.next = None;
        }
        let block = self.clone();
        self.submit(vec![Step::Request(request)], move |result| block.take_reading(instant, result));
        None
    }

    /// Takes the result of a reading that began at `began`.
    fn take_reading(&self, began: MonoNs, result: Result<Response, Failure>) {
        let mut state = self.lock();
        let reads = matches!(self.spec.access, Access::Reads(_));
        let before = state.io;
        let good = result.is_ok();
        match result {
            Ok(Response::Registers(cells)) => state.cells = cells,
            Ok(Response::Bits(bits)) => state.cells = bits.into_iter().map(u16::from).collect(),
            Ok(_) => {}
            Err(failure) => state.io = Io::Failed(status(&failure, false)),
        }
        if good {
            state.io = Io::Good;
        }
        state.busy = false;
        let period = state.poll.map(|poll| if good { poll } else { DurNs(poll.0.max(RETRY.0)) });
        let again = period.map(|period| MonoNs((began + period).0.max(now().mono.0)));
        // Blocks that are written are read until it succeeds once.
        if state.next.is_none() {
            state.next = again.filter(|_| reads || !good);
        }
        // Repeated failures are reported once.
        let told = good || before != state.io;
        let subscribers: Vec<_> = if told { state.subscribers.clone() } else { Vec::new() };
        let (cells, io) = (state.cells.clone(), state.io);
        drop(state);
        for subscriber in subscribers.iter().filter_map(Weak::upgrade) {
            match io {
                Io::Failed(status) => subscriber.handle_reading(Err(status)),
                Io::Never | Io::Good => subscriber.handle_reading(Ok(&cells)),
            }
        }
        self.poller.ring();
    }

    /// Stores cells that were written.
    pub(super) fn store(&self, steps: &[Step]) {
        let Some(start) = self.spec.start else { return };
        let mut state = self.lock();
        let mut set = |address: u16, change: &dyn Fn(u16) -> u16| {
            if let Some(cell) = state.cells.get_mut(usize::from(address.wrapping_sub(start))) {
                *cell = change(*cell);
            }
        };
        for step in steps {
            match step {
                Step::Request(Request::WriteCoil { address, on }) => set(*address, &|_| (*on).into()),
                Step::Request(Request::WriteRegister { address, value }) => set(*address, &|_| *value),
                Step::Request(Request::WriteCoils { address, values }) => {
                    (*address..).zip(values).for_each(|(at, on)| set(at, &|_| (*on).into()));
                }
                Step::Request(Request::WriteRegisters { address, values }) => {
                    (*address..).zip(values).for_each(|(at, value)| set(at, &|_| *value));
                }
                Step::Request(Request::Read { .. }) => {}
                Step::Bits { address, mask, value, .. } => set(*address, &|before| before & !mask | value & mask),
            }
        }
        if state.io == Io::Never {
            state.io = Io::Good;
        }
    }

    /// Runs steps on the line. `then` gets the result, on the thread of the line.
    pub(super) fn submit(
        self: &Arc<Self>,
        steps: Vec<Step>,
        then: impl FnOnce(Result<Response, Failure>) + Send + 'static,
    ) {
        let Interpose { framing, timeout, delay } = self.ports.interpose(&self.spec.line);
        let writes = steps.iter().any(|step| !matches!(step, Step::Request(Request::Read { .. })));
        let shown = self.trace.traces(DRIVER | DEVICE).then(|| format!("unit {} {steps:?}", self.spec.unit));
        let chain = Chain::new(framing, numbers(Chain::numbers(&steps)), self.spec.unit, steps, timeout, delay);
        // It may wait for other exchanges for up to ten times its own time limit.
        let began = now().mono;
        let latest = began + DurNs(timeout.0.saturating_mul(10));
        let job = Pending { chain, block: self.clone(), began, latest, writes, timeout, shown, then: Box::new(then) };
        match self.ports.open(&self.spec.line) {
            Ok(port) => {
                if let Err(job) = port.submit_or_refuse(Box::new(job)) {
                    job.missed("too many wait for the port");
                }
            }
            Err(error) => Box::new(job).end(Err(Failure::Closed(error.to_string()))),
        }
    }
}

/// Alarm of a failed exchange.
pub(super) fn status(failure: &Failure, writes: bool) -> Status {
    match failure {
        Failure::Timeout(_) => Status::Timeout,
        Failure::Closed(_) => Status::Comm,
        _ if writes => Status::Write,
        _ => Status::Read,
    }
}

/// An exchange for a block.
struct Pending {
    chain: Chain,
    block: Arc<Block>,
    began: MonoNs,
    latest: MonoNs,
    writes: bool,
    timeout: DurNs,
    /// The requests as text, if they are traced.
    shown: Option<String>,
    then: Box<dyn FnOnce(Result<Response, Failure>) + Send>,
}

impl Pending {
    fn end(self: Box<Self>, result: Result<Response, Failure>) {
        let ms = ((now().mono - self.began).0.max(0) / 1_000_000) as i32;
        self.block.with_counts(|counts| {
            match (&result, self.writes) {
                (Ok(_), true) => counts.writes = counts.writes.wrapping_add(1),
                (Ok(_), false) => counts.reads = counts.reads.wrapping_add(1),
                (Err(_), _) => counts.errors = counts.errors.wrapping_add(1),
            }
            counts.last_ms = ms;
            counts.max_ms = counts.max_ms.max(ms);
            let bin = (ms / counts.bin_ms.max(1)) as usize;
            if let Some(histogram) = &mut counts.histogram {
                let bin = bin.min(BINS - 1);
                histogram[bin] = histogram[bin].saturating_add(1);
            }
        });
        if let Some(shown) = &self.shown {
            self.block.trace.print(&self.block.name, format_args!("{shown}: {result:?}"), &[]);
        }
        (self.then)(result);
    }
}

impl Job for Pending {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.chain
    }

    fn latest(&self) -> Option<MonoNs> {
        Some(self.latest)
    }

    fn begin(&mut self) {
        // The time in the queue does not count.
        self.began = now().mono;
    }

    fn done(self: Box<Self>) {
        let result = self.chain.result().unwrap_or(Err(Failure::Timeout(self.timeout)));
        // Exception 5: the device accepted the request and still works on it.
        let result = match result {
            Err(Failure::Exception(fieldbus::modbus::Exception(5))) if self.writes => Ok(Response::Written),
            other => other,
        };
        self.end(result);
    }

    fn missed(self: Box<Self>, _: &str) {
        let limit = self.timeout;
        self.end(Err(Failure::Timeout(limit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: &str) -> Result<ModbusSpec, BadArgument> {
        ModbusSpec::parse(&line.split(' ').map(|word| word.replace('_', "")).collect::<Vec<_>>())
    }

    /// Command lines of the modbus documentation, "drvModbusAsynConfigure", and of public scripts.
    #[test]
    fn blocks_are_configured_as_in_the_modbus_module() {
        let koyo = spec("Koyo1 0 2 04000 040 0 100 Koyo").unwrap();
        assert_eq!((koyo.access, koyo.start, koyo.length), (Access::Reads(Table::Discrete), Some(2048), 32));
        assert_eq!((koyo.contents.to_string().as_str(), koyo.poll), ("INT16", Some(DurNs::from_ms(100))));
        let old = spec("Koyo1 6 040500 010 0 100 Koyo").unwrap();
        assert_eq!((old.unit, old.access, old.start), (0, Access::Writes { bits: false, many: false }, Some(0o40500)));
        let absolute = spec("L0 9 3 -1 1 INT32BE 1000 _").map_err(|error| error.to_string().contains("INT32BE"));
        assert_eq!(absolute, Err(true));
        assert_eq!(spec("L0 9 3 -1 1 4 1000 _").unwrap().start, None);
        let wago = spec("L0 1 16 10 2 4 1 Wago750").unwrap();
        assert_eq!(wago.reading(), Some(Request::Read { table: Table::Holding, address: 0x20a, count: 2 }));
    }

    #[test]
    fn a_wrong_argument_is_refused_with_the_expected_values() {
        let refused = |line: &str| spec(line).unwrap_err().to_string();
        assert!(refused("").contains("name of a port"));
        assert!(refused("L 0 7 0 1 0 1 x").contains("function 7; expected 1, 2"));
        assert!(refused("L 0 17 0 1 0 1 x").contains("not available"));
        assert!(refused("L 0 3 0 126 0 1 x").contains("length \"126\"; expected 1 to 125"));
        assert!(refused("L 0 3 65530 10 0 1 x").contains("beyond 65535"));
        assert!(refused("L 300 3 0 1 0 1 x").contains("unit \"300\"; expected 0 to 255"));
        assert!(refused("L 0 3 0 1 99 1 x").contains("data type 99"));
        let interpose = |line: &str| Interpose::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let rtu = Interpose { framing: Framing::Rtu, timeout: DurNs::from_secs(5), delay: DurNs::from_ms(10) };
        assert_eq!(interpose("1 5000 10"), Ok(rtu));
        assert_eq!(interpose("0 0 0"), Ok(Interpose::default()));
        assert!(interpose("4 0").unwrap_err().to_string().contains("link type 4"));
    }
}
