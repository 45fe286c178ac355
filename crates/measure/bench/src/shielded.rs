//! A shield for a measurement.

use crate::Failed;
use crate::Touched;
use base::CpuSet;
use host::plan::{Placed, Profile, Want};
use keep::RunDir;
use keep::shield::{self, ShieldGroup};
use sys::root::RootDir;

/// A shield, released on drop.
pub(super) struct Shielded {
    /// The group of the shield's tasks.
    pub(super) place: ShieldGroup,
    want: Want,
    released: bool,
}

impl Shielded {
    /// Shields CPUs from all tasks except the spared ones, this process and its parent.
    pub(super) fn apply(touched: &Touched, cpus: &CpuSet) -> Result<Self, Failed> {
        Self::with_irqs(touched, cpus, Vec::new())
    }

    /// The same with interrupts on the CPUs of their handlers.
    pub(super) fn with_irqs(touched: &Touched, cpus: &CpuSet, irqs: Vec<Placed>) -> Result<Self, Failed> {
        let root = RootDir::machine();
        let want = Want {
            cpus: *cpus,
            profile: Profile::default(),
            spare: touched.spare()?,
            own: shield::own_processes(),
            irqs,
            ..Want::default()
        };
        let applied = shield::apply(&root, &want, &RunDir::from_env())?;
        Ok(Self { place: applied.place, want, released: false })
    }

    /// Other processes' threads that may run on the shielded CPUs, each with its name.
    pub(super) fn foreign_threads(&self) -> Result<Vec<String>, Failed> {
        Ok(shield::strangers(&RootDir::machine(), &self.want)?)
    }

    /// Releases the shield.
    pub(super) fn release(mut self) -> Result<(), Failed> {
        self.released = true;
        let released = shield::release(&RootDir::machine(), &RunDir::from_env(), false);
        match released? {
            released if released.is_whole() => Ok(()),
            _ => Err(Failed::NotReleased),
        }
    }
}

impl Drop for Shielded {
    fn drop(&mut self) {
        if !self.released {
            // After another error, which is already reported. The next release restores the rest.
            let _ = shield::release(&RootDir::machine(), &RunDir::from_env(), false);
        }
    }
}
