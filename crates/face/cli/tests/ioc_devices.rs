//! Device supports of `tahti ioc` with simulated devices that answer, hang, send wrong data, disconnect and come
//! back.

use fieldbus::modbus::{Exception, Framing, Request, Response, Table, encode};
use harness::ioc::Ioc;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A PLC with 100 registers and coils. Register 99 does not exist. Reading register 98 closes the connection in the
/// middle of an answer.
#[derive(Clone, Default)]
struct Plc(Arc<Mutex<Vec<u16>>>);

impl Plc {
    fn start() -> (Self, u16) {
        let plc = Self(Arc::new(Mutex::new(vec![0; 100])));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mine = plc.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let plc = mine.clone();
                std::thread::spawn(move || plc.serve(stream.unwrap()));
            }
        });
        (plc, port)
    }

    fn serve(&self, mut stream: TcpStream) {
        loop {
            let mut header = [0; 7];
            if stream.read_exact(&mut header).is_err() {
                return;
            }
            let mut pdu = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]])) - 1];
            stream.read_exact(&mut pdu).unwrap();
            let request = Request::decode(&pdu).unwrap();
            let (mut answer, mut bytes) = (Vec::new(), Vec::new());
            self.answer(&request).encode(&request, &mut answer);
            encode(Framing::Tcp, u16::from_be_bytes([header[0], header[1]]), header[6], &answer, &mut bytes);
            let broken = matches!(request, Request::Read { address: 98, .. });
            let len = if broken { 9 } else { bytes.len() };
            if stream.write_all(&bytes[..len]).is_err() || broken {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let mut cells = self.0.lock().unwrap();
        match request {
            Request::Read { address, count, .. } if usize::from(address + count) > 99 && *address != 98 => {
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
}

const MODBUS: &str = r#"
record(ao, "set") { field(DTYP, "Modbus TCP") field(OUT, "@plc holding 10 FLOAT32_BE") field(PREC, "2") }
record(ai, "get") { field(DTYP, "Modbus TCP") field(INP, "@plc input 10 FLOAT32_BE") field(SCAN, ".1 second") field(PREC, "2") }
record(ai, "raw") { field(DTYP, "Modbus TCP") field(INP, "@plc holding 20 INT16") field(LINR, "SLOPE") field(ESLO, "0.1") field(SCAN, ".1 second") }
record(longin, "changed") { field(DTYP, "Modbus TCP") field(INP, "@plc holding 20 INT16 poll=20ms") field(SCAN, "I/O Intr") field(FLNK, "count") }
record(calc, "count") { field(CALC, "A+1") field(INPA, "count") }
record(bo, "coil") { field(DTYP, "Modbus TCP") field(OUT, "@plc coil 30") field(ZNAM, "off") field(ONAM, "on") }
record(bi, "coil:rbk") { field(DTYP, "Modbus TCP") field(INP, "@plc coil 30") field(SCAN, ".1 second") field(ZNAM, "off") field(ONAM, "on") }
record(waveform, "wave") { field(DTYP, "Modbus TCP") field(INP, "@plc holding 10") field(NELM, "2") field(FTVL, "USHORT") }
record(ai, "refused") { field(DTYP, "Modbus TCP") field(INP, "@plc holding 99") }
record(ai, "broken") { field(DTYP, "Modbus TCP") field(INP, "@plc holding 98") }
record(ai, "hung") { field(DTYP, "Modbus TCP") field(INP, "@dumb holding 0 timeout=30ms") }
record(ai, "gone") { field(DTYP, "Modbus TCP") field(INP, "@gone holding 0") }
record(ai, "lies") { field(DTYP, "Modbus TCP") field(INP, "@liar holding 0") }
record(ai, "wrong") { field(DTYP, "Modbus TCP") field(INP, "@plc register 0") }
"#;

/// A TCP server that runs `with` for each connection.
fn device(with: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let with = Arc::new(with);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let with = with.clone();
            std::thread::spawn(move || with(stream.unwrap()));
        }
    });
    port
}

fn script(ports: &[(&str, u16)], then: &str) -> String {
    let ports = ports.iter().map(|(name, port)| format!("drvAsynIPPortConfigure(\"{name}\", \"127.0.0.1:{port}\")\n"));
    format!("{}{then}\n", ports.collect::<String>())
}

#[test]
fn modbus_records_read_write_poll_and_raise_the_alarms_that_users_expect() {
    let (plc, port) = Plc::start();
    let dumb = device(|mut stream| while stream.read(&mut [0; 64]).is_ok_and(|len| len > 0) {});
    let liar = device(|mut stream| {
        // The client may have disconnected already.
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script =
        script(&[("plc", port), ("dumb", dumb), ("liar", liar), ("gone", gone)], "dbLoadRecords t.db\niocInit");
    let mut ioc = Ioc::start(&[("t.db", MODBUS), ("st.cmd", &script)], &["st.cmd"]);
    ioc.say("dbpf set 2.5");
    ioc.until("dbgf get", |said| said.contains(" 2.5 "));
    assert_eq!(plc.0.lock().unwrap()[10..12], [0x4020, 0]);
    ioc.until("dbpf wave.PROC 1\ndbgf wave", |said| said.contains("16416 = 0x4020") || said.contains("16416"));
    plc.0.lock().unwrap()[20] = (-15i16) as u16;
    ioc.until("dbgf raw", |said| said.contains("-1.5"));
    ioc.until("dbgf changed", |said| said.contains("-15"));
    let count = ioc.say("dbgf count");
    plc.0.lock().unwrap()[20] = 7;
    ioc.until("dbgf changed", |said| said.contains(" 7 "));
    assert_ne!(ioc.say("dbgf count"), count, "a change processes the record and its linked records");
    ioc.say("dbpf coil on");
    ioc.until("dbgf coil:rbk", |said| said.contains("\"on\""));
    for (record, status) in
        [("refused", "READ"), ("broken", "COMM"), ("hung", "TIMEOUT"), ("gone", "COMM"), ("lies", "COMM")]
    {
        let ask = format!("dbpf {record}.PROC 1\ndbgf {record}.STAT");
        ioc.until(&ask, |said| said.contains(&format!("\"{status}\"")));
        assert!(ioc.say(&format!("dbgf {record}.SEVR")).contains("INVALID"), "{record}");
    }
    // The broken connection is opened again, for all records.
    plc.0.lock().unwrap()[20] = 40;
    ioc.until("dbgf raw", |said| said.contains(" 4 "));
    assert!(ioc.say("dbgf raw.SEVR").contains("NO_ALARM"));
    let report = ioc.say("asynReport");
    assert!(report.contains(&format!("plc 127.0.0.1:{port} connected")), "{report}");
    assert!(report.contains("gone") && report.contains("not connected: "), "{report}");
    assert_eq!(ioc.exit(), Some(0));
}

const PROTOCOL: &str = r#"
Terminator = CR LF;
ReplyTimeout = 200;
get { out "CURR?"; in "CURR %f A"; }
set { out "CURR %.3f"; in "OK"; }
name { out "*IDN?"; in "%39c"; ExtraInput = Ignore; }
wave { out "WAVE?"; in "%d"; Separator = ","; }
mode { out "MODE %{STANDBY|RUN}"; }
event { in "EVENT %d"; }
silent { out "SILENT"; in "%d"; }
half { out "HALF"; in "%d"; }
odd { out "ODD"; in "%d"; }
"#;

const STREAM: &str = r#"
record(ao, "set") { field(DTYP, "stream") field(OUT, "@supply.proto set ps") }
record(ai, "get") { field(DTYP, "stream") field(INP, "@supply.proto get() ps 0") field(SCAN, ".1 second") field(PREC, "3") }
record(stringin, "name") { field(DTYP, "stream") field(INP, "@supply.proto name ps") field(PINI, "YES") }
record(waveform, "wave") { field(DTYP, "stream") field(INP, "@supply.proto wave ps") field(NELM, "8") field(FTVL, "LONG") }
record(mbbo, "mode") { field(DTYP, "stream") field(OUT, "@supply.proto mode ps") field(ZRST, "standby") field(ONST, "run") }
record(longin, "event") { field(DTYP, "stream") field(INP, "@supply.proto event ps") field(SCAN, "I/O Intr") }
record(longin, "silent") { field(DTYP, "stream") field(INP, "@supply.proto silent ps") }
record(longin, "half") { field(DTYP, "stream") field(INP, "@supply.proto half ps") }
record(longin, "odd") { field(DTYP, "stream") field(INP, "@supply.proto odd ps") }
"#;

fn supply(stream: TcpStream, state: &Mutex<(String, String)>) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match line.split_once(' ') {
            Some(("CURR", value)) => {
                state.lock().unwrap().0 = value.to_owned();
                "OK\r\n".to_owned()
            }
            Some(("MODE", mode)) => {
                state.lock().unwrap().1 = mode.to_owned();
                "EVENT 17\r\n".to_owned()
            }
            _ => match line.as_str() {
                "CURR?" => format!("CURR {} A\r\n", state.lock().unwrap().0),
                "*IDN?" => "ACME,PS-100,0042,1.7, with a tail that does not fit\r\n".to_owned(),
                "WAVE?" => "1,2,3,5,8\r\n".to_owned(),
                "HALF" => "12".to_owned(),
                "ODD" => "not a number\r\n".to_owned(),
                _ => continue,
            },
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn stream_records_speak_the_protocol_of_their_file() {
    let state = Arc::new(Mutex::new(("0.0".to_owned(), String::new())));
    let theirs = state.clone();
    let port = device(move |stream| supply(stream, &theirs));
    let then = "epicsEnvSet STREAM_PROTOCOL_PATH protocols\ndbLoadRecords t.db\niocInit";
    let files = [("t.db", STREAM), ("protocols/supply.proto", PROTOCOL), ("st.cmd", &script(&[("ps", port)], then))];
    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    ioc.until("dbgf name", |said| said.contains("ACME,PS-100,0042,1.7"));
    ioc.say("dbpf set 12.5");
    ioc.until("dbgf get", |said| said.contains(" 12.5 "));
    assert_eq!(state.lock().unwrap().0, "12.500");
    ioc.until("dbpf wave.PROC 1\ndbgf wave", |said| said.contains('8'));
    ioc.say("dbpf mode run");
    ioc.until("dbgf event", |said| said.contains("17"));
    assert_eq!(state.lock().unwrap().1, "RUN");
    for (record, status) in [("silent", "TIMEOUT"), ("half", "READ"), ("odd", "CALC")] {
        ioc.until(&format!("dbpf {record}.PROC 1\ndbgf {record}.STAT"), |said| said.contains(&format!("\"{status}\"")));
    }
    ioc.say("dbpf set 3");
    ioc.until("dbgf get", |said| said.contains(" 3 "));
    assert_eq!(ioc.exit(), Some(0));
}

const STARTS_PROTOCOL: &str = r#"
Terminator = CR LF;
ReplyTimeout = 200;
volts { out "VOLTS %.1f"; in "OK"; @init { out "VOLTS?"; in "VOLTS %f"; } }
raw { out "RAW %d"; in "OK"; @init { out "RAW?"; in "RAW %d"; } }
power { out "POWER %{OFF|ON}"; in "OK"; @init { out "POWER?"; in "POWER %{OFF|ON}"; } }
mode { out "MODE %d"; in "OK"; @init { out "MODE?"; in "MODE %d"; } }
bits { out "BITS %x"; in "OK"; @init { out "BITS?"; in "BITS %x"; } }
name { out "NAME %s"; in "OK"; @init { out "NAME?"; in "NAME %s"; } }
lost { out "LOST %f"; in "OK"; @init { out "LOST?"; in "LOST %f"; } }
"#;

const STARTS: &str = r#"
record(ao, "volts") { field(DTYP, "stream") field(OUT, "@s.proto volts ps") field(VAL, "99") }
record(ao, "raw") { field(DTYP, "stream") field(OUT, "@s.proto raw ps") field(LINR, "SLOPE") field(ESLO, "0.5") }
record(bo, "power") { field(DTYP, "stream") field(OUT, "@s.proto power ps") field(ZNAM, "off") field(ONAM, "on") }
record(mbbo, "mode") { field(DTYP, "stream") field(OUT, "@s.proto mode ps") field(ONVL, 4) field(ONST, "idle") field(TWVL, 7) field(TWST, "run") }
record(mbboDirect, "bits") { field(DTYP, "stream") field(OUT, "@s.proto bits ps") }
record(stringout, "name") { field(DTYP, "stream") field(OUT, "@s.proto name ps") }
record(ao, "lost") { field(DTYP, "stream") field(OUT, "@s.proto lost ps") }
"#;

/// A device that answers with these values and records writes.
fn settings(stream: TcpStream, known: &[(&str, &str)], written: &Mutex<Vec<String>>) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match line.strip_suffix('?') {
            Some(name) => match known.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => format!("{name} {value}\r\n"),
                None => continue,
            },
            None => {
                written.lock().unwrap().push(line);
                "OK\r\n".to_owned()
            }
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn outputs_start_with_the_values_of_the_device_and_write_nothing() {
    let known = [("VOLTS", "12.5"), ("RAW", "123"), ("POWER", "ON"), ("MODE", "7"), ("BITS", "5"), ("NAME", "ACME")];
    let written = Arc::new(Mutex::new(Vec::new()));
    let theirs = written.clone();
    let port = device(move |stream| settings(stream, &known, &theirs));
    let then = "epicsEnvSet STREAM_PROTOCOL_PATH .\ndbLoadRecords t.db\niocInit";
    let files = [("t.db", STARTS), ("s.proto", STARTS_PROTOCOL), ("st.cmd", &script(&[("ps", port)], then))];
    let mut ioc = Ioc::start(&files, &["st.cmd"]);
    for (field, value) in [
        ("volts", " 12.5 "),
        ("volts.OVAL", " 12.5 "),
        ("raw", " 61.5 "),
        ("raw.RVAL", " 123 "),
        ("power", "\"on\""),
        ("mode", "\"run\""),
        ("bits", " 5 "),
        ("bits.B2", " 1 "),
        ("name", "\"ACME\""),
    ] {
        ioc.until(&format!("dbgf {field}"), |said| said.contains(value));
    }
    // The device does not answer for the last record, which is processed last.
    for (record, udf) in [("volts", 0), ("raw", 0), ("power", 0), ("mode", 0), ("bits", 0), ("name", 0), ("lost", 1)] {
        ioc.until(&format!("dbgf {record}.UDF"), |said| said.contains(&format!(" {udf} ")));
    }
    assert_eq!(*written.lock().unwrap(), Vec::<String>::new());
    ioc.say("dbpf raw 100");
    ioc.say("dbpf bits.B1 1");
    ioc.until("echo", |_| written.lock().unwrap().len() == 2);
    assert_eq!(*written.lock().unwrap(), ["RAW 200", "BITS 7"]);
}

const ELSEWHERE_PROTOCOL: &str = r#"
Terminator = CR LF;
ReplyTimeout = 200;
all { out "ALL %(\$1limit)d %(EGU)s?"; in "ALL %f %(\$1second)f %(\$1text)s"; @mismatch { in "ERR %(\$1text)39c"; } }
set { out "SET %s %{OFF|ON}"; in "SET %s %=s"; }
level { out "LEVEL %.1f"; in "LEVEL %f"; @init { out "BEGIN?"; in "BEGIN %f %(\$1second)f"; } }
same { out "SAME %(DESC)s %d"; in "SAME %(EGU)s"; }
heard { in "ALL %f %*f %(\$1heard:text)s"; }
bad { out "%(nobody)f"; }
when { out "TIME %(TIME)T(%s)?"; in "TIME %(TIME)T(%d %b %Y %H:%M:%.1S%+0100) %f"; }
"#;

const ELSEWHERE: &str = r#"
record(ai, "X:all") { field(DTYP, "stream") field(INP, "@e.proto all(X:) ps") field(EGU, "mm") }
record(longout, "X:limit") { field(VAL, "7") }
record(ao, "X:second") { field(FLNK, "X:count") field(SCAN, "SCANNED") }
record(stringin, "X:text") { field(DISV, "9") field(DISA, "8") }
record(calc, "X:count") { field(CALC, "A+1") field(INPA, "X:count") }
record(bo, "X:set") { field(DTYP, "stream") field(OUT, "@e.proto set ps") field(ZNAM, "closed") field(ONAM, "open") }
record(ao, "X:level") { field(DTYP, "stream") field(OUT, "@e.proto level(X:) ps") }
record(longin, "X:same") { field(DTYP, "stream") field(INP, "@e.proto same ps") field(VAL, "17") field(DESC, "two words") }
record(ai, "X:heard") { field(DTYP, "stream") field(INP, "@e.proto heard(X:) ps") field(SCAN, "I/O Intr") }
record(waveform, "X:heard:text") { field(FTVL, "CHAR") field(NELM, "10") }
record(ai, "X:when") { field(DTYP, "stream") field(INP, "@e.proto when ps") field(TSE, "-2") }
record(longin, "X:bad") { field(DTYP, "stream") field(INP, "@e.proto bad ps") }
"#;

/// Answers lines by this table, and records them.
fn table(stream: TcpStream, answers: &[(&str, &str)], heard: &Mutex<Vec<String>>) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = answers.iter().find(|(asked, _)| *asked == line).map(|(_, answer)| format!("{answer}\r\n"));
        heard.lock().unwrap().push(line);
        if out.write_all(answer.unwrap_or_default().as_bytes()).is_err() {
            return;
        }
    }
}

fn fields_of_other_records_are_read_and_written(scanned: &str, options: &[&str]) {
    let answers = [
        ("ALL 7 mm?", "ALL 1.5 2.5 warm"),
        ("ALL 8 mm?", "ERR too hot"),
        ("SET open ON", "SET open open"),
        ("LEVEL 3.0", "LEVEL 2.75"),
        ("BEGIN?", "BEGIN 12.5 99"),
        ("SAME two words 17", "SAME kV"),
        // A record that was never processed has the stamp of EPICS' epoch.
        ("TIME 631152000?", "TIME 3 Sep 2010 14:45:59.5 4"),
        ("TIME 1283521559?", "TIME 3 Sep 2010 14:45:59.5 5"),
    ];
    let heard = Arc::new(Mutex::new(Vec::new()));
    let theirs = heard.clone();
    let port = device(move |stream| table(stream, &answers, &theirs));
    let database = ELSEWHERE.replace("SCANNED", scanned);
    let then = "epicsEnvSet STREAM_PROTOCOL_PATH .\ndbLoadRecords t.db\niocInit";
    let files = [("t.db", &*database), ("e.proto", ELSEWHERE_PROTOCOL), ("st.cmd", &script(&[("ps", port)], then))];
    let mut ioc = Ioc::start(&files, &[options, &["st.cmd"]].concat());
    ioc.until("dbgf X:level", |said| said.contains(" 12.5 "));
    ioc.until("dbgf X:second", |said| said.contains(" 99 "));
    assert!(ioc.say("dbgf X:second.UDF").contains(" 0 "));
    ioc.until("dbpf X:all.PROC 1\ndbgf X:all", |said| said.contains(" 1.5 "));
    assert!(ioc.say("dbgf X:second").contains(" 2.5 "), "written before the record's own processing ends");
    assert!(ioc.say("dbgf X:text").contains("\"warm\""));
    ioc.until("dbgf X:heard", |said| said.contains(" 1.5 "));
    assert!(ioc.say("dbgf X:heard:text").contains("\"warm\""));
    // Text received by a handler also sets its record. The record that sent the request has an alarm.
    ioc.say("dbpf X:limit 8");
    ioc.until("dbpf X:all.PROC 1\ndbgf X:all.STAT", |said| said.contains("\"CALC\""));
    assert!(ioc.say("dbgf X:text").contains("\"too hot\""));
    // Outputs take the value that their device answers, and states are sent by name.
    ioc.say("dbpf X:level 3");
    ioc.until("dbgf X:level", |said| said.contains(" 2.75 "));
    ioc.say("dbpf X:set open");
    ioc.until("dbgf X:set.PACT", |said| said.contains(" 0 "));
    assert!(ioc.say("dbgf X:set.SEVR").contains("NO_ALARM"));
    // Fields of the record itself: read, and written without processing it.
    ioc.until("dbpf X:same.PROC 1\ndbgf X:same.EGU", |said| said.contains("\"kV\""));
    // The record is stamped with the time from the device.
    ioc.until("dbpf X:when.PROC 1\ndbgf X:when", |said| said.contains(" 5 "));
    ioc.until("dbpf X:bad.PROC 1\ndbgf X:bad.STAT", |said| said.contains("\"CALC\""));
    assert!(heard.lock().unwrap().iter().any(|line| line == "SET open ON"));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn a_protocol_reads_and_writes_fields_of_other_records() {
    fields_of_other_records_are_read_and_written("Passive", &[]);
}

#[test]
fn a_protocol_reads_and_writes_fields_that_other_threads_own() {
    fields_of_other_records_are_read_and_written("10 second", &["--scan", "10 second=other"]);
}

const OWN: &str = r#"
record(ao, "heater") { field(DTYP, "tahti Simulation") field(OUT, "@cell heater") field(PINI, "YES") field(VAL, "80") }
record(ai, "temperature") { field(DTYP, "tahti Simulation") field(INP, "@lag heater tau=1ms") field(SCAN, ".1 second") }
record(ai, "voltage") { field(DTYP, "tahti Variable") field(INP, "@PAGE/voltage every=10ms") field(SCAN, "I/O Intr") field(TSE, "-2") }
record(ai, "fast") { field(DTYP, "tahti Variable") field(INP, "@PAGE/voltage") field(SCAN, ".1 second") }
record(ao, "bad") { field(DTYP, "tahti Variable") field(OUT, "@PAGE/voltage") }
"#;

#[test]
fn variables_of_a_loop_and_simulations_are_records_on_scan_threads_too() {
    let page = format!("ioc-devices-{}", std::process::id());
    let database = OWN.replace("PAGE", &page);
    let mut ioc = Ioc::start(&[("t.db", &database)], &["--scan", ".1 second,I/O Intr=other", "-d", "t.db"]);
    ioc.until("dbgf temperature", |said| said.contains(" 80 "));
    ioc.until("dbgf fast.STAT", |said| said.contains("\"COMM\""));
    let exports = rt::Exports::open(&page, 2).unwrap();
    let first = ring::Number::Float(0.0);
    let index = exports.add(&ring::VariableSpec { name: "voltage", unit: "MV", first, safe: None }).unwrap();
    exports.set(index, ring::Number::Float(2.5), 41, sys::clock::mono_now());
    ioc.until("dbgf voltage", |said| said.contains(" 2.5 "));
    ioc.until("dbgf voltage.UTAG", |said| said.contains("41"));
    ioc.until("dbgf fast", |said| said.contains(" 2.5 "));
    exports.set(index, ring::Number::Float(3.5), 42, sys::clock::mono_now());
    ioc.until("dbgf voltage", |said| said.contains(" 3.5 "));
    assert!(ioc.say("dbgf voltage.SEVR").contains("NO_ALARM"));
    assert_eq!(ioc.exit(), Some(0));
}
