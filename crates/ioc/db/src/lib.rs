//! The EPICS database engine: records, links, scans, alarms, monitors.
//!
//! The engine does no I/O: it opens no file, reads no clock and starts no thread. The caller passes in file contents and the
//! time. Results leave through queues that the shell drains.
//!
//! A [`Db`] has one owner at a time. Processing, writing and reading need exclusive access. Processing records with scalar
//! values does not allocate.
//!
//! ```
//! use base::{EventMask, MonoNs, Stamp, Value};
//! use db::{Db, Macros, Now};
//!
//! let now = Now { wall: Stamp::from_unix(1_800_000_000, 0), mono: MonoNs(0) };
//! let mut db = Db::new();
//! db.load_records("record(ao, \"$(P)set\") { field(PREC, 1) }", "demo.db", &Macros::parse("P=X:"), &mut |_| None).unwrap();
//! db.init(now);
//! let channel = db.find("X:set.VAL").unwrap();
//! let queue = db.open_queue(100);
//! db.subscribe(queue, &channel, EventMask::VALUE, 7);
//! db.put(&channel, &Value::from("2.5"), now).unwrap();
//! assert_eq!(db.get(&channel, usize::MAX), Value::from(2.5));
//! let mut seen = Vec::new();
//! db.drain(queue, 100, |_, event| seen.push(event.token));
//! assert_eq!(seen, [7]);
//! ```
//!
//! | task | functions |
//! |---|---|
//! | build | [`Db::new`], [`Db::load_dbd`], [`Db::load_records`], [`Db::init`] |
//! | divide among owners | [`Db::split`], [`Db::learn`], [`Db::location_of`] |
//! | find | [`Db::find`] → [`Channel`], [`Db::info`], [`Db::meta`], [`Db::records`] |
//! | read | [`Db::get`], [`Db::alarm`], [`Db::stamp`] |
//! | write | [`Db::put`] (as dbPutField), [`Db::put_notify`] (completion by [`Db::take_completed`]), [`Db::put_ackt`], [`Db::put_acks`] |
//! | watch | [`Db::open_queue`], [`Db::subscribe`], [`Db::drain`], [`Db::flow_control`] |
//! | scan | [`Db::scans`], [`Db::scan`], [`Db::post_event`], [`Db::process`] |
//! | devices | [`Db::add_support`], [`Db::next_request`], [`Db::complete`]; [`Db::source`], [`Db::listen`], [`Db::feed`] or [`Db::interrupt`] (I/O Intr) |
//! | advance time | [`Db::advance`] (delays, callbacks, scan-once) and [`Db::next_deadline`] |
//! | compute | [`Db::register_function`], [`Db::finish_function`] |
//! | save and restore | [`Db::saved`], [`write_sav`], [`parse_sav`], [`Db::restore_first`], [`Db::restore_at_init`] |
//! | access security | [`Security::parse`], [`Security::rights`], [`Db::take_regrouped`] |
//! | report | [`Db::links_of`], [`Db::lock_set_members`], [`Db::queues`] |
//! | links to other IOCs | [`Db::next_remote`], [`Db::remote_update`], [`Db::remote_updates`], [`Db::remote_disconnect`] |
//!
//! Modules, from the lowest layer up: `text` (file syntax, no database), `calc` (expressions), `security` (access rules),
//! `model` (field tables, field storage, links as data), `rec` (record types, one file each), `run` (the engine), `load`
//! (files into records), `report`.
//!
//! The parts of a [`Db`] can be borrowed separately, so a function's signature shows what it may touch: `Records` (common
//! fields by record number, type-specific fields by body), `Links`, `Scans`, `Events`, `Notifies`, `Supports`, `Functions`,
//! `Outbox`, `Time`, `Pass`, `Split`.
#![forbid(unsafe_code)]

mod calc;
mod load;
mod model;
mod rec;
mod report;
mod run;
mod security;
mod text;

pub use calc::CalcError;
pub use model::id::RecId;
pub use model::pva_link::{PvaLink, PvaProcess};
pub use model::schema::{BreakTable, Device, FieldDef, Menu, Schema, Special, TypeDef};
pub use rec::message::Message as AlarmMessage;
pub use report::c_headers::c_headers;
pub use report::links::{LinkChannel, LinkInfo};
pub use run::callback::QueueInfo;
pub use run::channel::{Channel, FieldInfo, Processing};
pub use run::device::Stream;
pub use run::device::support::{Answers, AttachError, Attached, Attaching, Direct, Output, Request, Support};
pub use run::engine::{Counters, Db, Notice, Now};
pub use run::events::{Event, Posted, QueueId, SubId};
pub use run::filter::Filters;
pub use run::function::{ARGUMENTS, ASubCall, Call, Function, RecordFields, SubCall, Token};
pub use run::link::remote::{RemoteId, RemoteRequest, RemoteUpdate};
pub use run::notify::{Completed, NotifyState};
pub use run::scan::{DeviceSample, Scan, Signal, SourceId};
pub use run::split::{RecordLocation, ScanGroup};
pub use run::stop::{Entry, Hook, Stop, StopSet};
pub use security::{Condition, DEFAULT_GROUP, Grant, Group, Input, Members, Rights, Rule, Security};
pub use text::error::{FileError, FileErrors, FindError, Position, PutError, SplitError};
pub use text::lex::unescape;
pub use text::local::{LocalText, stamp_text};
pub use text::macros::Macros;
pub use text::outline::{Outline, outline, undefined_macros};
pub use text::saved::{RequestFile, Requested, Saved, SavedValue, parse_request, parse_sav, write_sav};
pub use text::substitutions::{Instance, parse_substitutions};
