//! Limits of ZeroMQ clients, separate for those that have sent a greeting and those that have not. Silent clients
//! cannot keep others out.

use super::{GREETINGS_MAX, PEERS_MAX};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All clients, in order of connection.
#[derive(Default)]
pub(super) struct Places(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    all: Vec<Entry>,
}

struct Entry {
    number: u64,
    host: IpAddr,
    /// Handle to close the connection of a silent client; `None` after its greeting.
    silent: Option<TcpStream>,
}

/// Registration of one client. Dropped when its thread ends.
pub(super) struct Place {
    pub(super) from: SocketAddr,
    number: u64,
    places: Arc<Places>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new client. If too many clients are silent, disconnects one of them.
    ///
    /// # Errors
    /// The stream cannot be cloned.
    pub(super) fn enter(self: &Arc<Self>, stream: &TcpStream, from: SocketAddr) -> io::Result<Place> {
        let silent = Some(stream.try_clone()?);
        let mut entries = self.lock();
        if entries.silent().count() >= GREETINGS_MAX {
            entries.displace_one();
        }
        entries.next += 1;
        let number = entries.next;
        entries.all.push(Entry { number, host: from.ip(), silent });
        Ok(Place { from, number, places: self.clone() })
    }
}

impl Entries {
    fn silent(&self) -> impl DoubleEndedIterator<Item = (usize, &Entry)> {
        self.all.iter().enumerate().filter(|(_, entry)| entry.silent.is_some())
    }

    /// Disconnects the oldest silent client of the host that has the most of them.
    fn displace_one(&mut self) {
        let of = |host: IpAddr| self.silent().filter(|(_, entry)| entry.host == host).count();
        // Of equal ones `max_by_key` returns the last, hence `rev`.
        let one = self.silent().rev().max_by_key(|(_, entry)| of(entry.host)).map(|(at, _)| at);
        if let Some(stream) = one.and_then(|at| self.all.remove(at).silent) {
            // Fails only if the connection has already gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Place {
    /// Marks the client as introduced. Returns `false` if the maximum number of clients is reached.
    pub(super) fn introduce(&self) -> bool {
        let mut entries = self.places.lock();
        let introduced = entries.all.len() - entries.silent().count();
        let entry = entries.all.iter_mut().find(|entry| entry.number == self.number);
        entry.is_some_and(|entry| entry.silent.is_none() || introduced < PEERS_MAX && entry.silent.take().is_some())
    }

    /// Whether the client was removed in favour of another one.
    pub(super) fn is_displaced(&self) -> bool {
        !self.places.lock().all.iter().any(|entry| entry.number == self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().all.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// Both ends of a connection.
    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, far)
    }

    #[test]
    fn the_host_with_the_most_silent_connections_loses_its_oldest_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = Arc::<Places>::default();
        let host = |number: u8| SocketAddr::from(([192, 0, 2, number], 1));
        let enter = |number| {
            let (near, far) = pair(&listener);
            (places.enter(&near, host(number)).unwrap(), near, far)
        };
        // The first client of host 1 has sent its greeting. Host 2 has two silent clients, host 1 all others.
        let first = enter(1);
        assert!(first.0.introduce());
        let others: Vec<_> = (0..GREETINGS_MAX).map(|nth| enter(if nth < 2 { 2 } else { 1 })).collect();
        assert!(others.iter().all(|(place, ..)| !place.is_displaced()));
        let newest = enter(3);
        let displaced: Vec<usize> = (0..others.len()).filter(|at| others[*at].0.is_displaced()).collect();
        assert_eq!(displaced, [2], "the oldest silent client of host 1");
        assert_eq!((&others[2].2).read(&mut [0]).unwrap(), 0, "its connection has ended");
        assert!(!first.0.is_displaced() && !newest.0.is_displaced() && !others[2].0.introduce());
    }

    #[test]
    fn clients_introduce_themselves_up_to_the_number_of_places_and_a_freed_place_is_reused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = Arc::<Places>::default();
        let enter = || {
            let (near, _far) = pair(&listener);
            places.enter(&near, near.peer_addr().unwrap()).unwrap()
        };
        let mut all: Vec<Place> = (0..PEERS_MAX).map(|_| enter()).collect();
        assert!(all.iter().all(Place::introduce) && all[0].introduce(), "a second call has the same result");
        let more = enter();
        assert!(!more.introduce());
        all.pop();
        assert!(more.introduce());
    }
}
