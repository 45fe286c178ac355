//! Protocol of the alarm server: one JSON object per line, in both directions.
//!
//! A request is an [`Act`] or a [`Look`]; each has one [`Reply`]. After `watch`, each changed alarm is sent as [`Reply::Change`]
//! until the connection ends.

use crate::{Act, Guide, State};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum size of a request; a longer one ends the connection.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A query.
    Look(Look),
    /// An action.
    Act(Act),
}

/// A query, such as `{"do":"list"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Look {
    /// List the alarms: [`Reply::List`].
    List {
        /// Names of channels or paths, with `*` and `?`; empty: all.
        #[serde(default)]
        names: Vec<String>,
        /// Include normal alarms.
        #[serde(default)]
        all: bool,
    },
    /// List all alarms, and then send changes.
    Watch,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// List of alarms.
    List(Box<List>),
    /// An alarm has changed.
    Change(Box<Row>),
    /// The action was executed.
    Done {
        /// Number of changed alarms.
        changed: usize,
    },
    /// The request was refused; the reason.
    Refused(String),
}

/// List of alarms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// Name of the set of alarms.
    pub name: String,
    /// Folder of the journal.
    pub folder: String,
    /// Whether maintenance mode is on.
    pub maintenance: bool,
    /// Number of alarms, including normal ones.
    pub alarms: usize,
    /// Number of disconnected alarms.
    pub disconnected: usize,
    /// Help for areas, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub areas: BTreeMap<String, crate::Help>,
    /// The alarms.
    pub rows: Vec<Row>,
}

impl List {
    /// Sorts by severity, most severe first, then by age, oldest first. Hidden alarms are last.
    pub fn sort(&mut self) {
        self.rows.sort_by_cached_key(|row| {
            let alarm = &row.state.alarm;
            (row.state.hidden().is_some(), Reverse(alarm.severity), alarm.time, row.path.clone())
        });
    }
}

/// An alarm as displayed to clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Path in the tree: `/NAME/AREA/CHANNEL`.
    pub path: String,
    /// The channel.
    pub channel: String,
    /// Its description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether the channel is connected.
    pub connected: bool,
    /// Instructions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<Guide>,
    /// Displays to open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displays: Vec<Guide>,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}
