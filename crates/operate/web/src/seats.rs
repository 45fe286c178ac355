//! Seats for connections, with a limit for all and a limit per owner.

use crate::user::user;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// The owner of a connection: a local user or a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A user of this machine.
    User(u32),
    /// An address. For IPv6 the 64-bit network, because one host may use all of its addresses.
    Address(IpAddr),
}

impl Owner {
    /// The owner of the connection from `peer` to `local`. Reads the kernel's table of connections, which may be long.
    pub(crate) fn of(peer: SocketAddr, local: SocketAddr) -> Self {
        user(peer, local).map_or_else(|| Self::address(peer.ip()), Self::User)
    }

    /// The owner identified by an address.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }

    /// The user; `None` for a remote address.
    #[must_use]
    pub const fn user(self) -> Option<u32> {
        match self {
            Self::User(user) => Some(user),
            Self::Address(_) => None,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// The reason why there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The owner has reached the limit per owner.
    Owner,
    /// All seats are in use.
    All,
}

/// The seats of a server. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    of_one_max: usize,
    of_all_max: usize,
    taken: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Seats {
    pub(crate) fn new(of_one_max: usize, of_all_max: usize) -> Self {
        Self { of_one_max, of_all_max, taken: Arc::default() }
    }

    /// Takes a seat, which is released on drop.
    pub(crate) fn take(&self, owner: Owner) -> Result<Seat, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.get(&owner).is_some_and(|of_one| *of_one >= self.of_one_max) {
            return Err(Full::Owner);
        }
        if taken.values().sum::<usize>() >= self.of_all_max {
            return Err(Full::All);
        }
        *taken.entry(owner).or_default() += 1;
        Ok(Seat { owner, of: self.clone() })
    }
}

/// A seat in use.
#[derive(Debug)]
pub(crate) struct Seat {
    owner: Owner,
    of: Seats,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_one) = taken.get_mut(&self.owner) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_takes_no_more_than_its_share_of_seats_and_returns_them() {
        let (seats, one, other) = (Seats::new(3, 5), Owner::User(1000), Owner::User(1001));
        let mut taken: Vec<Seat> = (0..3).map(|_| seats.take(one).unwrap()).collect();
        assert_eq!(seats.take(one).unwrap_err(), Full::Owner);
        let others: Vec<Seat> = (0..2).map(|_| seats.take(other).unwrap()).collect();
        assert_eq!(seats.take(other).unwrap_err(), Full::All);
        taken.pop();
        taken.push(seats.take(one).unwrap());
        drop((taken, others));
        assert!(seats.taken.lock().unwrap().is_empty(), "an owner without connections needs no memory");
    }

    #[test]
    fn a_network_of_a_host_is_one_owner() {
        let at = |text: &str| Owner::address(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
