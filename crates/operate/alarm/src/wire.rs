//! What is said on the socket of the alarms: a JSON object a line, both ways.
//!
//! A request is an [`Act`] or a [`Look`]; each has one [`Reply`]. After `watch` the rows of alarms follow that change
//! otherwise, each as [`Reply::Change`], until the connection ends.

use crate::{Act, Guide, State};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A longer request ends the connection.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To know something.
    Look(Look),
    /// To do something.
    Act(Act),
}

/// What can be known: `{"do":"list"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Look {
    /// The state of the alarms: [`Reply::List`].
    List {
        /// Names of channels or paths, with `*` and `?`; all where there is none.
        #[serde(default)]
        names: Vec<String>,
        /// Also those that are well.
        #[serde(default)]
        all: bool,
    },
    /// The same, and from then on what changes.
    Watch,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The state of the alarms.
    List(Box<List>),
    /// An alarm has changed.
    Change(Box<Row>),
    /// Done: so many alarms were changed by it.
    Done {
        /// How many.
        changed: usize,
    },
    /// Not done, and why.
    Refused(String),
}

/// The state of the alarms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// What the whole is called.
    pub name: String,
    /// Where its journal is.
    pub folder: String,
    /// Whether what is invalid or unknown is acknowledged by itself.
    pub maintenance: bool,
    /// How many alarms there are, those that are well among them.
    pub alarms: usize,
    /// How many of them are not connected.
    pub disconnected: usize,
    /// What helps with a whole area, by its path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub areas: BTreeMap<String, crate::Help>,
    /// The alarms.
    pub rows: Vec<Row>,
}

impl List {
    /// Puts the worst first, of those the oldest, and what is put aside last.
    pub fn sort(&mut self) {
        self.rows.sort_by_cached_key(|row| {
            let alarm = &row.state.alarm;
            (row.state.hidden().is_some(), Reverse(alarm.severity), alarm.time, row.path.clone())
        });
    }
}

/// An alarm as those see it who look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its place in the tree: `/NAME/AREA/CHANNEL`.
    pub path: String,
    /// The channel.
    pub channel: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether the channel is connected.
    pub connected: bool,
    /// What to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<Guide>,
    /// What to look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displays: Vec<Guide>,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}
