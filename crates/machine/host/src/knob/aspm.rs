//! Power saving of PCI Express links.

use super::{Doc, Knob, text};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Whether idle PCI Express links sleep.
#[derive(Debug)]
pub(super) struct Aspm;

impl Knob for Aspm {
    fn name(&self) -> &'static str {
        "PCIe power saving"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "whether idle PCI Express links sleep",
            why: "waking a link costs tens of microseconds",
            good: "performance",
            since: "2.6.26",
            source: "Documentation/admin-guide/kernel-parameters.txt",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/module/pcie_aspm/parameters/policy"]
    }

    fn form(&self) -> Form {
        Form::Choice
    }

    fn good(&self, _: &Context<'_>, _: &str, _: &Value) -> Option<Value> {
        text("performance")
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("the firmware may keep the links to itself")
    }
}
