//! A shield for a measurement.

use crate::Failed;
use crate::Touched;
use base::CpuSet;
use host::plan::{Profile, Want};
use keep::RunDir;
use keep::shield::{self, ShieldGroup};
use sys::root::RootDir;

/// A shield that is given back, whatever happens.
pub(super) struct Shielded {
    /// Where the shield wants its tasks.
    pub(super) place: ShieldGroup,
    want: Want,
    released: bool,
}

impl Shielded {
    /// Shields CPUs from everybody but those spared, and this process and its parent.
    pub(super) fn apply(touched: &Touched, cpus: &CpuSet) -> Result<Self, Failed> {
        let root = RootDir::machine();
        let want = Want {
            cpus: *cpus,
            profile: Profile::default(),
            spare: touched.spare()?,
            own: shield::own_processes(),
            ..Want::default()
        };
        let applied = shield::apply(&root, &want, &RunDir::from_env())?;
        Ok(Self { place: applied.place, want, released: false })
    }

    /// Threads of others that may run on the shielded CPUs, each with its name.
    pub(super) fn strangers(&self) -> Result<Vec<String>, Failed> {
        Ok(shield::strangers(&RootDir::machine(), &self.want)?)
    }

    /// Gives the machine back.
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
            // On the way out of an error that is told already; what is left, the next release puts back.
            let _ = shield::release(&RootDir::machine(), &RunDir::from_env(), false);
        }
    }
}
