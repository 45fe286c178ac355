//! The plant's shield: asked for before the first process starts, given back after the last has ended.

use host::plant::Plant;

/// How the plant's shield stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shielding {
    /// The plant wants none.
    Unwanted,
    /// It is wanted; this version of the supervisor does not apply it.
    Lacking,
}

impl Shielding {
    /// Whether CPUs are isolated.
    pub(crate) fn stands(&self) -> bool {
        match self {
            Self::Unwanted | Self::Lacking => false,
        }
    }

    /// A few words for listings.
    pub(crate) fn words(&self, plant: &Plant) -> String {
        match (self, &plant.shield) {
            (Self::Lacking, Some(shield)) => format!("CPUs {} NOT isolated", shield.cpus),
            (Self::Lacking | Self::Unwanted, _) => "no shield".to_owned(),
        }
    }
}
