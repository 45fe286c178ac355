//! Frequency of the shared parts of a package: cache, mesh, memory controller.

use super::{Doc, Knob};
use crate::plan::Context;
use crate::snapshot::{Form, Value};

/// Lowest frequency of the cache, the mesh and the memory controller of a package (Intel).
#[derive(Debug)]
pub(super) struct Uncore;

impl Knob for Uncore {
    fn name(&self) -> &'static str {
        "uncore frequency"
    }

    fn doc(&self) -> Doc {
        Doc {
            what: "lowest frequency in kHz of the cache, the mesh and the memory controller of a package (Intel)",
            why: "the first access after an idle time waits until the mesh is fast again",
            good: "its max_freq_khz, in packages with shielded CPUs",
            since: "5.6",
            source: "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        }
    }

    fn files(&self) -> &'static [&'static str] {
        &["/sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz"]
    }

    fn form(&self) -> Form {
        Form::Text
    }

    fn also_reads(&self) -> &'static [(&'static str, Form)] {
        &[
            ("/sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz", Form::Text),
            ("/sys/devices/system/cpu/intel_uncore_frequency/*/package_id", Form::Text),
            ("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", Form::Text),
        ]
    }

    fn good(&self, context: &Context<'_>, path: &str, now: &Value) -> Option<Value> {
        let dir = path.strip_suffix("/min_freq_khz")?;
        let package = package(context, dir)?;
        let here = |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            context.snapshot.file_text(&path).and_then(|id| id.parse().ok()) == Some(package)
        };
        let most = context.snapshot.file_text(&format!("{dir}/max_freq_khz"))?;
        (context.want.cpus.iter().any(here) && now.text()? != most).then(|| Value::Text(most.to_owned()))
    }

    fn may_refuse(&self) -> Option<&'static str> {
        Some("the firmware controls the uncore frequency")
    }
}

/// The package of a directory: `package_00_die_01`, or `uncore03` with a file `package_id`.
fn package(context: &Context<'_>, dir: &str) -> Option<u32> {
    if let Some(id) = context.snapshot.file_text(&format!("{dir}/package_id")) {
        return id.parse().ok();
    }
    dir.rsplit('/').next()?.strip_prefix("package_")?.split('_').next()?.parse().ok()
}
