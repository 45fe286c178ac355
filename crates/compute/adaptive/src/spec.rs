//! What a loop is made from.

use crate::error::Error;
use base::DurNs;
use kernels::{Level, Light};
use optics::{Geometry, Settings, Stored};
use std::net::{SocketAddr, UdpSocket};

/// A loop.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its sensor and mirror.
    pub geometry: Geometry,
    /// Time between two frames of the camera.
    pub period: DurNs,
    /// Vector instructions.
    pub level: Level,
    /// What counts as light.
    pub light: Light,
    /// How far an actuator goes up and down, in nanometres.
    pub stroke: f32,
    /// Share of the mean diagonal that is added before the interaction matrix is inverted.
    pub regularise: f64,
    /// How the reconstructor is kept.
    pub stored: Stored,
    /// Settings that hold until somebody sets others.
    pub begun: Settings,
}

/// A socket that sends to this address alone.
///
/// # Errors
/// The kernel's.
pub fn sender(to: SocketAddr) -> Result<UdpSocket, Error> {
    let refused = |error| Error::Socket { address: to, error };
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(refused)?;
    socket.connect(to).map_err(refused)?;
    Ok(socket)
}

/// A socket that takes what comes to this address.
///
/// # Errors
/// The kernel's.
pub fn receiver(at: SocketAddr) -> Result<UdpSocket, Error> {
    UdpSocket::bind(at).map_err(|error| Error::Socket { address: at, error })
}
