//! What can be wrong before the loop runs.

use base::DurNs;

/// Why a loop cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket cannot be had.
    #[error("{address}: {error}; expected an address of this machine for pixels, one that can be reached for commands")]
    Socket {
        /// Where.
        address: std::net::SocketAddr,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// No camera.
    #[error("no whole frame came for {0}; expected a camera that sends to --pixels: `tahti demo telescope`")]
    NoFrames(DurNs),
    /// A part of another size.
    #[error("a {what} of {found} numbers; expected {expected}")]
    Size {
        /// Which.
        what: &'static str,
        /// Its numbers.
        found: usize,
        /// Those of this loop.
        expected: usize,
    },
    /// The camera does not see what the mirror does.
    #[error(
        "none of {0} pokes was seen by the camera; expected spots that move: is the lamp on, do commands reach the mirror?"
    )]
    Unseen(usize),
    /// A calibration that the sensor cannot have.
    #[error(transparent)]
    Aperture(#[from] kernels::BadAperture),
    /// A size that does not fit.
    #[error(transparent)]
    Misfit(#[from] kernels::Misfit),
    /// A command that cannot be written.
    #[error(transparent)]
    Command(#[from] optics::CommandError),
    /// What was measured has no inverse.
    #[error(transparent)]
    Singular(#[from] optics::reconstruct::Singular),
    /// The team cannot be started.
    #[error(transparent)]
    Team(#[from] rt::team::TeamError),
    /// A stream cannot be written.
    #[error("{0}; expected a folder that this process may write, best in memory (/dev/shm)")]
    Stream(#[from] sys::Error),
    /// Nothing can be shown under this name.
    #[error(transparent)]
    Share(#[from] rt::ShareError),
}
