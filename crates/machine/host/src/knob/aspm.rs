//! Power saving of PCI Express links.

use super::{Doc, Knob, text};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Sleep of idle PCI Express links.
#[derive(Debug)]
pub(super) struct Aspm;

impl Knob for Aspm {
    fn name(&self) -> &'static str {
        "PCIe power saving"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "sleep of idle PCI Express links",
            why: "a link takes tens of microseconds to wake",
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
        Some("the firmware may control the links")
    }
}
