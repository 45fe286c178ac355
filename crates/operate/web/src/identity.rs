//! The identity of the server: a certificate and its key (TLS, RFC 8446).

use std::io;
#[cfg(feature = "tls")]
use std::os::unix::fs::MetadataExt as _;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;

/// Maximum number of bytes read of a certificate chain or a key.
#[cfg(feature = "tls")]
const BYTES_MAX: u64 = 1 << 20;

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The program was built without TLS.
    #[error(
        "this build has no TLS; expected one with `cargo build --features tls`, or no certificate and a tunnel (`ssh -L`)"
    )]
    NotBuilt,
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Other users may read the key.
    #[error("others may read the key {} (mode {mode:04o}, user {user}); expected mode 0600 and our own user or root: chmod 600", .path.display())]
    KeyIsOpen {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its owner.
        user: u32,
    },
    /// The file contains no certificate or no key.
    #[error("{} has no {expected} that can be used: {why}; expected PEM, as `openssl` and ACME clients write it", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
        /// The error.
        why: String,
    },
    /// The key belongs to another certificate, or TLS does not support its type.
    #[error("certificate {} and key {} cannot be used together: {why}", .certificate.display(), .key.display())]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// The reason.
        why: String,
    },
}

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate and its chain, in PEM.
    pub certificate: PathBuf,
    /// The key, in PEM. No other user may be able to read it.
    pub key: PathBuf,
}

impl IdentityFiles {
    /// Checks that this build can serve with the files.
    ///
    /// # Errors
    /// The build has no TLS, or the files cannot be used.
    pub fn check(&self) -> Result<(), IdentityError> {
        Identity::open(self.clone()).map(drop)
    }
}

#[cfg(feature = "tls")]
impl IdentityFiles {
    /// Reads both files.
    fn read(&self) -> Result<[Vec<u8>; 2], IdentityError> {
        let key = file(&self.key, |path, facts| {
            let (mode, user) = (facts.mode() & 0o7777, facts.uid());
            let is_ours = sys::peer::is_ours(user);
            match mode & 0o077 == 0 && is_ours {
                true => Ok(()),
                false => Err(IdentityError::KeyIsOpen { path, mode, user }),
            }
        })?;
        Ok([file(&self.certificate, |_, _| Ok(()))?, key])
    }

    /// Identifies the present contents of both files.
    fn version(&self) -> Option<[(u64, u64, i64, i64); 2]> {
        let of = |path: &Path| {
            let facts = std::fs::metadata(path).ok()?;
            Some((facts.ino(), facts.size(), facts.mtime(), facts.mtime_nsec()))
        };
        Some([of(&self.certificate)?, of(&self.key)?])
    }
}

/// Reads a file up to the maximum size. `wanted` checks its metadata.
#[cfg(feature = "tls")]
fn file(
    path: &Path,
    wanted: impl Fn(PathBuf, &std::fs::Metadata) -> Result<(), IdentityError>,
) -> Result<Vec<u8>, IdentityError> {
    use std::io::Read as _;
    let failed = |error| IdentityError::File { path: path.to_owned(), error };
    let open = std::fs::File::open(path).map_err(failed)?;
    // Checks the opened file. Another file may have this name later.
    wanted(path.to_owned(), &open.metadata().map_err(failed)?)?;
    let mut text = Vec::new();
    open.take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(not(feature = "tls"))]
pub(crate) use without::Identity;

#[cfg(not(feature = "tls"))]
mod without {
    use super::{IdentityError, IdentityFiles};

    /// Cannot be created in this build.
    #[derive(Debug)]
    pub(crate) enum Identity {}

    impl Identity {
        pub(crate) fn open(_: IdentityFiles) -> Result<Self, IdentityError> {
            Err(IdentityError::NotBuilt)
        }

        pub(crate) async fn accept(&self, _: tokio::net::TcpStream) -> Option<tokio::net::TcpStream> {
            match *self {}
        }
    }
}

#[cfg(feature = "tls")]
pub(crate) use with::Identity;

#[cfg(feature = "tls")]
mod with {
    use super::{IdentityError, IdentityFiles};
    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use std::sync::{Arc, Mutex, PoisonError};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    /// A certificate with its key. The files are read again when they change, because certificates expire earlier than plants.
    #[derive(Debug)]
    pub(crate) struct Identity {
        files: IdentityFiles,
        newest: Mutex<Newest>,
    }

    #[derive(Debug)]
    struct Newest {
        version: Option<[(u64, u64, i64, i64); 2]>,
        config: Arc<ServerConfig>,
    }

    impl Identity {
        pub(crate) fn open(files: IdentityFiles) -> Result<Self, IdentityError> {
            let newest = Mutex::new(Newest { version: files.version(), config: config(&files)? });
            Ok(Self { files, newest })
        }

        /// Performs the handshake with a client.
        pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
            // Checks for a TLS handshake record (RFC 8446, 5.1). With `http://` a browser would show no useful error.
            let mut first = [0];
            stream.peek(&mut first).await.ok()?;
            if first != [22] {
                let text = "this port speaks TLS; expected https:// in the address\n";
                let head = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n";
                // Unread input at the end of a connection would make the kernel discard the answer.
                let _ = stream.try_read(&mut [0; 4096]);
                let _ = stream.try_write(format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
                return None;
            }
            self.acceptor().accept(stream).await.ok()
        }

        /// The acceptor for the next client. Checks both files, and reads them if they have changed.
        fn acceptor(&self) -> TlsAcceptor {
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            let version = self.files.version();
            // Without the files the old certificate is used until it expires. A partly written pair is checked again when it
            // changes.
            if version.is_some() && version != newest.version {
                newest.version = version;
                match config(&self.files) {
                    Ok(config) => newest.config = config,
                    Err(error) => eprintln!("tahti: the certificate stays the one before: {error}"),
                }
            }
            TlsAcceptor::from(newest.config.clone())
        }
    }

    fn config(files: &IdentityFiles) -> Result<Arc<ServerConfig>, IdentityError> {
        let [certificate, key] = files.read()?;
        let text =
            |path: &std::path::Path, expected, why: String| IdentityError::Text { path: path.into(), expected, why };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(|why| text(&files.certificate, "certificate", why.to_string()))?;
        if chain.is_empty() {
            return Err(text(&files.certificate, "certificate", "there is none in it".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|why| text(&files.key, "key", why.to_string()))?;
        let pair = |why: rustls::Error| IdentityError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            why: why.to_string(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.map_err(pair)?.with_no_client_auth().with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
