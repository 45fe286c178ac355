//! The EPICS database engine: records, links, scans, alarms, monitors.
//!
//! Pure: it opens no file, knows no clock, starts no thread. Text of files comes in as text, time as an argument,
//! what happens goes out through queues that the shell drains.
//!
//! A [`Db`] belongs to one owner at a time; whoever processes, writes or reads it holds it exclusively. Nothing is
//! allocated while records with scalar values are processed.
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
//! | to | call |
//! |---|---|
//! | build | [`Db::new`], [`Db::load_dbd`], [`Db::load_records`], [`Db::init`] |
//! | divide among owners | [`Db::split`], [`Db::learn`], [`Db::away`] |
//! | find | [`Db::find`] → [`Channel`], [`Db::info`], [`Db::meta`], [`Db::records`] |
//! | read | [`Db::get`], [`Db::alarm`], [`Db::stamp`] |
//! | write | [`Db::put`] (as dbPutField), [`Db::put_notify`] (completion by [`Db::take_completed`]), [`Db::put_ackt`], [`Db::put_acks`] |
//! | watch | [`Db::open_queue`], [`Db::subscribe`], [`Db::drain`], [`Db::flow_control`] |
//! | scan | [`Db::scans`], [`Db::scan`], [`Db::post_event`], [`Db::process`] |
//! | devices | [`Db::add_support`], [`Db::next_request`], [`Db::complete`]; [`Db::source`], [`Db::listen`], [`Db::feed`] or [`Db::interrupt`] (I/O Intr) |
//! | go on | [`Db::advance`] (delays, callbacks, scan-once) and [`Db::next_deadline`] |
//! | compute | [`Db::register_function`], [`Db::finish_function`] |
//! | keep over restarts | [`Db::saved`], [`write_sav`], [`parse_sav`], [`Db::restore_first`], [`Db::restore_at_init`] |
//! | who may do what | [`Security::parse`], [`Security::rights`], [`Db::take_regrouped`] |
//! | report | [`Db::links_of`], [`Db::lock_set_members`], [`Db::queues`] |
//! | links to elsewhere | [`Db::next_remote`], [`Db::remote_update`], [`Db::remote_disconnect`] |
#![forbid(unsafe_code)]

mod access;
mod autosave;
mod calc;
mod callback;
mod channel;
mod common;
mod constant;
mod conv;
mod deadband;
mod dev;
mod engine;
mod error;
mod events;
mod filter;
mod function;
mod here;
mod init;
mod initial;
mod jlink;
mod jreport;
mod json;
mod lex;
mod link;
mod links;
mod load;
mod local;
mod look;
mod macros;
mod message;
mod meta;
mod names;
mod notify;
mod pool;
mod put;
mod rec;
mod record;
mod remote;
mod scan;
mod schema;
mod security;
mod slot;
mod split;
mod stop;
mod substitutions;
mod support;
mod through;

pub use autosave::{Saved, SavedValue, parse_request, parse_sav, write_sav};
pub use calc::CalcError;
pub use channel::{Channel, FieldInfo, RecId};
pub use dev::Stream;
pub use engine::{Counters, Db, Notice, Now};
pub use error::{FileError, FileErrors, FindError, Place, PutError};
pub use events::{Event, Posted, QueueId, SubId};
pub use filter::Filters;
pub use function::{ARGUMENTS, ASubCall, Call, Function, SubCall, Token};
pub use local::{LocalText, stamp_text};
pub use look::{LinkChannel, LinkInfo, QueueInfo};
pub use macros::Macros;
pub use notify::{Completed, NotifyState};
pub use remote::{RemoteId, RemoteRequest};
pub use scan::{Fed, Scan, Signal, SourceId};
pub use schema::{BreakTable, Device, FieldDef, Menu, Schema, Special, TypeDef};
pub use security::{Condition, DEFAULT_GROUP, Grant, Group, Input, Members, Rights, Rule, Security};
pub use split::{Away, ScanGroup};
pub use stop::{Entry, Hook, Stop, StopSet};
pub use substitutions::{Instance, parse_substitutions};
pub use support::{Answers, Attached, Attaching, Direct, Output, Request, Support};
