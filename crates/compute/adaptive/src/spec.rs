//! Specification of a loop.

use crate::error::Error;
use base::DurNs;
use kernels::{Level, Light};
use optics::{Geometry, Settings, Stored};
use std::net::{SocketAddr, UdpSocket};

/// A loop.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Layout of sensor and mirror.
    pub geometry: Geometry,
    /// Period of the camera's frames.
    pub period: DurNs,
    /// Vector instructions to use.
    pub level: Level,
    /// Threshold and minimum flux of a spot.
    pub light: Light,
    /// Maximum stroke of an actuator in each direction, in nanometres.
    pub stroke: f32,
    /// Regularisation of the inverse, as a share of the mean diagonal.
    pub regularise: f64,
    /// Number format of the reconstructor in memory.
    pub stored: Stored,
    /// The threads that find the spots.
    pub spots: SpotWork,
    /// Initial settings.
    pub begun: Settings,
}

/// The threads of a team that find the spots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpotWork {
    /// Each thread takes whole rows of sub-apertures. Their pixels move to its cache, and their slopes back.
    #[default]
    Shared,
    /// The leader, which has received the pixels. Only the slopes move.
    Leader,
}

/// A UDP socket connected to this address.
///
/// # Errors
/// An error of the kernel.
pub fn sender(to: SocketAddr) -> Result<UdpSocket, Error> {
    let refused = |error| Error::Socket { address: to, error };
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(refused)?;
    socket.connect(to).map_err(refused)?;
    Ok(socket)
}

/// A UDP socket bound to this address.
///
/// # Errors
/// An error of the kernel.
pub fn receiver(at: SocketAddr) -> Result<UdpSocket, Error> {
    UdpSocket::bind(at).map_err(|error| Error::Socket { address: at, error })
}
