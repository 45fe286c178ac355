//! The plant's shield: set up before the first process starts, released after the last has ended.

use crate::RunDir;
use crate::shield::{self, ShieldGroup};
use base::CpuSet;
use base::text::Counted;
use host::plan::{Spared, Want};
use host::plant::{Plant, Shield};
use std::path::PathBuf;
use sys::root::RootDir;

/// State of the plant's shield.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shielding {
    /// The plant file has no shield.
    Unwanted,
    /// Configured but unavailable.
    Lacking,
    /// Being set up. If the supervisor is killed, the next one reverts the changes it finds.
    Raising,
    /// Active.
    Stands {
        /// The isolated CPUs.
        cpus: CpuSet,
        /// Control group or affinity by which its tasks are placed.
        place: ShieldGroup,
        /// It was active before the plant started, so it stays active after the plant.
        borrowed: bool,
    },
}

/// Result of setting the shield up.
#[derive(Debug)]
pub(crate) struct Raised {
    /// The new state.
    pub(crate) shield: Shielding,
    /// Events, for the log.
    pub(crate) said: Vec<String>,
    /// Unavailable settings, each with its remedy.
    pub(crate) lacks: Vec<String>,
}

/// Result of releasing the shield.
#[derive(Debug, Default)]
pub(crate) struct Lowered {
    /// Whether all values are restored.
    pub(crate) whole: bool,
    /// Events and differences, for the log.
    pub(crate) said: Vec<String>,
}

impl Shielding {
    /// Whether this plant must release the shield.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Stands { borrowed: false, .. } | Self::Raising)
    }

    /// The CPUs that are isolated.
    pub(crate) fn cpus(&self) -> CpuSet {
        match self {
            Self::Stands { cpus, .. } => *cpus,
            Self::Unwanted | Self::Lacking | Self::Raising => CpuSet::EMPTY,
        }
    }

    /// The control groups that its tasks join.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        match self {
            Self::Stands { place: ShieldGroup::CpusetV1 { dir } | ShieldGroup::CgroupV2 { dir }, .. } => {
                vec![PathBuf::from(dir)]
            }
            Self::Stands { place: ShieldGroup::Affinity, .. } | Self::Unwanted | Self::Lacking | Self::Raising => {
                Vec::new()
            }
        }
    }

    /// Moves a thread into the shield's group. An ended thread is not an error.
    pub(crate) fn enter(&self, tid: i32) -> sys::Result<()> {
        let Self::Stands { place, .. } = self else { return Ok(()) };
        match place.enter(&RootDir::machine(), tid) {
            Err(error) if error.errno == rustix::io::Errno::SRCH => Ok(()),
            other => other,
        }
    }

    /// A short form for listings.
    pub(crate) fn words(&self, plant: &Plant) -> String {
        match (self, &plant.shield) {
            (Self::Stands { cpus, borrowed, .. }, _) => {
                format!("CPUs {cpus} isolated{}", if *borrowed { " (not by this plant)" } else { "" })
            }
            (Self::Lacking | Self::Raising, Some(shield)) => format!("CPUs {} NOT isolated", shield.cpus),
            (Self::Lacking | Self::Raising | Self::Unwanted, _) => "no shield".to_owned(),
        }
    }

    /// No shield, with the reason.
    pub(crate) fn lacking(wanted: &Shield, why: &dyn std::fmt::Display) -> Raised {
        let lacks = vec![format!("no shield on CPUs {}: {why}", wanted.cpus)];
        Raised { shield: Self::Lacking, said: Vec::new(), lacks }
    }

    /// Sets the plant's shield up. With `ours`, an active shield belongs to this plant: an earlier supervisor made it.
    pub(crate) fn raise(wanted: &Shield, ours: bool) -> Raised {
        let (root, dir) = (RootDir::machine(), RunDir::from_env());
        let lacking = |why: &dyn std::fmt::Display| Self::lacking(wanted, why);
        if !rustix::process::geteuid().is_root() {
            return lacking(&"only root may move other tasks and interrupts; run as root");
        }
        let mut spare = wanted.spare.clone();
        match Spared::list(&std::env::var("TAHTI_SPARE").unwrap_or_default()) {
            Ok(more) => spare.extend(more),
            Err(why) => return lacking(&format!("TAHTI_SPARE: {why}")),
        }
        // Not the parent: it may be init, the ancestor of all processes.
        let own = vec![rustix::process::getpid().as_raw_nonzero().get()];
        let want = Want {
            cpus: wanted.cpus,
            profile: wanted.profile,
            spare,
            own,
            irqs: wanted.irqs.clone(),
            parts: wanted.parts,
            ..Want::default()
        };
        match shield::apply(&root, &want, &dir) {
            Err(error) => lacking(&error),
            Ok(applied) => {
                let mut said: Vec<String> = applied.found.into_iter().collect();
                said.push(format!(
                    "CPUs {} isolated by {}: {} in {}",
                    want.cpus,
                    applied.backend,
                    Counted(applied.writes, "write"),
                    Counted(applied.rounds, "round")
                ));
                let refused = applied.refused.iter();
                let refused = refused.map(|refused| format!("{}: {}; {}", refused.label, refused.answer, refused.why));
                let drift = applied.drift.iter();
                let drift = drift.map(|drift| {
                    format!(
                        "{} was changed after it was written: expected {}, found {}",
                        drift.label, drift.expected, drift.found
                    )
                });
                let lacks = refused.chain(drift).collect();
                let borrowed = applied.stood && !ours;
                Raised { shield: Self::Stands { cpus: want.cpus, place: applied.place, borrowed }, said, lacks }
            }
        }
    }

    /// Releases the shield.
    pub(crate) fn lower(&mut self) -> Lowered {
        if !self.is_ours() {
            return Lowered { whole: true, said: Vec::new() };
        }
        let cpus = self.cpus();
        match shield::release(&RootDir::machine(), &RunDir::from_env(), false) {
            Err(error) => Lowered {
                whole: false,
                said: vec![format!("CPUs {cpus} ARE STILL ISOLATED: {error}; try `tahti shield release`")],
            },
            Ok(released) if released.want.is_none() && matches!(self, Self::Stands { .. }) => Lowered {
                whole: false,
                said: vec![format!(
                    "CPUs {cpus} MAY STILL BE ISOLATED: this plant applied a shield, and its journal is missing; see `tahti shield status`"
                )],
            },
            Ok(released) => {
                *self = Self::Lacking;
                let mut said = Vec::new();
                for kept in &released.kept {
                    said.push(format!(
                        "{} was changed by another program and is left as it is: was {}, shield {}, found {}",
                        kept.label, kept.before, kept.ours, kept.found
                    ));
                }
                for refused in &released.refused {
                    said.push(format!("{} was not restored: {}; {}", refused.label, refused.answer, refused.why));
                }
                let whole = released.is_whole();
                said.push(if whole {
                    format!("shield released: {} writes, everything is as it was", released.writes)
                } else {
                    format!("shield released, but the machine is NOT as it was ({} values differ)", said.len())
                });
                Lowered { whole, said }
            }
        }
    }
}

/// Whether any shield is active. A shield that cannot be read counts, so that it is not treated as this plant's.
pub(crate) fn stands_already() -> bool {
    !matches!(shield::current(&RootDir::machine(), &RunDir::from_env()), Ok(None))
}
