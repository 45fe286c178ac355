//! A connection to a server of a destination, with one time limit for everything.

use alarm::Destination;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// Time limit of a try, from the connection to the last answer.
const WITHIN: Duration = Duration::from_secs(10);

/// A stream of bytes, encrypted or not.
pub(super) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// An open connection.
pub(super) struct Open {
    pub(super) stream: Box<dyn Stream>,
    /// Our address as a literal of SMTP.
    pub(super) here: String,
}

/// Connects to the server of a destination.
pub(super) fn open(to: &Destination) -> Result<Open, String> {
    let server = to.to.server();
    let until = Instant::now() + WITHIN;
    let name = format!("{} port {}", server.host, server.port);
    let failed = |error: &io::Error| super::clipped(&format!("{name}: {error}"));
    let addresses = (server.host.as_str(), server.port).to_socket_addrs().map_err(|error| failed(&error))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match left(until).and_then(|left| TcpStream::connect_timeout(&address, left)) {
            Ok(stream) => {
                let here = match stream.local_addr().map_err(|error| failed(&error))?.ip() {
                    std::net::IpAddr::V4(ip) => format!("[{ip}]"),
                    std::net::IpAddr::V6(ip) => format!("[IPv6:{ip}]"),
                };
                let timed = Timed { stream, until };
                let stream: Box<dyn Stream> = if server.is_secure { secured(timed, to)? } else { Box::new(timed) };
                return Ok(Open { stream, here });
            }
            Err(error) => last = error,
        }
    }
    Err(failed(&last))
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, format!("no complete answer within {WITHIN:?}")))
}

/// A stream whose operations together take at most until a time.
#[derive(Debug)]
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    /// Performs an operation. One that the kernel ends after its time limit is reported as such.
    fn within<T>(&mut self, operate: impl FnOnce(&mut TcpStream) -> io::Result<T>) -> io::Result<T> {
        let left = left(self.until)?;
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))?;
        operate(&mut self.stream).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, format!("no complete answer within {WITHIN:?}"))
            }
            _ => error,
        })
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.within(|stream| stream.read(bytes))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(not(feature = "tls"))]
fn secured(_: Timed, _: &Destination) -> Result<Box<dyn Stream>, String> {
    Err("this build has no TLS; expected one with `cargo build --features tls`".to_owned())
}

/// Begins TLS. The server's certificate must be issued for its name by an authority in the destination's file.
#[cfg(feature = "tls")]
fn secured(stream: Timed, to: &Destination) -> Result<Box<dyn Stream>, String> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    use std::sync::Arc;

    /// Maximum bytes of the file with the authorities.
    const BYTES_MAX: u64 = 4 << 20;

    let mut text = Vec::new();
    let file = std::fs::File::open(&to.ca).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
    file.map_err(|error| format!("`ca` {}: {error}", to.ca.display()))?;
    let mut roots = RootCertStore::empty();
    let (known, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
    if known == 0 {
        return Err(format!("`ca` {} has no certificate; expected PEM", to.ca.display()));
    }
    let host = to.to.server().host.clone();
    let failed = |error: rustls::Error| super::clipped(&format!("TLS with {}: {error}", to.to.server().host));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host).map_err(|error| format!("TLS: {error}"))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
    Ok(Box::new(StreamOwned::new(connection, stream)))
}
