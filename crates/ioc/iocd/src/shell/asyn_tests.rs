//! asyn's DTYPs and commands in a running IOC, with devices on the loopback.

use super::Shell;
use fieldbus::modbus::{Exception, Framing, Request, Response, Table, encode};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum time of a step.
const PATIENCE: Duration = Duration::from_secs(60);

/// An IOC in this process, without clients.
pub(super) struct Ioc {
    pub(super) shell: Shell,
    pub(super) folder: std::path::PathBuf,
}

impl Ioc {
    /// Runs the lines of a script, with a database `t.db`, and starts the IOC.
    pub(super) fn start(name: &str, script: &str, database: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("asyn-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut ioc = Self { shell: Shell::new(false, []), folder };
        script.lines().for_each(|line| ioc.run(line));
        ioc.shell.load_text(database.to_owned(), "t.db", "").unwrap();
        ioc.shell.init().unwrap();
        ioc
    }

    pub(super) fn run(&mut self, line: &str) {
        self.shell.run_line(line).unwrap_or_else(|failed| panic!("{line}: {}", failed.0));
    }

    /// Output of a command.
    fn said(&mut self, line: &str) -> String {
        let file = self.folder.join("output");
        self.run(&format!("{line} > \"{}\"", file.display()));
        std::fs::read_to_string(file).unwrap()
    }

    /// A field as text.
    fn text(&mut self, field: &str) -> String {
        let name = field.to_owned();
        let text = self.shell.with_record(field, move |db, _| {
            let channel = db.find(&name).unwrap();
            db.get_text(&channel).to_str().to_owned()
        });
        text.unwrap_or_else(|failed| panic!("{field}: {}", failed.0))
    }

    /// Waits until a field has a value. A field of a passive record is processed first.
    fn until(&mut self, field: &str, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.text(field);
            if text == expected {
                return;
            }
            assert!(Instant::now() < end, "{field} is {text:?} instead of {expected:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes a record.
    fn process(&mut self, record: &str) {
        let said = self.said(&format!("dbpf {record}.PROC 1"));
        assert!(said.contains('1'), "{said}");
    }

    fn put(&mut self, field: &str, value: &str) {
        self.said(&format!("dbpf {field} \"{value}\""));
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        let ended = self.shell.shut_down();
        let _ = std::fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A server for one kind of connections. Returns its port.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

/// A port on which nothing listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Serves 100 registers, which are also the coils. Others do not exist.
fn plc(mut stream: TcpStream, cells: &Mutex<Vec<u16>>) {
    loop {
        let mut header = [0; 7];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let mut pdu = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]])) - 1];
        stream.read_exact(&mut pdu).unwrap();
        let request = Request::decode(&pdu).unwrap();
        let (mut answer, mut bytes) = (Vec::new(), Vec::new());
        plc_answer(&request, &mut cells.lock().unwrap()).encode(&request, &mut answer);
        encode(Framing::Tcp, u16::from_be_bytes([header[0], header[1]]), header[6], &answer, &mut bytes);
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn plc_answer(request: &Request, cells: &mut [u16]) -> Response {
    match request {
        Request::Read { address, count, .. } if usize::from(address + count) > cells.len() => {
            Response::Exception(Exception(2))
        }
        Request::Read { table: Table::Coils | Table::Discrete, address, count } => {
            Response::Bits((0..*count).map(|at| cells[usize::from(address + at)] != 0).collect())
        }
        Request::Read { address, count, .. } => {
            Response::Registers(cells[usize::from(*address)..][..usize::from(*count)].to_vec())
        }
        Request::WriteRegister { address, value } => {
            cells[usize::from(*address)] = *value;
            Response::Written
        }
        Request::WriteRegisters { address, values } => {
            cells[usize::from(*address)..][..values.len()].copy_from_slice(values);
            Response::Written
        }
        Request::WriteCoil { address, on } => {
            cells[usize::from(*address)] = (*on).into();
            Response::Written
        }
        Request::WriteCoils { .. } => Response::Exception(Exception(1)),
    }
}

/// The records of the documentation's kinds, on blocks of a device.
const BLOCKS: &str = r#"
record(ai, "real") { field(DTYP, "asynFloat64") field(INP, "@asyn(in,0)FLOAT32_BE") field(SCAN, "I/O Intr") field(PREC, "1") }
record(ai, "bipolar") { field(DTYP, "asynInt32") field(INP, "@asynMask(in,2,-12)INT16") field(SCAN, "I/O Intr") field(LINR, "LINEAR") field(EGUL, "-10") field(EGUF, "10") }
record(mbbi, "field") { field(DTYP, "asynUInt32Digital") field(INP, "@asynMask(in,3,0x0f00)") field(SCAN, ".1 second") }
record(stringin, "name") { field(DTYP, "asynOctetRead") field(INP, "@asyn(in,4)STRING_HIGH_LOW=9") field(SCAN, "I/O Intr") }
record(waveform, "all") { field(DTYP, "asynInt32ArrayIn") field(INP, "@asyn(in,0)") field(SCAN, "I/O Intr") field(NELM, "100") field(FTVL, "LONG") field(FLNK, "changes") }
record(calc, "changes") { field(CALC, "A+1") field(INPA, "changes") }
record(ao, "set") { field(DTYP, "asynFloat64") field(OUT, "@asyn(out,0)FLOAT32_BE") field(PREC, "1") }
record(bo, "bit") { field(DTYP, "asynUInt32Digital") field(OUT, "@asynMask(out,3,0x0100)") field(ZNAM, "off") field(ONAM, "on") }
record(longout, "kept") { field(DTYP, "asynInt32") field(OUT, "@asyn(out,6)UINT16") }
record(stringout, "say") { field(DTYP, "asynOctetWrite") field(OUT, "@asyn(out,4)ZSTRING_HIGH_LOW") }
record(waveform, "both") { field(DTYP, "asynInt32ArrayOut") field(INP, "@asyn(out,7)UINT16") field(NELM, "2") field(FTVL, "LONG") }
record(bo, "coil") { field(DTYP, "asynUInt32Digital") field(OUT, "@asynMask(coils,5,0x1)") }
record(longin, "coil:rbk") { field(DTYP, "asynInt32") field(INP, "@asyn(bits,5)") field(SCAN, "I/O Intr") }
record(longin, "absolute") { field(DTYP, "asynInt32") field(INP, "@asyn(any,026)INT16") field(SCAN, ".1 second") }
record(longin, "ok") { field(DTYP, "asynInt32") field(INP, "@asyn(in,0)READ_OK") field(SCAN, ".1 second") }
record(longin, "never") { field(DTYP, "asynInt32") field(INP, "@asyn(idle,0)") field(SCAN, ".1 second") }
record(bo, "now") { field(DTYP, "asynInt32") field(OUT, "@asyn(idle,0)MODBUS_READ") }
record(longin, "refused") { field(DTYP, "asynInt32") field(INP, "@asyn(beyond,0)") field(SCAN, "I/O Intr") }
record(longin, "gone") { field(DTYP, "asynInt32") field(INP, "@asyn(lost,0)") field(SCAN, ".1 second") }
"#;

#[test]
fn records_on_blocks_of_a_modbus_device_have_the_values_of_its_registers() {
    let cells = Arc::new(Mutex::new(vec![0; 100]));
    cells.lock().unwrap()[20..27].copy_from_slice(&[0x4060, 0, 0xf800, 0x0300, 0x6162, 0x6300, 77]);
    let mine = cells.clone();
    let (port, gone) = (server(move |stream| plc(stream, &mine)), closed_port());
    let mut script = format!("drvAsynIPPortConfigure(\"plc\", \"127.0.0.1:{port}\")\n");
    let _ = writeln!(script, "drvAsynIPPortConfigure(\"gone\", \"127.0.0.1:{gone}\")");
    script += r#"modbusInterposeConfig("plc",0,5000,0)
drvModbusAsynConfigure("in","plc",0,3,20,10,"UINT16",20,"test")
drvModbusAsynConfigure("out","plc",0,6,024,10,4,1,"test")
drvModbusAsynConfigure("coils","plc",0,5,40,10,0,1,"test")
drvModbusAsynConfigure("bits","plc",0,1,40,10,0,20,"test")
drvModbusAsynConfigure("any","plc",0,3,-1,4,"UINT16",20,"test")
drvModbusAsynConfigure("idle","plc",0,3,26,1,"UINT16",0,"test")
drvModbusAsynConfigure("beyond","plc",0,3,95,10,"UINT16",20,"test")
drvModbusAsynConfigure("lost","gone",0,3,0,1,"UINT16",20,"test")"#;
    let mut ioc = Ioc::start("blocks", &script, BLOCKS);
    ioc.until("real", "3.5");
    // 12 bits with sign from -10 to 10.
    ioc.until("bipolar", "-10");
    ioc.until("field.RVAL", "3");
    ioc.until("name", "abc");
    // Outputs begin with the value that the device has.
    ioc.until("kept", "77");
    ioc.until("set", "3.5");
    ioc.until("never.STAT", "READ");
    ioc.put("set", "2.5");
    ioc.until("real", "2.5");
    ioc.put("bit", "on");
    ioc.put("say", "xyz");
    ioc.until("name", "xyz");
    assert_eq!(cells.lock().unwrap()[20..27], [0x4020, 0, 0xf800, 0x0300 | 0x0100, 0x7879, 0x7a00, 77]);
    ioc.put("coil", "1");
    ioc.until("coil:rbk", "1");
    ioc.until("absolute", "-2048");
    ioc.put("now", "1");
    ioc.until("never", "77");
    ioc.until("refused.STAT", "READ");
    ioc.until("gone.STAT", "COMM");
    // Arrays are processed after changes only: both, once each, and not at each of the readings.
    assert_ne!(ioc.text("ok"), "0");
    let changes: f64 = ioc.text("changes").parse().unwrap();
    let reads: f64 = ioc.text("ok").parse().unwrap();
    assert!(changes >= 2.0 && changes < reads, "{changes} of {reads}");
    let report = ioc.said("asynReport");
    assert!(
        report.contains("in Modbus of plc: unit 0, function 3, start 20, length 10, UINT16, poll 20ms, good; reads "),
        "{report}"
    );
}

/// A device with a line protocol.
fn talker(stream: TcpStream) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer = match line.as_str() {
            "*IDN?" => "ACME,7\r\n",
            "CURR?" => "1.25A\r\n",
            "FIRE" => "EVENT 17\r\n",
            "RAW" => "V=2.5;",
            _ => "",
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

const MESSAGES: &str = r#"
record(stringin, "idn") { field(DTYP, "asynOctetCmdResponse") field(INP, "@asyn(dev,0,5)*IDN?") }
record(waveform, "wave") { field(DTYP, "asynOctetCmdResponse") field(INP, "@asyn(dev,0,5)*IDN?") field(NELM, "4") field(FTVL, "CHAR") }
record(stringin, "question") { field(VAL, "CURR?") }
record(stringin, "ask") { field(DTYP, "asynOctetWriteRead") field(INP, "@asyn(dev,0,5)question") }
record(stringout, "say") { field(DTYP, "asynOctetWrite") field(OUT, "@asyn(dev)") field(VAL, "CURR?") field(FLNK, "hear") }
record(stringin, "hear") { field(DTYP, "asynOctetRead") field(INP, "@asyn(dev,0,5)") }
record(stringin, "event") { field(DTYP, "asynOctetRead") field(INP, "@asyn(dev)") field(SCAN, "I/O Intr") }
record(stringin, "silent") { field(DTYP, "asynOctetCmdResponse") field(INP, "@asyn(dev,0,0.05)QUIET") }
record(stringin, "gone") { field(DTYP, "asynOctetCmdResponse") field(INP, "@asyn(gone)*IDN?") }
record(stringout, "parm:out") { field(DTYP, "asyn so stringParm") field(OUT, "@asyn(dev)TERM=0d0a") field(VAL, "RAW") field(FLNK, "parm:in") }
record(ai, "parm:in") { field(DTYP, "asyn ai stringParm") field(INP, "@asyn(dev)TERM=3b,IX=2,FMT=%lf,TO=5000") field(PREC, "1") }
record(longin, "after") {}
record(asyn, "panel") { field(PORT, "dev") field(AOUT, "*IDN?") field(TMOT, "5") }
record(asyn, "lost") { field(PORT, "none") }
"#;

#[test]
fn octet_records_and_commands_exchange_messages_with_a_device() {
    let (port, gone) = (server(talker), closed_port());
    let script = format!(
        "drvAsynIPPortConfigure(\"dev\", \"127.0.0.1:{port}\")\ndrvAsynIPPortConfigure(\"gone\", \"127.0.0.1:{gone}\")\n\
         asynOctetSetInputEos(\"dev\",0,\"\\r\\n\")\nasynOctetSetOutputEos(\"dev\",0,\"\\n\")\nafterInit \"dbpf after 5\""
    );
    let mut ioc = Ioc::start("octets", &script, MESSAGES);
    ioc.until("after", "5");
    ioc.process("idn");
    ioc.until("idn", "ACME,7");
    ioc.process("wave");
    ioc.until("wave.NORD", "4");
    ioc.process("ask");
    ioc.until("ask", "1.25A");
    ioc.process("say");
    ioc.until("hear", "1.25A");
    ioc.put("say", "FIRE");
    ioc.until("event", "EVENT 17");
    ioc.until("hear", "EVENT 17");
    ioc.process("silent");
    ioc.until("silent.STAT", "TIMEOUT");
    ioc.process("gone");
    ioc.until("gone.STAT", "COMM");
    ioc.process("parm:out");
    ioc.until("parm:in", "2.5");
    ioc.until("panel.CNCT", "Connect");
    ioc.until("panel.IEOS", "\\r\\n");
    ioc.process("panel");
    ioc.until("panel.AINP", "ACME,7");
    assert_eq!(
        ["NORD", "NAWT", "EOMR", "SEVR"].map(|field| ioc.text(&format!("panel.{field}"))),
        ["6", "6", "Eos", "NO_ALARM"]
    );
    ioc.put("panel.TMOD", "Write");
    ioc.put("panel.AOUT", "FIRE");
    ioc.put("panel.TMOD", "Read");
    ioc.process("panel");
    ioc.until("panel.AINP", "EVENT 17");
    ioc.put("panel.TB3", "On");
    assert_eq!(ioc.text("panel.TMSK"), "8");
    ioc.put("panel.TMSK", "0");
    assert_eq!(ioc.text("panel.TB3"), "Off");
    ioc.put("panel.TMOT", "0.05");
    ioc.process("panel");
    ioc.until("panel.ERRS", "no answer in time");
    assert_eq!(ioc.text("panel.STAT"), "READ");
    assert_eq!(ioc.text("lost.CNCT"), "Disconnect");
    ioc.until("lost.ERRS", "no port none");
    let trace = ioc.folder.join("trace");
    ioc.run(&format!("asynSetTraceFile dev 0 \"{}\"", trace.display()));
    ioc.run("asynSetTraceIOMask dev 0 ESCAPE");
    ioc.run("asynSetTraceMask dev 0 ERROR|DRIVER");
    ioc.run("asynOctetConnect E dev 0 5");
    assert_eq!(ioc.said("asynOctetWriteRead E *IDN?"), "ACME,7\n");
    let traced = std::fs::read_to_string(trace).unwrap();
    assert!(traced.contains(&format!("127.0.0.1:{port} write 6 bytes\n*IDN?\\n\n")), "{traced}");
    assert!(traced.contains("read 8 bytes\nACME,7\\r\\n\n"), "{traced}");
    ioc.run("asynOctetWrite E \"CURR?\"");
    assert_eq!(ioc.said("asynOctetRead E"), "1.25A\n");
    assert_eq!(ioc.said("asynOctetGetInputEos dev 0"), "\"\\r\\n\"\n");
    let wrong = ioc.shell.run_line("asynOctetRead F").unwrap_err().0;
    assert!(wrong.contains("no name \"F\""), "{wrong}");
}

/// A power supply with a line protocol, until it is dropped.
struct Supply {
    amps: Arc<Mutex<String>>,
    stream: TcpStream,
}

impl Supply {
    /// Waits for the connection of an IOC.
    fn start(port: u16, amps: &str) -> Self {
        let (mut out, _) = TcpListener::bind(("127.0.0.1", port)).unwrap().accept().unwrap();
        let (amps, stream) = (Arc::new(Mutex::new(amps.to_owned())), out.try_clone().unwrap());
        let (mine, lines) = (amps.clone(), BufReader::new(out.try_clone().unwrap()).lines());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let answer = match line.strip_prefix("SET ") {
                    Some(amps) => {
                        amps.clone_into(&mut mine.lock().unwrap());
                        "OK\n".to_owned()
                    }
                    None => format!("SET {}\n", mine.lock().unwrap()),
                };
                if out.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self { amps, stream }
    }

    fn set(&self, amps: &str) {
        amps.clone_into(&mut self.amps.lock().unwrap());
    }

    fn amps(&self) -> String {
        self.amps.lock().unwrap().clone()
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        // The IOC may have closed it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

const SUPPLY_PROTOCOL: &str = "Terminator = LF;\nReplyTimeout = 60000;\nLockTimeout = 60000;\n\
                               set { out \"SET %.1f\"; in \"OK\"; @init { out \"SET?\"; in \"SET %f\"; } }\n";

/// The value of `Supply`, from StreamDevice's manual, "Initialization".
#[test]
fn a_stream_output_takes_the_value_of_its_device_after_each_connect_and_on_request() {
    let place = closed_port();
    let folder = std::env::temp_dir().join(format!("asyn-supply-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("supply.proto"), SUPPLY_PROTOCOL).unwrap();
    let script = format!(
        "epicsEnvSet STREAM_PROTOCOL_PATH \"{}\"\ndrvAsynIPPortConfigure(\"psu\", \"127.0.0.1:{place}\")",
        folder.display()
    );
    let database = r#"record(ao, "set") { field(DTYP, "stream") field(OUT, "@supply.proto set psu") field(PREC, "1") field(FLNK, "count") }
        record(calc, "count") { field(CALC, "A+1") field(INPA, "count") }"#;
    let mut ioc = Ioc::start("supply", &script, database);
    assert_eq!(ioc.text("set.UDF"), "1");
    let supply = Supply::start(place, "7.0");
    ioc.until("set", "7.0");
    assert_eq!(["UDF", "SEVR", "STAT"].map(|field| ioc.text(&format!("set.{field}"))), ["0", "NO_ALARM", "NO_ALARM"]);
    ioc.put("set", "5");
    ioc.until("count", "1");
    assert_eq!(supply.amps(), "5.0");
    drop(supply);
    let supply = Supply::start(place, "6.5");
    ioc.until("set", "6.5");
    supply.set("4.0");
    ioc.run("streamReinit psu");
    ioc.until("set", "4.0");
    supply.set("3.0");
    ioc.run("streamReload s*");
    ioc.until("set", "3.0");
    supply.set("2.0");
    ioc.run("iocPause");
    ioc.run("iocRun");
    ioc.until("set", "2.0");
    // Only this processes the record, and it does not write.
    assert_eq!(ioc.text("count"), "1");
    supply.set("1.0");
    ioc.put("set.PROC", "2");
    ioc.until("count", "2");
    assert_eq!((ioc.text("set"), supply.amps()), ("1.0".to_owned(), "1.0".to_owned()));
    for (line, expected) in
        [("streamReload nobody", "no record with DTYP stream"), ("streamReinit none", "no port \"none\"")]
    {
        let wrong = ioc.shell.run_line(line).unwrap_err().0;
        assert!(wrong.contains(expected), "{wrong}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
